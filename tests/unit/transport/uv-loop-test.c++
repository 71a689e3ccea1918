// The guest loop, the pool and children, on real loops: kernel objects cannot be moved by hand.

#include "transport/uv-loop.h"
#include "transport/child.h"
#include "transport/loop-lag.h"
#include "transport/offload.h"

#include "support/test.h"

#include <kj/thread.h>

#include <atomic>
#include <string>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan {
namespace {

// Everything that waits here has this long; nothing waits for it to pass.
constexpr auto PATIENCE = 20 * kj::SECONDS;

struct UvTest: test::IoLoop {
  UvLoop uv{io.unixEventPort};

  template <typename T>
  T wait(kj::Promise<T> promise) {
    return timer.timeoutAfter(PATIENCE, kj::mv(promise)).wait(waitScope);
  }
};

kj::Array<kj::String> words(std::initializer_list<kj::StringPtr> list) {
  auto result = kj::heapArrayBuilder<kj::String>(list.size());
  for (auto word: list) {
    result.add(kj::heapString(word));
  }
  return result.finish();
}

struct OutPipe {
  kj::AutoCloseFd in, out;
  OutPipe() {
    int fds[2];
    KJ_SYSCALL(pipe2(fds, O_CLOEXEC));
    in = kj::AutoCloseFd(fds[0]);
    out = kj::AutoCloseFd(fds[1]);
  }
  std::string text() {
    out = nullptr;
    std::string result;
    char buffer[512];
    for (ssize_t n; (n = read(in, buffer, sizeof(buffer))) > 0;) {
      result.append(buffer, static_cast<size_t>(n));
    }
    return result;
  }
};

ChildOptions shell(kj::StringPtr script) {
  ChildOptions options;
  options.argv = words({"/bin/sh", "-c", script});
  return options;
}

kj::Own<Child> started(UvLoop& uv, ChildOptions options) {
  auto result = Child::spawn(uv, kj::mv(options));
  KJ_REQUIRE(result.is<kj::Own<Child>>(), result.get<Problem>());
  return kj::mv(result.get<kj::Own<Child>>());
}

// Signal 0 to a process that is gone and reaped fails.
bool exists(int pid) { return kill(pid, 0) == 0; }

TEST_CASE("a loop without work is not pumped") {
  UvTest test;
  test.waitScope.poll();
  auto before = test.uv.pumpCount();
  test.timer.afterDelay(20 * kj::MILLISECONDS).wait(test.waitScope);
  CHECK(test.uv.pumpCount() - before <= 2);
}

TEST_CASE("offload runs on another thread and passes values, nothing and exceptions back") {
  UvTest test;
  Offload offload(test.uv);
  auto here = pthread_self();
  auto value = offload.run<kj::String>(
      [here]() { return kj::str(pthread_equal(here, pthread_self()) ? "same" : "other"); });
  bool ran = false;
  auto nothing = offload.run<void>([&ran]() { ran = true; });
  auto failing = offload.run<int>([]() -> int { KJ_FAIL_REQUIRE("broken"); });

  CHECK(test.wait(kj::mv(value)) == "other");
  test.wait(kj::mv(nothing));
  CHECK(ran);
  CHECK_THROWS(test.wait(kj::mv(failing)));
  CHECK(offload.inProgress() == 0);
}

TEST_CASE("offload: a dropped promise detaches a running job and withdraws a queued one") {
  UvTest test;
  Offload offload(test.uv);
  // More gates than libuv's four workers, so that later ones are queued.
  std::atomic<int> begun = 0;
  std::atomic<bool> open = false;
  struct Held {
    std::atomic<int>& destroyed;
    ~Held() { ++destroyed; }
  };
  std::atomic<int> destroyed = 0;
  kj::Vector<kj::Promise<void>> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.add(offload.run<void>([&begun, &open, held = kj::heap<Held>(Held{destroyed})]() {
      ++begun;
      while (!open) {
        sched_yield();
      }
    }));
  }
  destroyed = 0;  // the temporaries above
  bool queuedRan = false;
  jobs.add(offload.run<void>([&queuedRan]() { queuedRan = true; }));
  while (begun < 4) {
    sched_yield();
  }

  jobs.clear();
  CHECK(offload.inProgress() == 5);
  CHECK(destroyed == 0);
  open = true;
  while (offload.inProgress() > 0) {
    test.timer.afterDelay(1 * kj::MILLISECONDS).wait(test.waitScope);
  }
  CHECK(destroyed == 4);
  CHECK_FALSE(queuedRan);
}

TEST_CASE("offload refuses more than its bound as overloaded") {
  UvTest test;
  Offload offload(test.uv, 3);
  kj::Vector<kj::Promise<void>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.add(offload.run<void>([]() {}));
  }
  auto type = kj::Exception::Type::FAILED;
  KJ_IF_MAYBE (exception, kj::runCatchingExceptions([&]() { offload.run<void>([]() {}); })) {
    type = exception->getType();
  }
  CHECK(type == kj::Exception::Type::OVERLOADED);
  test.wait(kj::joinPromises(jobs.releaseAsArray()));
  test.wait(offload.run<void>([]() {}));
}

