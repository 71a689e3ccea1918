#pragma once
// The folders of one environment on this machine. Blocking: called on the worker pool.

#include "backends/backend.h"

namespace capstan {

// Makes the folder `environment` (mode 0700) with `workspace` and `runs` in it, unless they are
// there. With `given`, the user's workspace is checked instead of making one. Returns the
// workspace's absolute path. workspaceLost when the user's folder is not there.
Result<kj::String> makePlace(kj::String environment, kj::Maybe<kj::String> given);

// Removes what makePlace made: the whole folder, or all but its workspace. Never follows symbolic
// links; absent things count as removed. What could not be removed is returned, one a line.
kj::Vector<kj::String> removePlace(kj::String environment, bool keepWorkspace);

}  // namespace capstan
