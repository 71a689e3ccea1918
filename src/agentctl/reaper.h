#pragma once
// The reaper: one small process per instance, parent of its agent and (as child subreaper) of
// every descendant the agent ever leaves behind, so that nothing below it can escape a stop.
//
// It is forked from agentctl without exec, has no event loop, and talks over one SOCK_SEQPACKET
// socket, one struct a message. When that socket closes (agentctl died), it ends its tree: TERM,
// the stop grace, then a forced stop.

#include "agentctl/trampoline.h"

#include <cstdint>

namespace capstan {

struct ReaperRequest {
  enum Kind : uint32_t { SIGNAL, STOP, COUNT };
  Kind kind;
  uint32_t id;       // Repeated in the answer to SIGNAL and COUNT.
  int32_t signal;    // SIGNAL: to the agent's process group.
  uint32_t force;    // STOP: 1 = kill at once.
  uint64_t graceMs;  // STOP: from TERM to the kill.
};

struct ReaperReport {
  enum Kind : uint32_t {
    STARTED,  // execve succeeded; `pid`, `startTicks`.
    FAILED,   // It did not; `failure`. Nothing follows.
    EXITED,   // The agent's own end; `value` = its wait status.
    ANSWER,  // To SIGNAL (`value` = 0 or an errno) and COUNT (`value` = descendants but the agent).
    SURVIVORS,  // A forced stop gave up; `value` = processes left. The reaper goes on.
    EMPTY,      // No process is left. The reaper exits.
  };
  Kind kind;
  uint32_t id;
  int32_t pid;
  int32_t value;
  uint64_t startTicks;
  LaunchFailure failure;
};

struct ReaperSetup {
  const LaunchPlan* plan;
  TrampolineFds fds;         // `report` is made by the reaper.
  int control;               // Its end of the socket.
  uint64_t stopGraceMs;      // For the death of agentctl.
  int cgroupKill;            // cgroup.kill, or -1.
  const char* cgroupPath;    // Removed at the end, or null.
  uint64_t descriptorLimit;  // Soft, of the agent.
  int lifeline;              // Held until the end, or -1.
};

// Tries PR_SET_CHILD_SUBREAPER on the calling process. False where it is refused (qemu-user).
bool becomeSubreaper();

// The whole life of a reaper, in the forked child. Never returns, never throws.
[[noreturn]] void runReaper(const ReaperSetup& setup);

}  // namespace capstan
