#pragma once
// The allocator's settings for programs that stream.

namespace capstan {

// For main(): lets the heap keep up to 8 MiB of free memory at its top and serves requests below
// 1 MiB from it. With glibc's defaults a stream with its window of 1 MiB in flight gives the top
// of the heap back to the kernel and faults it in again for every few messages: 0.2 to 0.5 GiB/s
// instead of 2 GiB/s (measured over a socket pair). Process-wide, so libraries leave it to their
// program. Does nothing where the C library is not glibc.
void keepHeapForStreams();

// Gives what keepHeapForStreams() keeps back to the kernel, for a program that shall be small while
// it waits. Costs a walk over the heap (some 10 us for a small one), so it stands after a stream
// of some size, not in its path. Does nothing where the C library is not glibc.
void giveHeapBack();

}  // namespace capstan
