// Ends a create, and all else, at every wait and at every note.

#include "conformance/backend/cases.h"

#include <catch2/generators/catch_generators.hpp>

namespace capstan::test {

namespace {

// After whatever has befallen a create: it can be removed, and it can be finished.
void checkRepairable(Environment& environment, kj::ArrayPtr<const Thing> foreign, bool finish) {
  checkNoStrays(environment, foreign);
  if (finish) {
    environment.created();
    checkComplete(environment, foreign);
  }
  environment.cleanUpWholly(foreign);
}

}  // namespace

TEST_CASE("a create that a crash ends at any wait can be finished and removed") {
  LogWatch logs;
  auto finish = GENERATE(false, true);
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  bool done = false;
  for (size_t turns = 0; !done; ++turns) {
    INFO("after " << turns << " turns, finish " << finish);
    REQUIRE(turns < SWEEP_LIMIT);
    Environment environment(*fixture, kj::str("env-t", turns));
    done = dropAfter(*fixture, environment.beginCreate(), turns);
    fixture->restart();
    checkRepairable(environment, foreign, finish);
  }
}

TEST_CASE("a create that its caller drops at any wait can be removed at once") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  bool done = false;
  for (size_t turns = 0; !done; ++turns) {
    INFO("after " << turns << " turns");
    REQUIRE(turns < SWEEP_LIMIT);
    Environment environment(*fixture, kj::str("env-d", turns));
    done = dropAfter(*fixture, environment.beginCreate(), turns);
    // Some of its work may still go on elsewhere: nothing may come into being afterwards.
    environment.cleanUp();
    CHECK(environment.log.items().size() == 0);
    fixture->restart();
    checkSame(foreign, fixture->things());
  }
}

TEST_CASE("a create that its caller drops at any wait can be made again at once") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  bool done = false;
  for (size_t turns = 0; !done; ++turns) {
    INFO("after " << turns << " turns");
    REQUIRE(turns < SWEEP_LIMIT);
    Environment environment(*fixture, kj::str("env-g", turns));
    done = dropAfter(*fixture, environment.beginCreate(), turns);
    environment.created();
    checkComplete(environment, nullptr);
    environment.cleanUpWholly(nullptr);
  }
}

TEST_CASE("a store that takes no more notes ends a create in good order") {
  LogWatch logs;
  auto finish = GENERATE(false, true);
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  for (size_t note = 1;; ++note) {
    INFO("note " << note << ", finish " << finish);
    REQUIRE(note < SWEEP_LIMIT);
    Environment environment(*fixture, kj::str("env-f", note));
    environment.log.failFrom = note;
    auto result = environment.create();
    bool done = environment.log.notes < note;
    CHECK(result.is<Problem>() != done);
    KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
      CHECK(problem->code == ErrorCode::RESOURCE_EXHAUSTED);
    }
    environment.log.failFrom = SIZE_MAX;
    checkRepairable(environment, foreign, finish);
    if (done) break;
  }
}

TEST_CASE("a crash at any note leaves something that can be finished and removed") {
  LogWatch logs;
  auto written = GENERATE(false, true);
  auto finish = GENERATE(false, true);
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  for (size_t note = 1;; ++note) {
    INFO("note " << note << ", written " << written << ", finish " << finish);
    REQUIRE(note < SWEEP_LIMIT);
    Environment environment(*fixture, kj::str("env-h", note));
    environment.log.hangAt = note;
    environment.log.writesWhatHangs = written;
    bool done = false;
    {
      auto running = environment.beginCreate()
                         .then([&](Result<kj::Own<Attachment>>&&) { done = true; })
                         .eagerlyEvaluate([](kj::Exception&& e) { FAIL(kj::str(e).cStr()); });
      fixture->spin([&]() { return done || environment.log.notes >= note; });
    }
    fixture->restart();
    environment.log.hangAt = SIZE_MAX;
    checkRepairable(environment, foreign, finish);
    if (done) break;
  }
}

TEST_CASE("a clean-up that ends at any wait can be repeated") {
  LogWatch logs;
  auto scope = GENERATE(CleanupScope::ALL, CleanupScope::COMPUTE);
  auto crash = GENERATE(false, true);
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  bool done = false;
  for (size_t turns = 0; !done; ++turns) {
    INFO("after " << turns << " turns, crash " << crash);
    REQUIRE(turns < SWEEP_LIMIT);
    Environment environment(*fixture, kj::str("env-c", turns));
    environment.created();
    done = dropAfter(
        *fixture,
        fixture->backend().cleanUp(environment.place(), scope, environment.steps, environment.log),
        turns);
    if (crash) fixture->restart();
    checkNoStrays(environment, foreign);
    environment.cleanUpWholly(foreign);
  }
}

TEST_CASE("a store that takes no more notes loses nothing in a clean-up") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  for (size_t note = 1;; ++note) {
    INFO("note " << note);
    REQUIRE(note < SWEEP_LIMIT);
    Environment environment(*fixture, kj::str("env-n", note));
    environment.created();
    auto first = environment.log.notes;
    environment.log.failFrom = first + note;
    auto report = environment.cleanUp();
    bool done = environment.log.notes < first + note;
    CHECK((report.leftovers.size() == 0) == done);
    checkNoStrays(environment, nullptr);
    environment.log.failFrom = SIZE_MAX;
    environment.cleanUpWholly(nullptr);
    if (done) break;
  }
}

TEST_CASE("what only looks, or stops, may end at any wait") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-look");
  fixture->writeFile(*environment.created());
  auto before = fixture->things();
  auto noted = environment.log.notes;
  auto sweep = [&](kj::Function<bool(size_t)> attempt) {
    bool done = false;
    for (size_t turns = 0; !done; ++turns) {
      INFO("after " << turns << " turns");
      REQUIRE(turns < SWEEP_LIMIT);
      done = attempt(turns);
      checkSame(before, fixture->things());
    }
  };
  sweep([&](size_t turns) { return dropAfter(*fixture, fixture->backend().healthCheck(), turns); });
  sweep([&](size_t turns) {
    return dropAfter(*fixture, fixture->backend().recoverInstances(kj::arr(environment.place())),
                     turns);
  });
  sweep([&](size_t turns) {
    return dropAfter(*fixture, fixture->backend().stopInstance(environment.place(), StopRequest()),
                     turns);
  });
  CHECK(environment.log.notes == noted);
  CHECK(environment.stop().stopped);
  CHECK(fixture->fileStands(*environment.created()));
  environment.cleanUpWholly(nullptr);
}

}  // namespace capstan::test
