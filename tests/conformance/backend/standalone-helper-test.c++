// Which helper serves which place, when helpers die, cannot be opened, or are slow to start.

#include "backends/standalone/standalone-backend.h"
#include "conformance/backend/memory-book.h"
#include "conformance/backend/memory-log.h"
#include "conformance/backend/open-link.h"
#include "domain/takeover.h"
#include "support/local-helper.h"
#include "support/test.h"

#include <catch2/generators/catch_generators.hpp>
#include <kj/debug.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

namespace capstan::test {

namespace {

constexpr kj::Duration LIMIT = 30 * kj::SECONDS;

HelperFiles builtFiles() {
  auto program = builtAgentctl();
  auto folder = std::filesystem::path(program.cStr()).parent_path();
  return HelperFiles::ofInstallation(kj::StringPtr(folder.c_str()), nullptr, "/nowhere/test");
}

// A book in which the note of a new helper can be held up.
class SlowBook final: public MemoryBook {
public:
  kj::Promise<Result<kj::Maybe<HelperEntry>>> current() override {
    ++asked;
    return MemoryBook::current();
  }
  kj::Promise<Outcome> add(HelperEntry entry) override {
    auto outcome = co_await MemoryBook::add(kj::mv(entry));
    KJ_IF_MAYBE (promise, held) {
      co_await kj::mv(*promise);
    }
    co_return kj::mv(outcome);
  }

  kj::Maybe<kj::Promise<void>> held;
  size_t asked = 0;
};

struct Place {
  kj::String id;
  MemoryLog log;
  StepList steps;

  explicit Place(kj::StringPtr id): id(kj::str(id)) {}
  PlaceRecord record() const {
    PlaceRecord result;
    result.environmentId = kj::str(id);
    result.inventory = log.clone();
    return result;
  }
};

// A daemon's backend on a state that outlives it. All helpers are killed at the end.
struct World {
  LogWatch logs;
  TempDir state, runtime;
  IoLoop loop;
  UvLoop uv{loop.io.unixEventPort};
  Offload offload{uv};
  SystemEntropy entropy;
  HelperFiles files = builtFiles();
  SlowBook book;
  kj::Vector<pid_t> helpers;
  kj::Own<StandaloneBackend> backend;

  World() {
    KJ_SYSCALL(mkdir((state / "environments").cStr(), 0700));
    restart();
  }
  ~World() noexcept(false) {
    backend = nullptr;
    noteHelpers();
    for (auto pid: helpers)
      ::kill(pid, SIGKILL);
  }

  void restart() {
    noteHelpers();
    backend = nullptr;
    StandaloneOptions options;
    options.stateDirectory = kj::str(state.path());
    options.runtimeDirectory = kj::str(runtime.path());
    options.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")});
    options.stopGrace = 5 * kj::SECONDS;
    backend =
        kj::heap<StandaloneBackend>(loop.io, uv, offload, files, entropy, book, kj::mv(options));
  }
  // Of the current helper.
  pid_t helperPid() { return static_cast<pid_t>(book.entries().back().pid); }
  void killHelper(pid_t pid) {
    ::kill(pid, SIGKILL);
    // Until it is reaped, by the loop if it was started here.
    wait(gone(pid));
  }

  template <typename T>
  T wait(kj::Promise<T> promise) {
    return loop.timer.timeoutAfter(LIMIT, kj::mv(promise)).wait(loop.waitScope);
  }
  kj::Promise<Result<kj::Own<Attachment>>> begin(Place& place) {
    CreateRequest request;
    request.place = place.record();
    return backend->createInstance(kj::mv(request), place.steps, place.log);
  }
  Result<kj::Own<Attachment>> create(Place& place) { return wait(begin(place)); }
  kj::Own<Attachment> created(Place& place) {
    auto result = create(place);
    KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
      FAIL(kj::str(*problem).cStr());
    }
    return kj::mv(result.get<kj::Own<Attachment>>());
  }
  kj::Promise<Recovered> beginRecover(const Place& place) {
    auto places = kj::heapArrayBuilder<PlaceRecord>(1);
    places.add(place.record());
    auto all = co_await backend->recoverInstances(places.finish());
    KJ_REQUIRE(all.size() == 1);
    co_return kj::mv(all[0]);
  }
  Recovered recover(const Place& place) { return wait(beginRecover(place)); }

private:
  void noteHelpers() {
    for (auto& each: book.entries()) {
      if (each.pid > 0) helpers.add(static_cast<pid_t>(each.pid));
    }
  }
  kj::Promise<void> gone(pid_t pid) {
    while (::kill(pid, 0) == 0)
      co_await loop.timer.afterDelay(10 * kj::MILLISECONDS);
  }
};

bool holds(kj::StringPtr text, kj::StringPtr part) {
  return strstr(text.cStr(), part.cStr()) != nullptr;
}

}  // namespace

TEST_CASE("standalone: a dead helper is gone, also when its credential cannot be opened") {
  World world;
  Place place("env-a");
  world.created(place);
  world.killHelper(world.helperPid());
  world.book.lock(true);
  SECTION("for the daemon that started it") {}
  SECTION("for the next daemon") { world.restart(); }
  CHECK(world.recover(place).kind == Recovered::Kind::GONE);
  CHECK(world.book.entries().size() == 0);
  world.book.lock(false);
  world.created(place);
  CHECK(world.recover(place).kind == Recovered::Kind::ATTACHED);
}

