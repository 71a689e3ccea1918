#pragma once
// What runs in the new process between fork and execve.

#include "agentctl/launch-plan.h"

#include <cstdint>

namespace capstan {

// The steps that can fail, told together with the errno.
enum class LaunchStep : int32_t {
  NONE,
  FORK,
  SESSION,
  TERMINAL,
  STREAMS,
  DIRECTORY,
  LIMITS,
  EXECUTE
};
kj::StringPtr launchStepName(LaunchStep step);

// Written to the close-on-exec pipe when a step fails; end of file without it = execve succeeded.
struct LaunchFailure {
  LaunchStep step;
  int32_t error;
};

struct TrampolineFds {
  int input;      // Becomes 0. With a terminal all three are its slave.
  int output;     // Becomes 1.
  int errors;     // Becomes 2.
  bool terminal;  // Whether `input` becomes the controlling terminal.
  int cgroup;     // cgroup.procs to enter, or -1. Failing that is no failure.
  int report;     // Close-on-exec pipe for a LaunchFailure.
};

// In the forked child: a session of its own, every signal at its default and none blocked, no
// descriptor but 0, 1, 2 and a soft limit of `descriptorLimit` of them (or the hard limit, if that
// is lower), nothing of the parent's variables. Never returns. Allocates nothing.
[[noreturn]] void runTrampoline(const LaunchPlan& plan, const TrampolineFds& fds,
                                uint64_t descriptorLimit);

// Every signal handler back to SIG_DFL; kj ignores SIGPIPE, and ignoring survives execve.
void resetSignalHandlers();

}  // namespace capstan
