#pragma once
// The caller's own descriptors as kj streams, without changing them for the processes that share
// them: a terminal or pipe is opened anew through /proc/self/fd, so that O_NONBLOCK stays ours.

#include <kj/async-io.h>

namespace capstan {

// Reads descriptor `fd`, which must stay open. A regular file is read in place, at once.
kj::Own<kj::AsyncInputStream> openInput(kj::LowLevelAsyncIoProvider& provider, kj::Timer& timer,
                                        int fd);

// Writes to descriptor `fd`, which must stay open. A reader that takes nothing holds the write,
// not the loop.
kj::Own<kj::AsyncOutputStream> openOutput(kj::LowLevelAsyncIoProvider& provider, int fd);

}  // namespace capstan
