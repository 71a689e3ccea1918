// A bring-up that takes its time, goes wrong or is not wanted any more: who joins it, who waits
// how long for it, and what it leaves. On the fake, whose steps can be held.
#include "rpc/records-fixture.h"
#include "support/fake-runtimes.h"

namespace capstan::test {

namespace {

constexpr kj::Duration LONG = 300 * kj::MILLISECONDS;

Limits quick() {
  Limits limits;
  limits.deadlines.stopGrace = 200 * kj::MILLISECONDS;
  return limits;
}

EnvironmentSpec onDocker(kj::StringPtr name) {
  auto spec = task(name);
  spec.executor = kj::str("exec-local-docker");
  return spec;
}

struct World {
  LogWatch logs;
  DockerDaemon docker;
  Daemon& daemon = docker.daemon;
  Eye eye{daemon};
  FakeControls& controls = docker.controls();

  explicit World(Limits limits = quick()): docker(limits) {}

  kj::Own<EnvironmentActor> environment(kj::StringPtr name = "t-1") {
    auto ensured = daemon.wait(daemon.core().ensure(kj::str(OWNER), onDocker(name)));
    if (ensured.is<Problem>()) FAIL(kj::str(ensured.get<Problem>()).cStr());
    return kj::mv(ensured.get<Supervisor::Ensured>().environment);
  }
  void fault(kj::StringPtr step, FakeFault::How how, uint32_t times = 1) {
    FakeFault fault;
    fault.how = how;
    fault.times = times;
    controls.addFault(step, kj::mv(fault));
  }
  bool reaches(kj::StringPtr step, uint32_t times = 1) {
    return daemon.becomesTrue([&]() { return controls.count(step) >= times; });
  }
  void becomes(EnvironmentActor& environment, EnvironmentState state) {
    REQUIRE(daemon.becomesTrue([&]() { return environment.state() == state; }));
  }
  bool computeRuns(EnvironmentActor& environment) {
    KJ_IF_MAYBE (thing, docker.world().thingOf(environment.id(), fake_kind::COMPUTE)) {
      return thing->running;
    }
    return false;
  }
  kj::String identity(EnvironmentActor& environment, kj::StringPtr kind) {
    KJ_IF_MAYBE (thing, docker.world().thingOf(environment.id(), kind)) {
      return kj::str(thing->identity);
    }
    return kj::str("none");
  }
};

LaunchSpec within(kj::Duration deadline, LaunchSpec spec) {
  spec.deadline = deadline;
  return spec;
}

LaunchSpec notWaiting(LaunchSpec spec) {
  spec.wait = false;
  return spec;
}

}  // namespace

TEST_CASE("a launch joins the bring-up in progress and waits for it") {
  World world;
  world.controls.setDelay("create.compute", LONG);
  auto environment = world.environment();
  REQUIRE(world.reaches("create.compute"));
  CHECK(environment->state() == EnvironmentState::PREPARING);

  auto session = launched(world.daemon, *environment, command({"true"}));

  CHECK(environment->state() == EnvironmentState::READY);
  CHECK(world.controls.count("create.compute") == 1);
}

TEST_CASE("a launch waits for the bring-up until its deadline, and the bring-up goes on") {
  World world;
  world.controls.setDelay("create.compute", 2 * LONG);
  auto environment = world.environment();

  auto late = refused(world.daemon, *environment, within(LONG / 3, command({"true"})));

  CHECK(late.code == ErrorCode::ENVIRONMENT_PREPARING);
  CHECK(late.retry == RetryHint::SAME_REQUEST_LATER);
  CHECK(environment->state() == EnvironmentState::PREPARING);
  bringUp(world.daemon, *environment);
  CHECK(world.controls.count("create.compute") == 1);
  // It was cancelled with its caller: nothing was begun behind its back.
  CHECK(environment->status().sessions.size() == 0);
  launched(world.daemon, *environment, command({"true"}));
}

TEST_CASE("who does not wait is told that it is being prepared, at once") {
  World world;
  world.controls.setDelay("create.compute", LONG);
  auto environment = world.environment();

  auto asked = refused(world.daemon, *environment, notWaiting(command({"true"})));

  CHECK(asked.code == ErrorCode::ENVIRONMENT_PREPARING);
  CHECK(asked.retry == RetryHint::SAME_REQUEST_LATER);
  CHECK(environment->state() == EnvironmentState::PREPARING);
  bringUp(world.daemon, *environment);
  launched(world.daemon, *environment, notWaiting(command({"true"})));
}

TEST_CASE("who does not wait is told why the last bring-up failed, and gets a new one begun") {
  World world;
  world.fault("create.compute", FakeFault::How::REFUSES);
  auto environment = world.environment();
  world.becomes(*environment, EnvironmentState::FAILED);

  auto asked = refused(world.daemon, *environment, notWaiting(command({"true"})));

  CHECK(asked.message == "failed to create instance");
  bringUp(world.daemon, *environment);
}

TEST_CASE("any number of launches and execs share one bring-up") {
  World world;
  world.controls.setDelay("create.volume", LONG);
  auto environment = world.environment();
  kj::Vector<kj::Promise<Result<kj::Own<SessionActor>>>> launches;
  for (int i = 0; i < 5; ++i)
    launches.add(environment->launch(command({"true"})));
  auto exec = environment->exec(command({"true"}));

  auto results = world.daemon.wait(kj::joinPromises(launches.releaseAsArray()));

  for (auto& result: results)
    CHECK(result.is<kj::Own<SessionActor>>());
  CHECK(world.daemon.wait(kj::mv(exec)).is<kj::Own<ExecProcess>>());
  for (auto kind: fake_kind::ALL)
    CHECK(world.controls.count(kj::str("create.", kind)) == 1);
}

TEST_CASE("launches that share a failing bring-up all hear why") {
  World world;
  world.controls.setDelay("create.compute", LONG);
  world.fault("create.compute", FakeFault::How::REFUSES);
  auto environment = world.environment();
  auto one = environment->launch(command({"true"}));
  auto two = environment->launch(command({"true"}));

  auto first = world.daemon.wait(kj::mv(one));
  auto second = world.daemon.wait(kj::mv(two));

  for (auto* each: {&first, &second}) {
    REQUIRE(each->is<Problem>());
    CHECK(each->get<Problem>().message == "failed to create instance");
    CHECK(each->get<Problem>().cause == "the fake was told to fail");
  }
  CHECK(world.controls.count("create.compute") == 1);
  checkAgreement(world.eye, *environment);
}

// ---- stop

TEST_CASE("a stop during a bring-up has the last word, and leaves no compute running") {
  World world;
  world.controls.setDelay("create.compute", LONG);
  auto environment = world.environment();
  REQUIRE(world.reaches("create.compute"));
  auto launch = environment->launch(command({"true"}));

  CHECK(world.daemon.wait(environment->stop(0 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);

  CHECK(environment->state() == EnvironmentState::STOPPED);
  auto ended = world.daemon.wait(kj::mv(launch));
  REQUIRE(ended.is<Problem>());
  CHECK(environment->state() == EnvironmentState::STOPPED);
  CHECK(environment->status().sessions.size() == 0);
  REQUIRE(world.reaches("create.helper"));
  CHECK(world.daemon.becomesTrue([&]() { return !world.computeRuns(*environment); }));
  checkAgreement(world.eye, *environment);
  // Nothing was removed (D7), and the next launch brings the same place up.
  auto place = world.identity(*environment, fake_kind::COMPUTE);
  launched(world.daemon, *environment, command({"true"}));
  CHECK(world.identity(*environment, fake_kind::COMPUTE) == place);
  CHECK(world.computeRuns(*environment));
}

TEST_CASE("a launch after a stop gets the environment up, though the bring-up before goes on") {
  World world;
  world.controls.setDelay("create.compute", LONG);
  auto environment = world.environment();
  REQUIRE(world.reaches("create.compute"));
  world.daemon.wait(environment->stop(0 * kj::SECONDS, StopMode::GRACEFUL));

  launched(world.daemon, *environment, command({"true"}));

  CHECK(environment->state() == EnvironmentState::READY);
  CHECK(world.computeRuns(*environment));
  CHECK(world.controls.count("create.compute") == 1);
}

TEST_CASE("a launch that comes while a late compute is stopped gets it up again") {
  World world;
  world.controls.setDelay("create.compute", LONG);
  world.controls.setDelay("stop.compute", LONG);
  auto environment = world.environment();
  REQUIRE(world.reaches("create.compute"));
  world.daemon.wait(environment->stop(0 * kj::SECONDS, StopMode::GRACEFUL));
  REQUIRE(world.reaches("stop.compute"));

  launched(world.daemon, *environment, command({"true"}));

  CHECK(environment->state() == EnvironmentState::READY);
  CHECK(world.computeRuns(*environment));
}

// ---- destroy

TEST_CASE("a destroy during a bring-up removes what that made") {
  World world;
  world.controls.setDelay("create.compute", LONG / 3);
  auto environment = world.environment();
  REQUIRE(world.reaches("create.compute"));
  auto launch = environment->launch(command({"true"}));

  auto report = destroy(world.daemon, *environment);

  CHECK(report.leftovers.size() == 0);
  CHECK(environment->isGone());
  CHECK(world.docker.world().things().size() == 0);
  CHECK(world.eye.everything() == "||||");
  auto ended = world.daemon.wait(kj::mv(launch));
  REQUIRE(ended.is<Problem>());
  CHECK(ended.get<Problem>().code == ErrorCode::NOT_FOUND);
}

TEST_CASE("a launch that waits for an interrupted bring-up makes nothing of what is removed") {
  World world;
  world.controls.setDelay("create.compute", LONG);
  auto environment = world.environment();
  REQUIRE(world.reaches("create.compute"));
  world.daemon.wait(environment->stop(0 * kj::SECONDS, StopMode::GRACEFUL));
  auto launch = environment->launch(command({"true"}));

  CHECK(destroy(world.daemon, *environment).leftovers.size() == 0);

  CHECK(environment->isGone());
  auto ended = world.daemon.wait(kj::mv(launch));
  REQUIRE(ended.is<Problem>());
  CHECK(world.docker.world().things().size() == 0);
  CHECK(world.eye.everything() == "||||");
}

TEST_CASE("a bring-up that never ends is given up for a destroy, at whichever step") {
  for (auto kind: fake_kind::ALL) {
    for (auto how: {FakeFault::How::HANGS, FakeFault::How::HANGS_AFTER}) {
      INFO(kind.cStr() << (how == FakeFault::How::HANGS ? " before" : " after"));
      World world;
      auto step = kj::str("create.", kind);
      world.fault(step, how);
      auto environment = world.environment();
      REQUIRE(world.reaches(step));

      auto report = destroy(world.daemon, *environment);

      CHECK(report.leftovers.size() == 0);
      CHECK(world.docker.world().things().size() == 0);
      CHECK(world.eye.everything() == "||||");
    }
  }
}

TEST_CASE("a bring-up that never ends is given up at its deadline, and a retry finishes it") {
  auto limits = quick();
  limits.deadlines.launch = 3 * kj::SECONDS;  // A sanitised helper comes up in less.
  World world(limits);
  world.fault("create.compute", FakeFault::How::HANGS_AFTER);
  auto environment = world.environment();

  world.becomes(*environment, EnvironmentState::FAILED);

  auto failure = KJ_ASSERT_NONNULL(environment->status().lastError).clone();
  CHECK(failure.code == ErrorCode::TIMEOUT);
  CHECK(failure.message == "failed to create instance");
  auto compute = world.identity(*environment, fake_kind::COMPUTE);
  launched(world.daemon, *environment, command({"true"}));
  CHECK(world.identity(*environment, fake_kind::COMPUTE) == compute);
  CHECK(world.eye.inventory() == "volume network compute helper");
}

TEST_CASE("a bring-up that never ends holds up no end of the daemon") {
  World world;
  world.fault("create.compute", FakeFault::How::HANGS_AFTER);
  auto environment = world.environment();
  REQUIRE(world.daemon.becomesTrue(
      [&]() { return world.identity(*environment, fake_kind::COMPUTE) != "none"; }));
  auto compute = world.identity(*environment, fake_kind::COMPUTE);
  environment = nullptr;

  world.daemon.restart();

  environment = recovered(world.daemon, "t-1");
  CHECK(environment->state() == EnvironmentState::FAILED);
  launched(world.daemon, *environment, command({"true"}));
  CHECK(world.identity(*environment, fake_kind::COMPUTE) == compute);
}

TEST_CASE("the daemon ends in order while a destroy waits for a bring-up") {
  World world;
  world.fault("create.compute", FakeFault::How::HANGS_AFTER);
  auto environment = world.environment();
  REQUIRE(world.reaches("create.compute"));
  auto removing = world.daemon.core().cleanUp(kj::addRef(*environment), CleanupScope::ALL);
  REQUIRE(world.daemon.becomesTrue([&]() { return world.eye.environments() == "cleaning"; }));
  environment = nullptr;

  world.daemon.wait(world.daemon.core().close());
  removing = nullptr;
  world.daemon.restart();

  // Begun is finished.
  CHECK(world.daemon.becomesTrue([&]() { return world.eye.environments() == ""; }));
  CHECK(world.docker.world().things().size() == 0);
}

// ---- failures

TEST_CASE("a creation that fails and cannot be taken back is gone on with by the next one") {
  World world;
  world.fault("create.helper", FakeFault::How::REFUSES);
  world.fault("remove.compute", FakeFault::How::REFUSES);
  world.fault("remove.volume", FakeFault::How::THROWS);
  auto environment = world.environment();
  world.becomes(*environment, EnvironmentState::FAILED);
  CHECK(world.eye.inventory() == "volume compute");
  auto volume = world.identity(*environment, fake_kind::VOLUME);
  auto compute = world.identity(*environment, fake_kind::COMPUTE);
  checkAgreement(world.eye, *environment);

  launched(world.daemon, *environment, command({"true"}));

  CHECK(world.identity(*environment, fake_kind::VOLUME) == volume);
  CHECK(world.identity(*environment, fake_kind::COMPUTE) == compute);
  CHECK(world.eye.inventory() == "volume compute network helper");
  checkAgreement(world.eye, *environment);
}

TEST_CASE("a creation that is taken back leaves nothing noted, and can be repeated") {
  World world;
  for (auto how: {FakeFault::How::REFUSES, FakeFault::How::THROWS, FakeFault::How::FAILS_AFTER}) {
    INFO(static_cast<int>(how));
    world.fault("create.helper", how);
    auto environment = world.environment();
    world.becomes(*environment, EnvironmentState::FAILED);
    if (how != FakeFault::How::THROWS) {
      CHECK(world.eye.inventory() == "");
      CHECK(world.docker.world().things().size() == 0);
    }
    launched(world.daemon, *environment, command({"true"}));
    CHECK(destroy(world.daemon, *environment).leftovers.size() == 0);
    CHECK(world.docker.world().things().size() == 0);
  }
}

TEST_CASE(
    "what a clean-up leaves is named, the environment stays failed, and a second one ends it") {
  World world;
  auto environment = world.environment();
  launched(world.daemon, *environment, command({"true"}));
  world.fault("remove.compute", FakeFault::How::REFUSES);
  world.fault("remove.volume", FakeFault::How::LIES);

  auto report = destroy(world.daemon, *environment);

  REQUIRE(report.leftovers.size() == 2);
  auto all = kj::strArray(report.leftovers, "\n");
  CHECK(report.leftovers[0].startsWith(kj::str("compute capstan-", environment->id())));
  CHECK(std::string_view(all.cStr()).find("the fake was told to fail") != std::string_view::npos);
  CHECK(std::string_view(all.cStr()).find("its removal was reported, and it is there") !=
        std::string_view::npos);
  CHECK(environment->state() == EnvironmentState::FAILED);
  CHECK_FALSE(environment->isGone());
  CHECK(world.eye.inventory() == "volume compute");
  CHECK(KJ_ASSERT_NONNULL(environment->status().lastError).message ==
        "the clean-up is not complete");
  CHECK(world.daemon.core().find(OWNER, "t-1").is<kj::Own<EnvironmentActor>>());

  CHECK(destroy(world.daemon, *environment).leftovers.size() == 0);
  CHECK(environment->isGone());
  CHECK(world.docker.world().things().size() == 0);
  CHECK(world.eye.everything() == "||||");
}

TEST_CASE("a clean-up whose runtime throws is a leftover like any other") {
  World world;
  auto environment = world.environment();
  bringUp(world.daemon, *environment);
  world.fault("remove.network", FakeFault::How::THROWS);

  auto report = destroy(world.daemon, *environment);

  REQUIRE(report.leftovers.size() == 1);
  CHECK(environment->state() == EnvironmentState::FAILED);
  CHECK(destroy(world.daemon, *environment).leftovers.size() == 0);
  CHECK(environment->isGone());
}

TEST_CASE("what others put in the place of ours is neither adopted nor removed") {
  World world;
  auto environment = world.environment();
  bringUp(world.daemon, *environment);
  auto name = FakeWorld::nameOf(environment->id(), fake_kind::COMPUTE);
  world.docker.world().replace(fake_kind::COMPUTE, name);

  auto report = destroy(world.daemon, *environment);

  REQUIRE(report.leftovers.size() == 1);
  CHECK(world.docker.world().things().size() == 1);
  world.docker.world().vanish(fake_kind::COMPUTE, name);
  CHECK(destroy(world.daemon, *environment).leftovers.size() == 0);
}

}  // namespace capstan::test
