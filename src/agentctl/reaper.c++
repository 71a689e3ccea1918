#include "agentctl/reaper.h"

#include "agentctl/process-tree.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr int64_t KILL_LIMIT_MS = 10'000;  // A forced stop that takes longer reports survivors.
constexpr int64_t REFUSED_LIMIT_MS = 300;  // When only what may not be signalled is left.
constexpr int ROUND_PAUSE_MS = 2;

int64_t nowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

class Reaper {
public:
  explicit Reaper(const ReaperSetup& setup): setup(setup) {}

  void run() {
    if (!start()) return;
    for (;;) {
      if (reap()) break;
      if (phase == Phase::TERMINATING && nowMs() >= deadline) beginKill();
      if (phase == Phase::KILLING) {
        kill();
        if (reap()) break;
      }
      waitForNews();
    }
    if (setup.cgroupPath != nullptr) rmdir(setup.cgroupPath);
    send(ReaperReport{ReaperReport::EMPTY, 0, 0, 0, 0, {}});
  }

private:
  enum class Phase { WATCHING, TERMINATING, KILLING };

  const ReaperSetup& setup;
  int signals = -1;
  pid_t agent = 0;
  bool agentReaped = false;
  bool controlOpen = true;
  Phase phase = Phase::WATCHING;
  int64_t deadline = 0;
  int64_t refusedSince = 0;

  void send(const ReaperReport& report) {
    while (controlOpen && ::send(setup.control, &report, sizeof(report), MSG_NOSIGNAL) < 0) {
      if (errno == EINTR) continue;
      // A full socket: agentctl is alive but far behind; every report matters, so wait for it.
      if (errno != EAGAIN) {
        controlOpen = false;
        return;
      }
      pollfd wait{setup.control, POLLOUT, 0};
      poll(&wait, 1, 1000);
    }
  }

  bool fail(LaunchStep step, int error) {
    if (setup.cgroupPath != nullptr) rmdir(setup.cgroupPath);
    send(ReaperReport{ReaperReport::FAILED, 0, 0, 0, 0, {step, error}});
    return false;
  }

