#pragma once
// Looking at and ending trees of processes through /proc and pidfds. Plain system calls, no event
// loop: the reaper and the helper both use it.

#include <kj/common.h>

#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace capstan {

// Every process below `root`, parents before children, without `root`. Zombies included. A
// process that forks meanwhile may hide a child: repeat until nothing new is seen.
std::vector<pid_t> descendantsOf(pid_t root);

// Field 22 of /proc/PID/stat (start time in clock ticks since boot); 0 = no such process.
uint64_t startTicksOf(pid_t pid);
// Its parent; 0 = no such process.
pid_t parentOf(pid_t pid);

// Sends `signal` to `pid` if its parent is still one of `family` (sorted), so that a number that
// was given to another process meanwhile is spared. Returns 0, ESRCH or EPERM.
int signalRelative(pid_t pid, int signal, const std::vector<pid_t>& family);

// How many living processes (no zombies) are below `root`, but for the trees of `spared`.
uint32_t countOutside(pid_t root, const std::vector<pid_t>& spared);

struct KillRound {
  uint32_t alive = 0;    // Seen and not yet a zombie.
  uint32_t refused = 0;  // Of these: may not be signalled by us.
};

// One round of a forced stop of everything below `root` but the trees of `spared`: freeze until
// nothing new appears (bounded), then kill. Repeat, reaping in between, until alive is 0 or equals
// refused.
KillRound killRound(pid_t root, const std::vector<pid_t>& spared = {});

// Closes every descriptor from 3 on but those in `kept` (sorted).
void closeAllExcept(kj::ArrayPtr<const int> kept);

}  // namespace capstan
