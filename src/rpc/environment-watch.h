#pragma once

#include "core/supervisor.h"
#include "rpc/watch.h"
#include "values.capnp.h"

namespace capstan {

using EnvironmentWatchSource = WatchSource<rpc::EnvironmentStatus>;

// One environment, as core itself knows it; ends once it is removed.
kj::Own<EnvironmentWatchSource> watchOne(kj::Own<EnvironmentActor> environment);

// All environments of `owner`, new ones too. The supervisor must outlive it.
kj::Own<EnvironmentWatchSource> watchAll(Supervisor& supervisor, kj::String owner);

}  // namespace capstan
