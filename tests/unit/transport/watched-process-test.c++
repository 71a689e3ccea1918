#include "transport/watched-process.h"

#include "support/test.h"

#include <kj/debug.h>

#include <csignal>
#include <cstring>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan::test {

namespace {

// A child that does nothing until it is killed, and is reaped at the end at the latest.
class Sleeper {
public:
  Sleeper(): pid(fork()) {
    KJ_REQUIRE(pid >= 0);
    if (pid > 0) return;
    for (;;)
      pause();
  }
  ~Sleeper() noexcept(false) { end(); }
  KJ_DISALLOW_COPY_AND_MOVE(Sleeper);

  void becomeZombie() {
    ::kill(pid, SIGKILL);
    siginfo_t info;
    KJ_SYSCALL(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT));
  }
  void end() {
    if (ended) return;
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    ended = true;
  }

  const pid_t pid;

private:
  bool ended = false;
};

// Lets this process open `more` descriptors, counted from the lowest free one.
class FewDescriptors {
public:
  explicit FewDescriptors(rlim_t more) {
    KJ_SYSCALL(getrlimit(RLIMIT_NOFILE, &before));
    int lowest = dup(0);
    KJ_REQUIRE(lowest >= 0);
    close(lowest);
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(lowest) + more;
    KJ_SYSCALL(setrlimit(RLIMIT_NOFILE, &few));
  }
  ~FewDescriptors() noexcept(false) { setrlimit(RLIMIT_NOFILE, &before); }
  KJ_DISALLOW_COPY_AND_MOVE(FewDescriptors);

private:
  rlimit before;
};

ProcessName nameOf(pid_t pid) {
  auto named = nameOfProcess(pid);
  REQUIRE(named.is<kj::Maybe<ProcessName>>());
  return kj::mv(KJ_ASSERT_NONNULL(named.get<kj::Maybe<ProcessName>>()));
}

// Whether it is certain that no such process runs.
bool isGone(IoLoop& loop, const ProcessName& name) {
  auto found = WatchedProcess::find(loop.io.unixEventPort, name);
  REQUIRE(found.is<kj::Maybe<kj::Own<WatchedProcess>>>());
  return found.get<kj::Maybe<kj::Own<WatchedProcess>>>() == nullptr;
}

}  // namespace

TEST_CASE("a process is found by its whole name only") {
  IoLoop loop;
  Sleeper sleeper;
  auto name = nameOf(sleeper.pid);
  CHECK_FALSE(isGone(loop, name));
  auto later = name.clone();
  ++later.startTicks;
  CHECK(isGone(loop, later));
  auto rebooted = name.clone();
  rebooted.bootId = kj::str("another");
  CHECK(isGone(loop, rebooted));
}

TEST_CASE("a zombie is gone, and so is what was reaped") {
  IoLoop loop;
  Sleeper sleeper;
  auto name = nameOf(sleeper.pid);
  sleeper.becomeZombie();
  CHECK(isGone(loop, name));
  auto zombie = nameOfProcess(sleeper.pid);
  REQUIRE(zombie.is<kj::Maybe<ProcessName>>());
  CHECK(zombie.get<kj::Maybe<ProcessName>>() == nullptr);
  sleeper.end();
  CHECK(isGone(loop, name));
}

TEST_CASE("a process of which nothing can be read is not called gone") {
  IoLoop loop;
  Sleeper sleeper;
  auto name = nameOf(sleeper.pid);
  int refusals = 0;
  bool found = false;
  for (rlim_t more = 0; !found; ++more) {
    INFO("descriptors: " << more);
    REQUIRE(more < 64);
    kj::Maybe<Result<kj::Maybe<kj::Own<WatchedProcess>>>> answer;
    kj::Maybe<Result<kj::Maybe<ProcessName>>> named;
    {
      FewDescriptors few(more);
      answer = WatchedProcess::find(loop.io.unixEventPort, name);
      named = nameOfProcess(sleeper.pid);
    }
    auto& result = KJ_ASSERT_NONNULL(answer);
    if (result.is<Problem>()) {
      ++refusals;
    } else {
      found = result.get<kj::Maybe<kj::Own<WatchedProcess>>>() != nullptr;
      CHECK(found);
    }
    if (more == 0) CHECK(KJ_ASSERT_NONNULL(named).is<Problem>());
  }
  // Without any, and with one for the process but none to read of it.
  CHECK(refusals >= 2);
}

}  // namespace capstan::test