TEST_CASE("standalone: what runs under a helper that cannot be opened is not started again") {
  World world;
  Place old("env-old"), other("env-other");
  world.created(old);
  auto pid = world.helperPid();
  world.book.lock(true);
  world.restart();
  world.logs.expect("cannot be taken over");

  auto check = [&](kj::Maybe<Problem>& problem) {
    KJ_IF_MAYBE (why, problem) {
      auto text = kj::str(*why);
      CHECK(holds(text, kj::str("process ", pid)));
    } else {
      FAIL_CHECK("no reason");
    }
  };
  auto unknown = world.recover(old);
  CHECK(unknown.kind == Recovered::Kind::UNKNOWN);
  check(unknown.why);
  CHECK(KJ_ASSERT_NONNULL(unknown.why).upstreamCode == takeover::CREDENTIAL_UNAVAILABLE);
  CHECK(holds(kj::str(KJ_ASSERT_NONNULL(unknown.why)), "secret.key"));

  // Others get a new helper.
  world.created(other);
  CHECK(world.helperPid() != pid);
  for (bool restarted: {false, true}) {
    INFO("restarted: " << restarted);
    if (restarted) {
      world.book.lock(false);
      world.restart();
    }
    auto refused = world.create(old);
    REQUIRE(refused.is<Problem>());
    CHECK(holds(kj::str(refused.get<Problem>()), kj::str("process ", pid)));
    auto still = world.recover(old);
    CHECK(still.kind == Recovered::Kind::UNKNOWN);
    check(still.why);
    CHECK(world.recover(other).kind == Recovered::Kind::ATTACHED);
  }

  world.killHelper(pid);
  CHECK(world.recover(old).kind == Recovered::Kind::GONE);
  CHECK(world.recover(other).kind == Recovered::Kind::ATTACHED);
  CHECK(world.book.entries().size() == 1);
  CHECK(world.created(old)->helperKey() == world.created(other)->helperKey());
  CHECK(world.recover(old).kind == Recovered::Kind::ATTACHED);
}

TEST_CASE("standalone: a place whose helper died is not the next one's") {
  World world;
  Place first("env-first"), second("env-second");
  world.created(first);
  world.killHelper(world.helperPid());
  world.created(second);
  CHECK(world.recover(first).kind == Recovered::Kind::GONE);
  CHECK(world.recover(second).kind == Recovered::Kind::ATTACHED);
  world.restart();
  CHECK(world.recover(first).kind == Recovered::Kind::GONE);
  CHECK(world.recover(second).kind == Recovered::Kind::ATTACHED);
}

TEST_CASE("standalone: recovery waits for a helper that is being started") {
  World world;
  Place place("env-slow");
  auto gate = kj::newPromiseAndFulfiller<void>();
  world.book.held = kj::mv(gate.promise);
  auto creating = world.begin(place).eagerlyEvaluate(nullptr);
  while (world.book.entries().size() == 0) {
    if (world.loop.waitScope.poll(1) == 0) world.loop.io.unixEventPort.wait();
  }
  // It is written down, and no process is there.
  auto asked = world.book.asked;
  auto recovering = world.beginRecover(place).eagerlyEvaluate(nullptr);
  CHECK_FALSE(recovering.poll(world.loop.waitScope));
  CHECK(world.book.asked == asked);
  gate.fulfiller->fulfill();
  CHECK(world.wait(kj::mv(creating)).is<kj::Own<Attachment>>());
  CHECK(world.wait(kj::mv(recovering)).kind == Recovered::Kind::ATTACHED);
  CHECK(world.book.entries().size() == 1);
  CHECK(world.helperPid() > 0);
}

TEST_CASE("standalone: a dead helper is gone when its agents are") {
  World world;
  Place place("env-agent");
  auto attachment = world.created(place);
  auto opened = world.wait(openLink(world.loop.timer, *attachment));
  REQUIRE(opened.is<kj::Own<AgentLink>>());
  auto link = kj::mv(opened.get<kj::Own<AgentLink>>());
  InstanceSpec spec;
  spec.id = kj::str("r-1");
  spec.directory = attachment->runDirectory("r-1");
  spec.stopGrace = 1 * kj::SECONDS;
  auto made = world.wait(link->create(kj::mv(spec)));
  REQUIRE(made.is<kj::Own<AgentInstance>>());
  auto instance = kj::mv(made.get<kj::Own<AgentInstance>>());
  InstanceConfig config;
  config.command = kj::arr(kj::str("/bin/sh"), kj::str("-c"),
                           kj::str("trap '' TERM; echo > file; while :; do sleep 1; done"));
  config.workingDirectory = kj::str(attachment->workspace());
  config.variables = kj::arr(InstanceVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")});
  REQUIRE(world.wait(instance->configure(kj::mv(config))) == nullptr);
  auto started = world.wait(instance->start());
  REQUIRE(started.is<int>());
  pid_t agent = started.get<int>();
  // It takes no notice of TERM from now on.
  auto file = kj::str(attachment->workspace(), "/file");
  while (!std::filesystem::exists(file.cStr()))
    world.wait(world.loop.timer.afterDelay(10 * kj::MILLISECONDS).then([]() { return 0; }));

  bool next = GENERATE(false, true);
  world.killHelper(world.helperPid());
  CHECK(::kill(agent, 0) == 0);
  if (next) {
    // A new start waits as well.
    world.created(place);
  } else {
    world.restart();
    CHECK(world.recover(place).kind == Recovered::Kind::GONE);
  }
  CHECK(::kill(agent, 0) < 0);
  CHECK(errno == ESRCH);
}

}  // namespace capstan::test
