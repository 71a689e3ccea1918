#pragma once

#include "core/environment-actor.h"
#include "environment.capnp.h"
#include "rpc/guard.h"

namespace capstan {

// A run of a session: the process stays when this is dropped.
rpc::Run::Client newRunCap(kj::Own<ProcessActor> process, Guard guard);

// A process of exec(): ended and deleted in the background when this is dropped.
struct ExecProcess {
  ExecProcess(kj::Own<EnvironmentActor> environment, kj::Own<ProcessActor> process)
      : environment(kj::mv(environment)), process(kj::mv(process)) {}
  ~ExecProcess() noexcept(false) { environment->reap(kj::mv(process)); }
  KJ_DISALLOW_COPY_AND_MOVE(ExecProcess);

  kj::Own<EnvironmentActor> environment;
  kj::Own<ProcessActor> process;
  kj::Maybe<kj::Own<OutputReading>> delivery;  // Of its output to the client.
};

// An exec: the process ends when the capability is dropped.
rpc::Instance::Client newExecCap(kj::Own<ExecProcess> process, Guard guard);

rpc::Session::Client newSessionCap(kj::Own<EnvironmentActor> environment,
                                   kj::Own<SessionActor> session, Guard guard);

}  // namespace capstan