  bool start() {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    int report[2];
    if (signals < 0 || pipe2(report, O_CLOEXEC) < 0) return fail(LaunchStep::FORK, errno);
    agent = fork();
    if (agent < 0) return fail(LaunchStep::FORK, errno);
    if (agent == 0) {
      auto fds = setup.fds;
      fds.report = report[1];
      runTrampoline(*setup.plan, fds, setup.descriptorLimit);
    }
    close(report[1]);
    // What stays open here would keep the agent's streams from ever ending.
    for (int fd: {setup.fds.input, setup.fds.output, setup.fds.errors, setup.fds.cgroup}) {
      if (fd >= 0) close(fd);
    }
    LaunchFailure failure{};
    ssize_t n;
    do {
      n = read(report[0], &failure, sizeof(failure));
    } while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n == sizeof(failure)) {
      int status;
      while (waitpid(agent, &status, 0) < 0 && errno == EINTR) {
      }
      return fail(failure.step, failure.error);
    }
    send(ReaperReport{ReaperReport::STARTED, 0, agent, 0, startTicksOf(agent), {}});
    return true;
  }

  // Collects what has ended. True: no child is left.
  bool reap() {
    for (;;) {
      int status;
      pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid == 0) return false;
      if (pid < 0) return errno == ECHILD;
      if (pid == agent && !agentReaped) {
        agentReaped = true;
        send(ReaperReport{ReaperReport::EXITED, 0, pid, status, 0, {}});
      }
    }
  }

  void terminate(uint64_t graceMs) {
    phase = Phase::TERMINATING;
    deadline = nowMs() + static_cast<int64_t>(std::min<uint64_t>(graceMs, 86'400'000));
    if (!agentReaped) {
      // Its number is not given to another group while we have not reaped it.
      ::kill(-agent, SIGTERM);
      ::kill(-agent, SIGCONT);
      return;
    }
    auto all = descendantsOf(getpid());
    auto family = all;
    family.push_back(getpid());
    std::sort(family.begin(), family.end());
    for (pid_t pid: all) {
      signalRelative(pid, SIGTERM, family);
      signalRelative(pid, SIGCONT, family);
    }
  }

  void beginKill() {
    phase = Phase::KILLING;
    deadline = nowMs() + KILL_LIMIT_MS;
    refusedSince = 0;
  }

  void kill() {
    if (setup.cgroupKill >= 0 && pwrite(setup.cgroupKill, "1", 1, 0) < 0) {
      // Nothing lost: the walk below reaches the same processes.
    }
    auto round = killRound(getpid());
    auto now = nowMs();
    bool onlyRefused = round.alive > 0 && round.alive == round.refused;
    if (!onlyRefused) {
      refusedSince = 0;
    } else if (refusedSince == 0) {
      refusedSince = now;
    }
    if (now >= deadline || (onlyRefused && now - refusedSince >= REFUSED_LIMIT_MS)) {
      phase = Phase::WATCHING;
      send(ReaperReport{ReaperReport::SURVIVORS, 0, 0, static_cast<int32_t>(round.alive), 0, {}});
    }
  }

  void waitForNews() {
    int timeout = -1;
    if (phase == Phase::KILLING) timeout = ROUND_PAUSE_MS;
    if (phase == Phase::TERMINATING) {
      timeout = static_cast<int>(std::clamp<int64_t>(deadline - nowMs(), 0, 60'000));
    }
    pollfd fds[] = {{signals, POLLIN, 0}, {controlOpen ? setup.control : -1, POLLIN, 0}};
    if (poll(fds, 2, timeout) <= 0) return;
    signalfd_siginfo info;
    while (read(signals, &info, sizeof(info)) > 0) {
    }
    if (fds[1].revents != 0) readRequests();
  }

  void readRequests() {
    while (controlOpen) {
      ReaperRequest request;
      ssize_t n = recv(setup.control, &request, sizeof(request), MSG_DONTWAIT);
      if (n == sizeof(request)) {
        handle(request);
        continue;
      }
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      controlOpen = false;  // agentctl is gone: there may never be two agents in one workspace.
      if (phase == Phase::WATCHING) terminate(setup.stopGraceMs);
    }
  }

  void handle(const ReaperRequest& request) {
    switch (request.kind) {
      case ReaperRequest::SIGNAL: {
        int error = 0;
        if (agentReaped) {
          error = ESRCH;
        } else if (::kill(-agent, request.signal) < 0) {
          error = errno;
        }
        send(ReaperReport{ReaperReport::ANSWER, request.id, 0, error, 0, {}});
        return;
      }
      case ReaperRequest::COUNT: {
        auto count = static_cast<int32_t>(descendantsOf(getpid()).size());
        if (!agentReaped && count > 0) --count;
        send(ReaperReport{ReaperReport::ANSWER, request.id, 0, count, 0, {}});
        return;
      }
      case ReaperRequest::STOP:
        if (request.force != 0) {
          if (phase != Phase::KILLING) beginKill();
        } else if (phase == Phase::WATCHING) {
          terminate(request.graceMs);
        } else if (phase == Phase::TERMINATING) {
          // A later, shorter grace holds.
          deadline = std::min(deadline, nowMs() + static_cast<int64_t>(std::min<uint64_t>(
                                                      request.graceMs, 86'400'000)));
        }
        return;
    }
  }
};

void holdNothingOfAgentctl(const ReaperSetup& setup) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    // Whoever started agentctl may wait for the end of its output.
    for (int fd: {0, 1, 2}) {
      dup2(null, fd);
    }
  }
  int kept[] = {setup.fds.input, setup.fds.output, setup.fds.errors, setup.fds.cgroup,
                setup.control,   setup.cgroupKill, setup.lifeline};
  std::sort(std::begin(kept), std::end(kept));
  closeAllExcept(kept);
}

}  // namespace

bool becomeSubreaper() { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0; }

void runReaper(const ReaperSetup& setup) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  resetSignalHandlers();
  becomeSubreaper();  // Where it is refused, agentctl says reaper=no.
  prctl(PR_SET_NAME, "agentctl-reaper", 0, 0, 0);
  // Not in the terminal's or shell's process group from which agentctl may have been started.
  setpgid(0, 0);
  holdNothingOfAgentctl(setup);
  Reaper(setup).run();
  _exit(0);
}

}  // namespace capstan
