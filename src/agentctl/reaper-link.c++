#include "agentctl/reaper-link.h"

#include "agentctl/process-tree.h"

#include <kj/debug.h>

#include <cerrno>
#include <csignal>
#include <sys/socket.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr uint64_t KILL_LIMIT_MS = 10'000;
constexpr auto ROUND_PAUSE = 2 * kj::MILLISECONDS;
// Nothing announces the end of a process that is no child of ours.
constexpr auto ADOPTED_PAUSE = 250 * kj::MILLISECONDS;
// Beyond what the reaper itself allows for a stop: then it hangs.
constexpr uint64_t REAPER_PATIENCE_MS = 15'000;
constexpr uint32_t REAPER_DIED = UINT32_MAX;  // Instead of a number of survivors.

Problem launchProblem(const LaunchFailure& failure) {
  auto name = errnoName(failure.error);
  auto code = ErrorCode::DENIED;
  if (failure.error == ENOENT || failure.error == ENOTDIR) code = ErrorCode::NOT_FOUND;
  if (failure.error == E2BIG) code = ErrorCode::INVALID_ARGUMENT;
  if (failure.error == EAGAIN || failure.error == ENOMEM || failure.error == EMFILE ||
      failure.error == ENFILE) {
    code = ErrorCode::RESOURCE_EXHAUSTED;
  }
  auto field = ""_kj;
  if (failure.step == LaunchStep::DIRECTORY) field = "workingDirectory"_kj;
  if (failure.step == LaunchStep::EXECUTE) field = "command"_kj;
  return Problem(code, kj::str("the process could not be started: ", launchStepName(failure.step),
                               " failed with ", name))
      .at(kj::str(field))
      .from("agentctl", kj::str(name));
}

}  // namespace

kj::String errnoName(int error) {
  const char* name = strerrorname_np(error);
  return name == nullptr ? kj::str("errno ", error) : kj::str(name);
}

Result<kj::Own<ReaperLink>> ReaperLink::fork(kj::UnixEventPort& port, kj::Timer& timer,
                                             ChildWatch& children, const LaunchPlan& plan,
                                             AgentStreams streams, uint64_t stopGraceMs,
                                             uint64_t descriptorLimit, int lifeline,
                                             kj::Maybe<CgroupFds> cgroup) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
    return launchProblem({LaunchStep::FORK, errno});
  }
  kj::AutoCloseFd ours(pair[0]), theirs(pair[1]);
  ReaperSetup setup{&plan,
                    {streams.input, streams.output, streams.errors, streams.terminal, -1, -1},
                    theirs.get(),
                    stopGraceMs,
                    -1,
                    nullptr,
                    descriptorLimit,
                    lifeline};
  KJ_IF_MAYBE (group, cgroup) {
    setup.fds.cgroup = group->processes.get();
    setup.cgroupKill = group->kill.get();
    setup.cgroupPath = group->path.cStr();
  }
  // No signal handler of ours may run in the child.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pid_t pid = ::fork();
  if (pid == 0) runReaper(setup);
  int error = errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    KJ_IF_MAYBE (group, cgroup) {
      rmdir(group->path.cStr());
    }
    return launchProblem({LaunchStep::FORK, error});
  }
  children.addReaper(pid);
  return kj::heap<ReaperLink>(port, timer, children, kj::mv(ours), pid, kj::mv(cgroup));
}

ReaperLink::ReaperLink(kj::UnixEventPort& port, kj::Timer& timer, ChildWatch& children,
                       kj::AutoCloseFd fdParam, pid_t reaper, kj::Maybe<CgroupFds> cgroup)
    : timer(timer),
      children(children),
      fd(kj::mv(fdParam)),
      observer(port, fd, kj::UnixEventPort::FdObserver::OBSERVE_READ),
      reaper(reaper),
      cgroup(kj::mv(cgroup)) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  emptyFulfiller = kj::mv(paf.fulfiller);
  whenEmpty = paf.promise.fork();
  loop = run().eagerlyEvaluate(
      [](kj::Exception&& e) { KJ_LOG(ERROR, "the link to a reaper failed", e); });
}

