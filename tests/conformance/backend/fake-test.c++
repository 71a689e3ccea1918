// What the fake alone can do: how its steps go wrong, its untruths, its losses, its events.

#include "backends/fake/fake-backend.h"
#include "conformance/backend/memory-log.h"
#include "conformance/backend/open-link.h"
#include "support/local-helper.h"
#include "support/test.h"

#include <catch2/generators/catch_generators.hpp>

namespace capstan::test {

namespace {

using How = FakeFault::How;

struct Fixture {
  LogWatch logs;
  Loop loop;
  SystemEntropy entropy;
  PipeHelperLauncher helpers;
  FakeWorld world;
  FakeBackend backend{loop.timer, entropy, world, helpers};
  MemoryLog log;
  StepList steps;

  PlaceRecord place(MemoryLog& of, kj::StringPtr id = "env-1") {
    PlaceRecord record;
    record.environmentId = kj::str(id);
    record.inventory = of.clone();
    return record;
  }
  kj::Promise<Result<kj::Own<Attachment>>> create(MemoryLog& with, kj::StringPtr id = "env-1") {
    CreateRequest request;
    request.place = place(with, id);
    return backend.createInstance(kj::mv(request), steps, with);
  }
  kj::Promise<Result<kj::Own<Attachment>>> create() { return create(log); }
  void made() { REQUIRE(create().wait(loop.waitScope).is<kj::Own<Attachment>>()); }
  void fault(kj::StringPtr step, How how, uint32_t times = 1) {
    FakeFault fault;
    fault.how = how;
    fault.times = times;
    world.controls.addFault(step, kj::mv(fault));
  }
  CleanupReport cleanUp() {
    return backend.cleanUp(place(log), CleanupScope::ALL, steps, log).wait(loop.waitScope);
  }
};

class Observer final: public RuntimeObserver {
public:
  kj::Vector<kj::String> seen;
  void changed(kj::StringPtr environmentId, kj::StringPtr generation, Change change,
               kj::Maybe<const Problem&> cause) override {
    auto why = cause.map([](const Problem& problem) { return kj::str(problem.message); });
    seen.add(kj::str(environmentId, ' ', generation, ' ', static_cast<int>(change), ' ',
                     kj::mv(why).orDefault(kj::String())));
  }
};

}  // namespace

TEST_CASE("fake: a step takes the time that was set, and no other") {
  Fixture f;
  f.world.controls.setDelay("create.compute", 3 * kj::SECONDS);
  auto creating = f.create();
  CHECK_FALSE(creating.poll(f.loop.waitScope));
  CHECK(f.world.controls.count("create.network") == 1);
  CHECK(f.world.things().size() == 2);
  f.loop.advance(2999 * kj::MILLISECONDS);
  CHECK_FALSE(creating.poll(f.loop.waitScope));
  f.loop.advance(1 * kj::MILLISECONDS);
  CHECK(creating.poll(f.loop.waitScope));
  CHECK(creating.wait(f.loop.waitScope).is<kj::Own<Attachment>>());
}

TEST_CASE("fake: a step goes wrong as it was told, as often as it was told") {
  Fixture f;
  SECTION("refused or failed afterwards: a problem, and all is taken back") {
    auto how = GENERATE(How::REFUSES, How::FAILS_AFTER);
    f.fault("create.compute", how, 2);
    for (int i = 0; i < 2; ++i) {
      auto result = f.create().wait(f.loop.waitScope);
      REQUIRE(result.is<Problem>());
      CHECK(result.get<Problem>().code == ErrorCode::RUNTIME_UNAVAILABLE);
      CHECK(f.world.things().size() == 0);
      CHECK(f.log.items().size() == 0);
    }
  }
  SECTION("thrown: nothing was made, the rest is noted") {
    f.fault("create.compute", How::THROWS);
    CHECK_THROWS(f.create().wait(f.loop.waitScope));
    CHECK(f.world.things().size() == 2);
    CHECK(f.log.items().size() == 3);
  }
  SECTION("answer lost: it was made, and is found again") {
    f.fault("create.compute", How::LOSES_ANSWER);
    CHECK_THROWS(f.create().wait(f.loop.waitScope));
    CHECK(f.world.things().size() == 3);
    CHECK(f.log.items()[2].state == InventoryItem::State::INTENDED);
    auto identity = kj::str(f.world.things()[2]->identity);
    f.made();
    CHECK(f.world.things()[2]->identity == identity);
    CHECK(f.log.items()[2].identity == identity);
  }
  SECTION("hanging: the caller's to end") {
    auto how = GENERATE(How::HANGS, How::HANGS_AFTER);
    f.fault("create.compute", how);
    {
      auto creating = f.create();
      CHECK_FALSE(creating.poll(f.loop.waitScope));
      f.loop.advance(1 * kj::HOURS);
      CHECK_FALSE(creating.poll(f.loop.waitScope));
    }
    CHECK(f.world.things().size() == (how == How::HANGS ? 2 : 3));
  }
  f.made();
  CHECK(f.world.things().size() == 4);
  CHECK(f.cleanUp().leftovers.size() == 0);
  CHECK(f.world.things().size() == 0);
}

TEST_CASE("fake: untruths") {
  Fixture f;
  SECTION("made, and not there") {
    f.fault("create.helper", How::LIES);
    auto result = f.create().wait(f.loop.waitScope);
    REQUIRE(result.is<Problem>());
    CHECK(result.get<Problem>().code == ErrorCode::RUNTIME_UNAVAILABLE);
  }
  SECTION("stopped, and running") {
    f.made();
    f.fault("stop.compute", How::LIES);
    CHECK(f.backend.stopInstance(f.place(f.log), StopRequest()).wait(f.loop.waitScope).stopped);
    auto running = [&]() {
      return KJ_ASSERT_NONNULL(f.world.thingOf("env-1", fake_kind::COMPUTE)).running;
    };
    CHECK(running());
    CHECK(f.backend.stopInstance(f.place(f.log), StopRequest()).wait(f.loop.waitScope).stopped);
    CHECK_FALSE(running());
  }
  SECTION("removed, and there") {
    f.made();
    f.fault("remove.network", How::LIES);
    auto report = f.cleanUp();
    CHECK(report.leftovers.size() == 1);
    CHECK(f.world.things().size() == 1);
    CHECK(f.log.items().size() == 1);
    CHECK(f.cleanUp().leftovers.size() == 0);
  }
  SECTION("recovered, and another's") {
    f.made();
    MemoryLog other;
    REQUIRE(f.create(other, "env-2").wait(f.loop.waitScope).is<kj::Own<Attachment>>());
    auto workspaceOfFirst = [&]() {
      auto asked = kj::arr(f.place(f.log), f.place(other, "env-2"));
      auto answers = f.backend.recoverInstances(kj::mv(asked)).wait(f.loop.waitScope);
      return kj::str(KJ_ASSERT_NONNULL(answers[0].attachment)->workspace());
    };
    auto truth = workspaceOfFirst();
    f.world.lies.recoversWithTheWrongOne = true;
    CHECK(workspaceOfFirst() != truth);
  }
}

TEST_CASE("fake: a stop that takes too long says so and removes nothing") {
  Fixture f;
  f.made();
  f.fault("stop.compute", How::HANGS);
  StopRequest request;
  request.agentStopFailed = true;
  request.deadline = 5 * kj::SECONDS;
  auto stopping = f.backend.stopInstance(f.place(f.log), kj::mv(request));
  CHECK_FALSE(stopping.poll(f.loop.waitScope));
  f.loop.advance(5 * kj::SECONDS);
  auto report = stopping.wait(f.loop.waitScope);
  CHECK_FALSE(report.stopped);
  CHECK(KJ_ASSERT_NONNULL(report.problem).code == ErrorCode::TIMEOUT);
  CHECK(KJ_ASSERT_NONNULL(f.world.lastStop).agentStopFailed);
  CHECK(f.world.things().size() == 4);
}

TEST_CASE("fake: health has its own deadline") {
  Fixture f;
  f.fault("health", How::HANGS);
  auto checking = f.backend.healthCheck();
  CHECK_FALSE(checking.poll(f.loop.waitScope));
  f.loop.advance(10 * kj::SECONDS);
  auto health = checking.wait(f.loop.waitScope);
  CHECK_FALSE(health.healthy);
  CHECK(KJ_ASSERT_NONNULL(health.reason).code == ErrorCode::TIMEOUT);
}

TEST_CASE("fake: one place that cannot be asked does not hide the others") {
  Fixture f;
  f.made();
  MemoryLog other, third;
  REQUIRE(f.create(other, "env-2").wait(f.loop.waitScope).is<kj::Own<Attachment>>());
  REQUIRE(f.create(third, "env-3").wait(f.loop.waitScope).is<kj::Own<Attachment>>());
  f.fault("recover", How::THROWS);
  f.world.setReachable("env-3", false);
  auto ask = [&]() {
    auto asked = kj::arr(f.place(f.log), f.place(other, "env-2"), f.place(third, "env-3"));
    return f.backend.recoverInstances(kj::mv(asked)).wait(f.loop.waitScope);
  };
  auto answers = ask();
  CHECK(answers[0].kind == Recovered::Kind::UNKNOWN);
  CHECK(answers[0].why != nullptr);
  CHECK(answers[1].kind == Recovered::Kind::ATTACHED);
  CHECK(answers[2].kind == Recovered::Kind::UNKNOWN);
  CHECK(KJ_ASSERT_NONNULL(answers[2].why).code == ErrorCode::UNREACHABLE);
  f.fault("recover.all", How::THROWS);
  CHECK_THROWS(ask());
  CHECK(ask()[0].kind == Recovered::Kind::ATTACHED);
}

TEST_CASE("fake: losses are seen by connections and by watchers") {
  Fixture f;
  Observer observer;
  auto watching = f.backend.watch(observer);
  auto made = f.create().wait(f.loop.waitScope);
  REQUIRE(made.is<kj::Own<Attachment>>());
  auto attachment = kj::mv(made.get<kj::Own<Attachment>>());
  auto dialer = attachment->dialer();
  auto stream = dialer->dial().wait(f.loop.waitScope);
  auto generation =
      kj::str(KJ_ASSERT_NONNULL(f.world.thingOf("env-1", fake_kind::COMPUTE)).identity);
  f.world.lies.reportsTwice = true;
  f.world.loseCompute("env-1");
  kj::byte buffer[1];
  CHECK_THROWS(stream->tryRead(buffer, 1, 1).wait(f.loop.waitScope));
  CHECK_THROWS(stream->write(buffer, 1).wait(f.loop.waitScope));
  stream->whenWriteDisconnected().wait(f.loop.waitScope);
  CHECK_THROWS(dialer->dial().wait(f.loop.waitScope));
  CHECK_FALSE(watching.poll(f.loop.waitScope));
  REQUIRE(observer.seen.size() == 2);
  CHECK(observer.seen[0] == observer.seen[1]);
  CHECK(observer.seen[0] == kj::str("env-1 ", generation, " 2 the compute has vanished"));
  auto gone = f.backend.recoverInstances(kj::arr(f.place(f.log))).wait(f.loop.waitScope);
  CHECK(gone[0].kind == Recovered::Kind::GONE);

  // The files are there, so a create makes the rest anew.
  auto again = f.create().wait(f.loop.waitScope);
  REQUIRE(again.is<kj::Own<Attachment>>());
  CHECK(again.get<kj::Own<Attachment>>()->workspace() == attachment->workspace());
  CHECK(f.world.things().size() == 4);
  CHECK(f.log.items().size() == 4);
}

TEST_CASE("fake: has only the abilities it was given") {
  Fixture f;
  CHECK(f.backend.remoteStatus() == nullptr);
  CHECK(f.backend.resumer() == nullptr);
  CHECK(f.backend.refresher() == nullptr);
  CHECK(f.backend.portDialer() == nullptr);
  CHECK(f.backend.reverseListener() == nullptr);
  CHECK(f.backend.tester() == nullptr);
  CHECK(f.backend.interactiveRunner() == nullptr);
  FakeOptions options;
  options.name = kj::str("docker");
  options.traits.requiresCloneUrl = true;
  FakeBackend named(f.loop.timer, f.entropy, f.world, f.helpers, kj::mv(options));
  CHECK(named.name() == "docker");
  CHECK(named.traits().requiresCloneUrl);
}

TEST_CASE("fake: with real helpers a lost place loses its processes") {
  LogWatch logs;
  IoLoop loop;
  UvLoop uv(loop.io.unixEventPort);
  SystemEntropy entropy;
  TempDir root;
  LocalHelpers helpers(loop, uv, entropy, builtAgentctl(), LocalHelpers::Sharing::ONE_EACH);
  FakeWorld world(kj::str(root.path()));
  FakeBackend backend(loop.timer, entropy, world, helpers);
  MemoryLog log;
  StepList steps;
  auto wait = [&](auto promise) {
    return loop.timer.timeoutAfter(30 * kj::SECONDS, kj::mv(promise)).wait(loop.waitScope);
  };
  CreateRequest request;
  request.place.environmentId = kj::str("env-1");
  auto made = wait(backend.createInstance(kj::mv(request), steps, log));
  REQUIRE(made.is<kj::Own<Attachment>>());
  auto attachment = kj::mv(made.get<kj::Own<Attachment>>());
  auto opened = wait(openLink(loop.timer, *attachment));
  REQUIRE(opened.is<kj::Own<AgentLink>>());
  auto link = kj::mv(opened.get<kj::Own<AgentLink>>());
  CHECK(wait(link->list()).is<kj::Array<InstanceReport>>());
  world.loseCompute("env-1");
  wait(link->onLost());
  CHECK_THROWS(wait(attachment->dialer()->dial()));
  CHECK(helpers.launched() == 1);
}

}  // namespace capstan::test
