#include "agentctl/trampoline.h"

#include "agentctl/process-tree.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace capstan {

namespace {

[[noreturn]] void fail(int report, LaunchStep step, int error) {
  LaunchFailure failure{step, error};
  // The parent reads end of file if even this fails, and then sees exit status 127.
  if (write(report, &failure, sizeof(failure)) != sizeof(failure)) _exit(126);
  _exit(127);
}

// Moves `fd` out of the way of 0, 1 and 2.
int above(int fd) { return fd > 2 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3); }

}  // namespace

kj::StringPtr launchStepName(LaunchStep step) {
  switch (step) {
    case LaunchStep::NONE:
      return "none";
    case LaunchStep::FORK:
      return "fork";
    case LaunchStep::SESSION:
      return "setsid";
    case LaunchStep::TERMINAL:
      return "controlling terminal";
    case LaunchStep::STREAMS:
      return "streams";
    case LaunchStep::DIRECTORY:
      return "working directory";
    case LaunchStep::LIMITS:
      return "descriptor limit";
    case LaunchStep::EXECUTE:
      return "execve";
  }
  return "unknown";
}

void resetSignalHandlers() {
  // By the system call: libc's own function refuses its internal signals 32 and 33, which
  // posix_spawn leaves ignored in whoever started agentctl. All zeros is SIG_DFL without flags.
  alignas(8) const char standard[64] = {};
  constexpr size_t KERNEL_SIGSET_BYTES = 8;
  for (int signal = 1; signal <= 64; ++signal) {
    syscall(SYS_rt_sigaction, signal, standard, nullptr, KERNEL_SIGSET_BYTES);  // KILL, STOP: no.
  }
}

void runTrampoline(const LaunchPlan& plan, const TrampolineFds& fds, uint64_t descriptorLimit) {
  int report = above(fds.report);
  int input = above(fds.input), output = above(fds.output), errors = above(fds.errors);
  if (report < 0 || input < 0 || output < 0 || errors < 0) {
    fail(fds.report, LaunchStep::STREAMS, errno);
  }
  if (setsid() < 0) fail(report, LaunchStep::SESSION, errno);
  if (fds.terminal && ioctl(input, TIOCSCTTY, 0) < 0) fail(report, LaunchStep::TERMINAL, errno);
  if (fds.cgroup >= 0) {
    ssize_t ignored = write(fds.cgroup, "0", 1);  // The reaper's walk finds it all the same.
    (void)ignored;
  }
  if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0) {
    fail(report, LaunchStep::STREAMS, errno);
  }
  if (chdir(plan.workingDirectory()) < 0) fail(report, LaunchStep::DIRECTORY, errno);
  closeAllExcept(kj::arrayPtr(&report, 1));
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) fail(report, LaunchStep::LIMITS, errno);
  limit.rlim_cur = std::min<rlim_t>(descriptorLimit, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) < 0) fail(report, LaunchStep::LIMITS, errno);

  resetSignalHandlers();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);

  // As execvp: the first that can be executed; a refusal outweighs "not there".
  int error = ENOENT;
  for (auto path = plan.candidates(); *path != nullptr; ++path) {
    execve(*path, plan.arguments(), plan.variables());
    if (errno == ENOENT || errno == ENOTDIR) continue;
    error = errno;
    if (errno != EACCES) break;
  }
  fail(report, LaunchStep::EXECUTE, error);
}

}  // namespace capstan
