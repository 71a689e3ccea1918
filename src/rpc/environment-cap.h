#pragma once

#include "core/supervisor.h"
#include "environment.capnp.h"
#include "rpc/guard.h"

namespace capstan {

// A facet of one environment with the guard's rights. Many may stand for the same environment.
rpc::TaskEnvironment::Client newEnvironmentCap(Supervisor& supervisor,
                                               kj::Own<EnvironmentActor> environment, Guard guard);

}  // namespace capstan
