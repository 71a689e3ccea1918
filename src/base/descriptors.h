#pragma once
// What a program does about the descriptors it was started with, first thing in main().

#include <cstdint>

namespace capstan {

// Opens /dev/null in place of each of stdin, stdout and stderr that is closed. Else the next file,
// socket or epoll instance would get its number, and what is meant for a stream would go there.
void openStandardStreams();

// Closes everything above stderr: for a daemon that a client starts, which would otherwise keep
// open whatever its client's caller held (a pipe somebody reads to its end, a lock).
void closeInheritedDescriptors();

// Raises the soft limit of open descriptors to the hard one, at most 2^20, so that many agents and
// clients fit. Returns the soft limit before: what processes of others are to start with, since
// some break (select()) or get slow when the limit is large.
uint64_t raiseDescriptorLimit();

}  // namespace capstan
