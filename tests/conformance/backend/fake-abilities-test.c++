// What only some runtimes can do, on the fake.

#include "backends/fake/fake-backend.h"
#include "conformance/backend/memory-log.h"
#include "support/test.h"

#include <catch2/generators/catch_generators.hpp>

namespace capstan::test {

namespace {

struct Fixture {
  LogWatch logs;
  Loop loop;
  SystemEntropy entropy;
  PipeHelperLauncher helpers;
  FakeWorld world;
  FakeBackend backend{loop.timer, entropy, world, helpers, able()};
  MemoryLog log;
  StepList steps;

  static FakeOptions able() {
    FakeOptions options;
    options.abilities = FakeAbilities::all();
    return options;
  }
  PlaceRecord place() {
    PlaceRecord record;
    record.environmentId = kj::str("env-1");
    record.inventory = log.clone();
    return record;
  }
  CreateRequest request() {
    CreateRequest wanted;
    wanted.place = place();
    return wanted;
  }
  kj::Own<Attachment> create() {
    auto made = backend.createInstance(request(), steps, log).wait(loop.waitScope);
    REQUIRE(made.is<kj::Own<Attachment>>());
    return kj::mv(made.get<kj::Own<Attachment>>());
  }
  void refuse(kj::StringPtr step) { world.controls.addFault(step, FakeFault()); }
};

bool isOpen(Loop& loop, kj::AsyncIoStream& stream) {
  kj::byte buffer[1];
  return !stream.tryRead(buffer, 1, 1).poll(loop.waitScope);
}

}  // namespace

TEST_CASE("fake: remote status is an answer whatever happens") {
  Fixture f;
  auto ask = [&]() {
    return KJ_ASSERT_NONNULL(f.backend.remoteStatus())
        .remoteStatus(f.place())
        .wait(f.loop.waitScope);
  };
  CHECK(ask().state == "absent");
  f.create();
  CHECK(ask().state == "running");
  CHECK(ask().lastCheckedAt > 0);
  f.backend.stopInstance(f.place(), StopRequest()).wait(f.loop.waitScope);
  CHECK(ask().state == "stopped");
  f.refuse("remote-status");
  auto failed = ask();
  CHECK(failed.errorMessage.size() > 0);
  CHECK(failed.lastCheckedAt > 0);
}

TEST_CASE("fake: a stopped place is resumed, a lost one is not made anew") {
  Fixture f;
  auto workspace = kj::str(f.create()->workspace());
  f.backend.stopInstance(f.place(), StopRequest()).wait(f.loop.waitScope);
  auto resume = [&]() {
    return KJ_ASSERT_NONNULL(f.backend.resumer())
        .resume(f.request(), f.steps, f.log)
        .wait(f.loop.waitScope);
  };
  auto resumed = resume();
  REQUIRE(resumed.is<kj::Own<Attachment>>());
  CHECK(resumed.get<kj::Own<Attachment>>()->workspace() == workspace);
  CHECK(f.world.controls.count("start.compute") == 1);

  f.world.vanish(fake_kind::VOLUME, FakeWorld::nameOf("env-1", fake_kind::VOLUME));
  auto lost = resume();
  REQUIRE(lost.is<Problem>());
  CHECK(lost.get<Problem>().code == ErrorCode::WORKSPACE_LOST);
  CHECK(f.world.things().size() == 3);
}

TEST_CASE("fake: a refresh is staged, and then committed or aborted") {
  Fixture f;
  auto attachment = f.create();
  auto old = attachment->dialer()->dial().wait(f.loop.waitScope);
  auto stage = [&]() {
    auto staged = KJ_ASSERT_NONNULL(f.backend.refresher()).stage(f.place()).wait(f.loop.waitScope);
    REQUIRE(staged.is<kj::Own<StagedRefresh>>());
    return kj::mv(staged.get<kj::Own<StagedRefresh>>());
  };
  int published = 0;
  kj::Maybe<kj::Own<Attachment>> installed;
  auto commit = [&](StagedRefresh& staged) {
    return staged
        .commit([&](kj::Own<Attachment> fresh) {
          ++published;
          installed = kj::mv(fresh);
        })
        .wait(f.loop.waitScope);
  };
  SECTION("committed: the new one is installed, the old one closed") {
    auto restarts = GENERATE(false, true);
    f.world.refreshRestarts = restarts;
    auto staged = stage();
    CHECK(staged->processRestarted() == restarts);
    CHECK((staged->attachment().helperKey() != attachment->helperKey()) == restarts);
    CHECK(staged->changedItems().size() == (restarts ? 1u : 0u));
    auto fresh = staged->attachment().dialer()->dial().wait(f.loop.waitScope);
    CHECK(isOpen(f.loop, *old));
    CHECK(commit(*staged) == nullptr);
    CHECK(published == 1);
    CHECK_FALSE(isOpen(f.loop, *old));
    CHECK(isOpen(f.loop, *fresh));
    CHECK(KJ_ASSERT_NONNULL(commit(*staged)).code == ErrorCode::WRONG_STATE);
    CHECK(published == 1);
    auto again = f.create();
    CHECK(again->helperKey() == KJ_ASSERT_NONNULL(installed)->helperKey());
  }
  SECTION("aborted: nothing has changed") {
    auto staged = stage();
    staged->abort().wait(f.loop.waitScope);
    staged->abort().wait(f.loop.waitScope);
    CHECK(KJ_ASSERT_NONNULL(commit(*staged)).code == ErrorCode::WRONG_STATE);
    CHECK(published == 0);
    CHECK(isOpen(f.loop, *old));
  }
  SECTION("dropped: nothing has changed") {
    stage();
    CHECK(isOpen(f.loop, *old));
    CHECK(f.create()->helperKey() == attachment->helperKey());
  }
  SECTION("failing: nothing is published") {
    f.refuse("commit");
    auto staged = stage();
    CHECK(commit(*staged) != nullptr);
    CHECK(published == 0);
    CHECK(isOpen(f.loop, *old));
  }
  SECTION("of a place that does not run") {
    f.backend.stopInstance(f.place(), StopRequest()).wait(f.loop.waitScope);
    auto none = KJ_ASSERT_NONNULL(f.backend.refresher()).stage(f.place()).wait(f.loop.waitScope);
    REQUIRE(none.is<Problem>());
    CHECK(none.get<Problem>().code == ErrorCode::UNREACHABLE);
  }
}

TEST_CASE("fake: ports inside are dialled and listened on") {
  Fixture f;
  f.create();
  auto& dialer = KJ_ASSERT_NONNULL(f.backend.portDialer());
  auto closed = dialer.dialPort(f.place(), 80).wait(f.loop.waitScope);
  REQUIRE(closed.is<Problem>());
  CHECK(closed.get<Problem>().code == ErrorCode::UNREACHABLE);
  kj::Maybe<kj::Own<kj::AsyncIoStream>> inside;
  f.world.network.servePort("env-1", 80,
                            [&](kj::Own<kj::AsyncIoStream> stream) { inside = kj::mv(stream); });
  auto open = dialer.dialPort(f.place(), 80).wait(f.loop.waitScope);
  REQUIRE(open.is<kj::Own<kj::AsyncIoStream>>());
  char text[3];
  auto writing = KJ_ASSERT_NONNULL(inside)->write("yes", 3);
  open.get<kj::Own<kj::AsyncIoStream>>()->read(text, 3).wait(f.loop.waitScope);
  writing.wait(f.loop.waitScope);
  CHECK(kj::heapString(text, 3) == "yes");

  auto& listener = KJ_ASSERT_NONNULL(f.backend.reverseListener());
  {
    auto listening = listener.listenPort(f.place(), 0).wait(f.loop.waitScope);
    REQUIRE(listening.is<kj::Own<kj::ConnectionReceiver>>());
    auto& receiver = *listening.get<kj::Own<kj::ConnectionReceiver>>();
    auto port = static_cast<uint16_t>(receiver.getPort());
    auto taken = listener.listenPort(f.place(), port).wait(f.loop.waitScope);
    REQUIRE(taken.is<Problem>());
    CHECK(taken.get<Problem>().code == ErrorCode::PORT_IN_USE);
    auto accepting = receiver.accept();
    CHECK_FALSE(accepting.poll(f.loop.waitScope));
    CHECK(f.world.network.connect("env-1", port) != nullptr);
    CHECK(accepting.wait(f.loop.waitScope).get() != nullptr);
    listening = Problem();
    CHECK(f.world.network.connect("env-1", port) == nullptr);
  }
}

TEST_CASE("fake: connections are tested, and terminals run") {
  Fixture f;
  f.create();
  auto& tester = KJ_ASSERT_NONNULL(f.backend.tester());
  CHECK(tester.testConnection(nullptr, nullptr, f.steps).wait(f.loop.waitScope) == nullptr);
  f.refuse("test");
  CHECK(tester.testConnection(nullptr, nullptr, f.steps).wait(f.loop.waitScope) != nullptr);
  CHECK(f.steps.seen.back().status == PrepareStep::Status::FAILED);

  auto& runner = KJ_ASSERT_NONNULL(f.backend.interactiveRunner());
  auto run = [&]() {
    return runner.runInteractive(f.place(), kj::arr(kj::str("top")), Terminal())
        .wait(f.loop.waitScope);
  };
  CHECK(run().is<Problem>());
  f.world.network.run = [](kj::Array<kj::String>, kj::Own<kj::AsyncIoStream> terminal) {
    auto writing = terminal->write("hi", 2);
    return writing.attach(kj::mv(terminal)).then([]() {
      ExitStatus status;
      status.kind = ExitStatus::Kind::CODE;
      status.code = 7;
      return status;
    });
  };
  auto started = run();
  REQUIRE(started.is<InteractiveRunner::Started>());
  char text[2];
  started.get<InteractiveRunner::Started>().terminal->read(text, 2).wait(f.loop.waitScope);
  CHECK(started.get<InteractiveRunner::Started>().exit.wait(f.loop.waitScope).code == 7);
}

}  // namespace capstan::test
