// The way to a helper is replaced while it serves: staged, made durable, committed or aborted. On
// the fake, whose steps can be held and fail.
#include "rpc/records-fixture.h"
#include "support/fake-runtimes.h"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <string>

namespace capstan::test {

namespace {

Limits quick() {
  Limits limits;
  limits.deadlines.stopGrace = 200 * kj::MILLISECONDS;
  limits.deadlines.helperStart = 2 * kj::SECONDS;
  limits.deadlines.control = 2 * kj::SECONDS;
  return limits;
}

// Null, or what went wrong.
kj::String told(const Outcome& outcome) {
  KJ_IF_MAYBE (problem, outcome) {
    return kj::str(*problem);
  }
  return kj::String();
}

class Reader final: public OutputReceiver {
public:
  explicit Reader(std::string& text): text(text) {}
  kj::Promise<void> write(uint64_t, OutputStream, kj::ArrayPtr<const kj::byte> bytes) override {
    text.append(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
    return kj::READY_NOW;
  }
  kj::Promise<void> gap(uint64_t, uint64_t) override { return kj::READY_NOW; }
  kj::Promise<void> end(uint64_t) override { return kj::READY_NOW; }

private:
  std::string& text;
};

// An environment that is up, with an agent that echoes.
struct World {
  LogWatch logs;
  DockerDaemon docker{quick(), LocalHelpers::Sharing::ONE_EACH};
  Daemon& daemon = docker.daemon;
  Eye eye{daemon};
  FakeControls& controls = docker.controls();
  kj::Own<EnvironmentActor> environment = make();
  kj::Own<SessionActor> session = launched(daemon, *environment, command({"cat"}));
  int pid = session->status().pid;