TEST_CASE("offload: destroying the loop waits for running jobs and leaks nothing") {
  std::atomic<int> begun = 0, finished = 0, alive = 1;
  {
    UvTest test;
    Offload offload(test.uv);
    auto job = offload.run<void>(
        [&begun, &finished, own = kj::heap<int>(0).attach(kj::defer([&alive]() { --alive; }))]() {
          ++begun;
          sched_yield();
          ++finished;
        });
  }
  CHECK(finished == begun);  // Withdrawn before it began, or waited for.
  CHECK(alive == 0);         // What the function owns is gone with it.
}

TEST_CASE("a child gets its argv, variables, directory and descriptors, and nothing else") {
  UvTest test;
  test::TempDir dir;
  OutPipe pipe;
  kj::AutoCloseFd leak(dup(0));  // not close-on-exec
  auto options = shell("pwd; echo $A-$HOME; echo extra >&5; read x || echo eof");
  options.environment = words({"A=1", "PATH=/usr/bin:/bin"});
  options.directory = kj::heapString(dir.path());
  options.descriptors = kj::heapArray<ChildOptions::Descriptor>({{1, pipe.out}, {5, pipe.out}});
  auto child = started(test.uv, kj::mv(options));
  auto exit = test.wait(child->onExit());
  CHECK(exit.code == 0);
  CHECK(exit.signal == 0);
  CHECK(pipe.text() == kj::str(dir.path(), "\n1-\nextra\neof\n").cStr());
}

TEST_CASE("exit codes, signals and repeated waits") {
  UvTest test;
  auto coded = started(test.uv, shell("exit 7"));
  CHECK(test.wait(coded->onExit()).code == 7);
  CHECK(test.wait(coded->onExit()).code == 7);
  CHECK_FALSE(coded->running());
  CHECK_FALSE(coded->signal(SIGTERM));

  auto killed = started(test.uv, shell("kill -TERM $$; sleep 60"));
  CHECK(test.wait(killed->onExit()).signal == SIGTERM);
  auto asked = started(test.uv, shell("exec sleep 60"));
  CHECK(asked->signal(SIGINT));
  CHECK(test.wait(asked->onExit()).signal == SIGINT);
}

TEST_CASE("a program that cannot be started is a problem with its errno") {
  UvTest test;
  ChildOptions missing;
  missing.argv = words({"/nonexistent/program"});
  auto result = Child::spawn(test.uv, kj::mv(missing));
  REQUIRE(result.is<Problem>());
  CHECK(result.get<Problem>().code == ErrorCode::NOT_FOUND);
  CHECK(result.get<Problem>().upstreamCode == "ENOENT");

  ChildOptions denied;
  denied.argv = words({"/etc/passwd"});
  auto second = Child::spawn(test.uv, kj::mv(denied));
  REQUIRE(second.is<Problem>());
  CHECK(second.get<Problem>().code == ErrorCode::DENIED);
}

TEST_CASE("dropping a child kills it and its group; no zombie stays") {
  UvTest test;
  OutPipe pipe;
  auto options = shell("sleep 60 & echo $!; exec sleep 60");
  options.session = ChildOptions::Session::OWN;
  options.descriptors = kj::heapArray<ChildOptions::Descriptor>({{1, pipe.out}});
  auto child = started(test.uv, kj::mv(options));
  int pid = child->pid();
  char line[32] = {};
  REQUIRE(read(pipe.in, line, sizeof(line) - 1) > 0);
  CHECK(getsid(pid) == pid);

  child = nullptr;
  while (exists(pid)) {
    test.timer.afterDelay(1 * kj::MILLISECONDS).wait(test.waitScope);
  }
  CHECK(pipe.text() == "");  // ends only when the grandchild's copy is closed too
}

TEST_CASE("a child left alone goes on, and is reaped") {
  UvTest test;
  OutPipe pipe, hold;
  auto options = shell("read line; echo $line");
  options.onDrop = ChildOptions::OnDrop::LEAVE;
  options.descriptors = kj::heapArray<ChildOptions::Descriptor>({{0, hold.in}, {1, pipe.out}});
  auto child = started(test.uv, kj::mv(options));
  int pid = child->pid();
  child = nullptr;
  test.waitScope.poll();
  CHECK(exists(pid));
  REQUIRE(write(hold.out, "alive\n", 6) == 6);
  CHECK(pipe.text() == "alive\n");
  while (exists(pid)) {
    test.timer.afterDelay(1 * kj::MILLISECONDS).wait(test.waitScope);
  }
}

TEST_CASE("children that are killed while the loop ends leave no zombie") {
  int pid = 0;
  {
    UvTest test;
    auto child = started(test.uv, shell("exec sleep 60"));
    pid = child->pid();
  }
  CHECK_FALSE(exists(pid));
}

TEST_CASE("a child starts with default signals, though kj ignores SIGPIPE") {
  UvTest test;
  OutPipe pipe;
  auto options = shell("grep -E 'Sig(Ign|Blk)' /proc/self/status");
  options.descriptors = kj::heapArray<ChildOptions::Descriptor>({{1, pipe.out}});
  auto child = started(test.uv, kj::mv(options));
  CHECK(test.wait(child->onExit()).code == 0);
  CHECK(pipe.text() == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_CASE("the pump tells how long its turns took") {
  UvTest test;
  DurationHistogram turns;
  test.uv.setPumpObserver([&](kj::Duration took) { turns.record(took); });
  Offload offload(test.uv);
  test.wait(offload.run<void>([]() {}));
  CHECK(turns.count() > 0);
}

}  // namespace
}  // namespace capstan