ReaperLink::~ReaperLink() noexcept(false) {
  if (agent != 0) children.forget(agent);
}

kj::Promise<Result<AgentStarted>> ReaperLink::started() { return kj::mv(start.promise); }

kj::Promise<kj::Maybe<int>> ReaperLink::agentExit() { return kj::mv(exit.promise); }

bool ReaperLink::isAgentAlive() const {
  return agent != 0 && !exited && startTicksOf(agent) == agentTicks;
}

kj::Promise<void> ReaperLink::readReports() {
  for (;;) {
    ReaperReport report;
    ssize_t n = recv(fd, &report, sizeof(report), MSG_DONTWAIT);
    if (n == sizeof(report)) {
      handle(report);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      co_await observer.whenBecomesReadable();
    } else {
      co_return;  // The reaper has ended.
    }
  }
}

kj::Promise<void> ReaperLink::run() {
  co_await readReports();
  linked = false;
  for (auto& entry: questions) {
    entry.value->fulfill(ESRCH);
  }
  questions.clear();
  if (empty) co_return;
  stopped(REAPER_DIED);

  KJ_LOG(WARNING, "a reaper died; adopting what it leaves", reaper, agent);
  children.reap();
  if (agent == 0) {
    start.fulfiller->fulfill(
        Problem(ErrorCode::INTERNAL, kj::str("the process's reaper died while starting it")));
  } else if (!exited) {
    // Should it have been reaped by the reaper, its status is lost: nobody will tell.
    kj::Promise<kj::Maybe<int>> seen = adoptedExit.then([](int s) { return kj::Maybe<int>(s); });
    if (!children.isChild(agent)) {
      seen = seen.exclusiveJoin(
          timer.afterDelay(ADOPTED_PAUSE).then([]() -> kj::Maybe<int> { return nullptr; }));
    }
    agentEnded(co_await seen);
  }
  co_await superviseAdopted();
}

kj::Promise<void> ReaperLink::superviseAdopted() {
  for (;;) {
    children.reap();
    auto orphans = adoptedProcesses();
    if (orphans == 0) break;
    co_await timer.afterDelay(ADOPTED_PAUSE);
  }
  KJ_IF_MAYBE (group, cgroup) {
    rmdir(group->path.cStr());
  }
  empty = true;
  emptyFulfiller->fulfill();
  stopped(0);
}

uint32_t ReaperLink::adoptedProcesses() const {
  return countOutside(getpid(), children.liveReapers());
}

void ReaperLink::handle(const ReaperReport& report) {
  switch (report.kind) {
    case ReaperReport::STARTED:
      agent = report.pid;
      agentTicks = report.startTicks;
      adoptedExit = children.onExit(agent);
      start.fulfiller->fulfill(AgentStarted{report.pid, report.startTicks});
      return;
    case ReaperReport::FAILED:
      empty = true;
      start.fulfiller->fulfill(launchProblem(report.failure));
      emptyFulfiller->fulfill();
      stopped(0);
      return;
    case ReaperReport::EXITED:
      agentEnded(report.value);
      return;
    case ReaperReport::ANSWER:
      KJ_IF_MAYBE (question, questions.find(report.id)) {
        (*question)->fulfill(kj::cp(report.value));
        questions.erase(report.id);
      }
      return;
    case ReaperReport::SURVIVORS:
      stopped(static_cast<uint32_t>(report.value));
      return;
    case ReaperReport::EMPTY:
      empty = true;
      emptyFulfiller->fulfill();
      stopped(0);
      return;
  }
}

void ReaperLink::agentEnded(kj::Maybe<int> status) {
  if (exited) return;
  exited = true;
  children.forget(agent);
  exit.fulfiller->fulfill(kj::mv(status));
}

void ReaperLink::stopped(uint32_t survivors) {
  for (auto& waiter: stops) {
    waiter->fulfill(kj::cp(survivors));
  }
  stops.clear();
}

void ReaperLink::send(const ReaperRequest& request) {
  ssize_t n = ::send(fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n >= 0) return;
  if (errno == EAGAIN) {
    kj::throwFatalException(KJ_EXCEPTION(OVERLOADED, "the process's reaper does not keep up"));
  }
  // It has just ended; run() sees that and answers whoever waits.
}