  kj::Own<EnvironmentActor> make() {
    auto spec = task("t");
    spec.executor = kj::str("exec-local-docker");
    auto ensured = daemon.wait(daemon.core().ensure(kj::str(OWNER), kj::mv(spec)));
    if (ensured.is<Problem>()) FAIL(kj::str(ensured.get<Problem>()).cStr());
    return kj::mv(ensured.get<Supervisor::Ensured>().environment);
  }
  Outcome refresh() { return daemon.wait(environment->refresh()); }
  void refreshes() { CHECK(told(refresh()) == ""); }
  void fault(kj::StringPtr step, FakeFault::How how) {
    FakeFault fault;
    fault.how = how;
    controls.addFault(step, kj::mv(fault));
  }
  kj::Own<ProcessActor> process() {
    auto found = session->process();
    if (found.is<Problem>()) FAIL(kj::str(found.get<Problem>()).cStr());
    return kj::mv(found.get<kj::Own<ProcessActor>>());
  }
  // A word goes in and all that ever came out is read, each over a connection of its own.
  std::string echo(kj::StringPtr word) {
    auto stdin = daemon.wait(process()->openStdin(TakeOver::YES));
    if (stdin.is<Problem>()) FAIL(kj::str(stdin.get<Problem>()).cStr());
    daemon.wait(stdin.get<kj::Own<StdinWriter>>()->write(word.asBytes()));
    std::string text;
    OutputRequest all;
    all.follow = true;
    auto reading = daemon.wait(process()->output(all, kj::heap<Reader>(text)));
    if (reading.is<Problem>()) FAIL(kj::str(reading.get<Problem>()).cStr());
    CHECK(daemon.becomesTrue([&]() { return text.find(word.cStr()) != std::string::npos; }));
    return text;
  }
  // The one link of the environment's helper; links that are let go of are no longer there.
  kj::Own<AgentLink> link() {
    auto all = daemon.core().helperLinks().live();
    REQUIRE(all.size() == 1);
    return kj::mv(all[0]);
  }
  kj::String helperDetails() {
    for (auto& item: environment->place().inventory) {
      if (item.kind != fake_kind::HELPER) continue;
      return kj::strArray(KJ_MAP(each, item.details) { return kj::str(each.key); }, " ");
    }
    return kj::str("no helper");
  }
  void checkUnchanged() {
    CHECK(environment->state() == EnvironmentState::READY);
    CHECK(session->state() == SessionState::RUNNING);
    CHECK(session->status().pid == pid);
    CHECK(helperDetails() == "nonce");
    CHECK(echo("still here\n").find("still here") != std::string::npos);
  }
};

}  // namespace

TEST_CASE("a refresh replaces the connection; sessions and their output go on over the new one") {
  World world;
  CHECK(world.echo("one\n") == "one\n");
  for (int i = 0; i < 3; ++i) {
    auto before = world.link();
    world.refreshes();
    CHECK(world.daemon.becomesTrue([&]() { return before->isLost(); }));
    CHECK_FALSE(world.link()->isLost());
    CHECK(world.environment->state() == EnvironmentState::READY);
    CHECK(world.session->state() == SessionState::RUNNING);
    CHECK(world.session->status().pid == world.pid);
  }
  CHECK(world.echo("two\n") == "one\ntwo\n");
  CHECK(world.controls.count("commit") == 3);
  launched(world.daemon, *world.environment, command({"true"}));
  CHECK(told(world.daemon.wait(world.environment->stop(1 * kj::SECONDS, StopMode::FORCED))) == "");
  CHECK(kill(world.pid, 0) < 0);
  checkAgreement(world.eye, *world.environment);
}

TEST_CASE("a refresh to another process settles what ran in the old one, once") {
  World world;
  world.docker.world().refreshRestarts = true;
  world.refreshes();
  CHECK(world.environment->state() == EnvironmentState::READY);
  CHECK(world.session->state() == SessionState::LOST);
  CHECK(world.eye.runs() == "ended:lost");
  // What its inventory says of the helper was written down with it.
  CHECK(world.helperDetails() == "nonce process");
  auto next = launched(world.daemon, *world.environment, command({"true"}));
  CHECK(world.daemon.wait(next->wait()).is<ExitStatus>());
  CHECK(world.eye.runs() == "ended:lost ended:exited");
  checkAgreement(world.eye, *world.environment);
}

TEST_CASE("a refresh whose token cannot be made durable is aborted, and the old connection stays") {
  World world;
  world.docker.world().refreshRestarts = GENERATE(false, true);
  auto before = world.link();
  setReadOnly(world.daemon, true);
  CHECK(world.refresh() != nullptr);
  setReadOnly(world.daemon, false);
  CHECK(world.controls.count("commit") == 0);
  CHECK(world.link().get() == before.get());
  world.checkUnchanged();
  world.docker.world().refreshRestarts = false;
  world.refreshes();
  world.checkUnchanged();
}

TEST_CASE("a refresh that is refused on its way changes nothing") {
  World world;
  world.docker.world().refreshRestarts = GENERATE(false, true);
  auto before = world.link();
  SECTION("staging fails") { world.fault("stage", FakeFault::How::REFUSES); }
  SECTION("staging throws") { world.fault("stage", FakeFault::How::THROWS); }
  SECTION("staging takes too long") { world.fault("stage", FakeFault::How::HANGS); }
  SECTION("the commit is refused") { world.fault("commit", FakeFault::How::REFUSES); }
  SECTION("the commit throws") { world.fault("commit", FakeFault::How::THROWS); }
  SECTION("the commit takes too long") { world.fault("commit", FakeFault::How::HANGS); }
  CHECK(world.refresh() != nullptr);
  CHECK(world.link().get() == before.get());
  world.checkUnchanged();
}

TEST_CASE("a commit whose answer is lost has happened") {
  World world;
  auto how = GENERATE(FakeFault::How::FAILS_AFTER, FakeFault::How::LOSES_ANSWER,
                      FakeFault::How::HANGS_AFTER);
  world.fault("commit", how);
  auto before = world.link();
  world.refresh();
  CHECK(world.daemon.becomesTrue([&]() { return before->isLost(); }));
  REQUIRE(world.daemon.becomesTrue(
      [&]() { return world.environment->state() == EnvironmentState::READY; }));
  world.checkUnchanged();
}

TEST_CASE("a refresh is refused when the connection was lost meanwhile") {
  World world;
  world.controls.setDelay("stage", 300 * kj::MILLISECONDS);
  auto refreshing = world.environment->refresh();
  REQUIRE(world.daemon.becomesTrue([&]() { return world.controls.count("stage") == 1; }));
  world.docker.world().cut(world.environment->id());
  auto outcome = world.daemon.wait(kj::mv(refreshing));
  REQUIRE(outcome != nullptr);
  CHECK(world.controls.count("commit") == 0);
  // The recovery that the loss began finds everything.
  REQUIRE(world.daemon.becomesTrue(
      [&]() { return world.environment->state() == EnvironmentState::READY; }));
  world.checkUnchanged();
}

TEST_CASE("a refresh without a place, or on a runtime that has none, is refused") {
  World world;
  CHECK(told(world.daemon.wait(world.environment->stop(1 * kj::SECONDS, StopMode::FORCED))) == "");
  CHECK(KJ_ASSERT_NONNULL(world.refresh()).code == ErrorCode::WRONG_STATE);
  CHECK(world.controls.count("stage") == 0);
  auto local = environmentOf(world.daemon, "here");
  bringUp(world.daemon, *local);
  auto outcome = world.daemon.wait(local->refresh());
  CHECK(KJ_ASSERT_NONNULL(outcome).code == ErrorCode::UNSUPPORTED);
}

TEST_CASE("a refresh takes turns with stops, and goes on when its caller leaves") {
  World world;
  world.controls.setDelay("commit", 200 * kj::MILLISECONDS);
  SECTION("a stop waits for it") {
    auto refreshing = world.environment->refresh();
    auto stopping = world.environment->stop(1 * kj::SECONDS, StopMode::FORCED);
    CHECK(told(world.daemon.wait(kj::mv(refreshing))) == "");
    CHECK(told(world.daemon.wait(kj::mv(stopping))) == "");
    CHECK(kill(world.pid, 0) < 0);
    CHECK(world.environment->state() == EnvironmentState::STOPPED);
  }
  SECTION("two of them follow each other") {
    auto first = world.environment->refresh();
    auto second = world.environment->refresh();
    CHECK(told(world.daemon.wait(kj::mv(first))) == "");
    CHECK(told(world.daemon.wait(kj::mv(second))) == "");
    world.checkUnchanged();
  }
  SECTION("its caller leaves") {
    {
      auto refreshing = world.environment->refresh();
      CHECK_FALSE(refreshing.poll(world.daemon.loop.waitScope));
    }
    REQUIRE(world.daemon.becomesTrue([&]() { return world.controls.count("commit") == 1; }));
    // Waits for its end.
    CHECK(told(world.refresh()) == "");
    CHECK(world.controls.count("commit") == 2);
    world.checkUnchanged();
  }
}

}  // namespace capstan::test
