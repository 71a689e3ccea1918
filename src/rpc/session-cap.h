#pragma once

#include "core/environment-actor.h"
#include "environment.capnp.h"
#include "rpc/guard.h"

namespace capstan {

// A run of a session: the process stays when this is dropped.
rpc::Run::Client newRunCap(kj::Own<RunActor> run, Guard guard);

// An exec: the process ends when the capability is dropped.
rpc::Instance::Client newExecCap(kj::Own<ExecProcess> process, Guard guard);

rpc::Session::Client newSessionCap(kj::Own<EnvironmentActor> environment,
                                   kj::Own<SessionActor> session, Guard guard);

}  // namespace capstan