kj::Promise<int> ReaperLink::ask(ReaperRequest request) {
  if (!linked) return ESRCH;
  request.id = nextId++;
  send(request);
  auto paf = kj::newPromiseAndFulfiller<int>();
  questions.insert(request.id, kj::mv(paf.fulfiller));
  return kj::mv(paf.promise);
}

kj::Promise<Outcome> ReaperLink::signal(int number) {
  int error = 0;
  if (linked) {
    error = co_await ask(ReaperRequest{ReaperRequest::SIGNAL, 0, number, 0, 0});
  }
  if (!linked) {
    error = !isAgentAlive() ? ESRCH : kill(-agent, number) < 0 ? errno : 0;
  }
  if (error == 0) co_return nullptr;
  if (error == ESRCH) {
    co_return Problem(ErrorCode::WRONG_STATE, kj::str("the process has ended"));
  }
  co_return Problem(error == EPERM ? ErrorCode::DENIED : ErrorCode::INVALID_ARGUMENT,
                    kj::str("the signal was refused"))
      .from("agentctl", errnoName(error));
}

kj::Promise<uint32_t> ReaperLink::stop(uint64_t graceMs, bool force) {
  if (empty) co_return 0;
  if (linked) {
    auto paf = kj::newPromiseAndFulfiller<uint32_t>();
    stops.add(kj::mv(paf.fulfiller));
    send(ReaperRequest{ReaperRequest::STOP, 0, 0, force ? 1u : 0u, graceMs});
    auto patience = (force ? 0 : graceMs) + REAPER_PATIENCE_MS;
    kj::Promise<kj::Maybe<uint32_t>> done =
        paf.promise.then([](uint32_t n) { return kj::Maybe<uint32_t>(n); });
    auto answer = co_await done.exclusiveJoin(
        timer.afterDelay(patience * kj::MILLISECONDS).then([]() -> kj::Maybe<uint32_t> {
          return nullptr;
        }));
    KJ_IF_MAYBE (n, answer) {
      if (*n != REAPER_DIED) co_return *n;
    } else if (linked) {
      KJ_LOG(WARNING, "a reaper hangs; taking over its tree", reaper);
      kill(reaper, SIGKILL);  // While it is linked it is not reaped: the number is its own.
      co_await timer.afterDelay(ADOPTED_PAUSE);
      force = true;
    }
  }
  co_return co_await stopAdopted(graceMs, force);
}

kj::Promise<uint32_t> ReaperLink::stopAdopted(uint64_t graceMs, bool force) {
  if (!force && isAgentAlive()) {
    kill(-agent, SIGTERM);
    kill(-agent, SIGCONT);
    co_await whenEmpty.addBranch().exclusiveJoin(timer.afterDelay(graceMs * kj::MILLISECONDS));
  }
  auto deadline = timer.now() + KILL_LIMIT_MS * kj::MILLISECONDS;
  KillRound round;
  do {
    KJ_IF_MAYBE (group, cgroup) {
      if (pwrite(group->kill, "1", 1, 0) < 0) {
        // Nothing lost: the walk below reaches the same processes.
      }
    }
    if (isAgentAlive()) kill(-agent, SIGKILL);  // Also where it could not be adopted.
    round = killRound(getpid(), children.liveReapers());
    co_await timer.afterDelay(ROUND_PAUSE);
    children.reap();
  } while (round.alive > round.refused && timer.now() < deadline);
  co_return round.alive;
}

kj::Promise<uint32_t> ReaperLink::descendants() {
  if (empty) co_return 0;
  if (!linked) co_return adoptedProcesses();
  auto answer = ask(ReaperRequest{ReaperRequest::COUNT, 0, 0, 0, 0});
  int count =
      co_await answer.exclusiveJoin(timer.afterDelay(1 * kj::SECONDS).then([]() { return 0; }));
  co_return linked ? static_cast<uint32_t>(count) : 0;
}

}  // namespace capstan
