// Stops places, and removes them.

#include "conformance/backend/cases.h"

#include <catch2/generators/catch_generators.hpp>

#include <cstring>

namespace capstan::test {

namespace {

bool anyHolds(kj::ArrayPtr<const kj::String> lines, kj::StringPtr text) {
  for (auto& line: lines) {
    if (strstr(line.cStr(), text.cStr()) != nullptr) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a stop removes nothing, however often") {
  LogWatch logs;
  auto mode = GENERATE(StopMode::GRACEFUL, StopMode::FORCED);
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-stop");
  auto attachment = environment.created();
  fixture->writeFile(*attachment);
  auto before = fixture->things();
  auto noted = environment.log.notes;
  for (int i = 0; i < 3; ++i) {
    auto report = environment.stop(mode);
    CHECK(report.stopped);
    CHECK(report.problem == nullptr);
    checkSame(before, fixture->things());
    if (i == 1) fixture->restart();
  }
  CHECK(environment.log.notes == noted);
  CHECK(fixture->fileStands(*attachment));

  auto again = environment.created();
  CHECK(again->workspace() == attachment->workspace());
  CHECK(fixture->fileStands(*again));
  checkSame(before, fixture->things());
}

TEST_CASE("what is absent counts as stopped") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment never(*fixture, "env-never");
  CHECK(never.stop().stopped);

  Environment gone(*fixture, "env-gone");
  gone.created();
  for (auto& item: gone.log.clone())
    fixture->vanish(item);
  CHECK(gone.stop(StopMode::FORCED).stopped);
  CHECK(fixture->things().size() == 0);
}

TEST_CASE("a stop does not touch a namesake") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-other");
  environment.created();
  for (auto& item: environment.log.clone())
    fixture->replace(item);
  auto before = fixture->things();
  CHECK(environment.stop(StopMode::FORCED).stopped);
  checkSame(before, fixture->things());
}

TEST_CASE("clean-up of the compute keeps the files") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  Environment environment(*fixture, "env-files");
  auto attachment = environment.created();
  fixture->writeFile(*attachment);
  for (int i = 0; i < 2; ++i) {
    auto report = environment.cleanUp(CleanupScope::COMPUTE);
    CHECK(report.leftovers.size() == 0);
    CHECK(environment.workspaceItem().state == InventoryItem::State::MADE);
    CHECK(fixture->fileStands(*attachment));
    checkNoStrays(environment, foreign);
  }
  auto again = environment.created();
  CHECK(again->workspace() == attachment->workspace());
  CHECK(fixture->fileStands(*again));
  checkComplete(environment, foreign);
}

TEST_CASE("clean-up of all leaves nothing, and may be repeated") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  Environment environment(*fixture, "env-all");
  auto attachment = environment.created();
  fixture->writeFile(*attachment);
  environment.cleanUpWholly(foreign);
  CHECK_FALSE(fixture->fileStands(*attachment));
  environment.cleanUpWholly(foreign);
  Environment never(*fixture, "env-never");
  never.cleanUpWholly(foreign);
}

TEST_CASE("what is half removed, or absent, counts as removed") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  Environment first(*fixture, "env-count");
  first.created();
  auto count = first.log.items().size();
  first.cleanUpWholly(foreign);
  for (size_t i = 0; i < count; ++i) {
    INFO("without item " << i);
    Environment environment(*fixture, kj::str("env-half-", i));
    environment.created();
    auto items = environment.log.clone();
    fixture->vanish(items[i]);
    environment.cleanUpWholly(foreign);
  }
  Environment environment(*fixture, "env-absent");
  environment.created();
  for (auto& item: environment.log.clone())
    fixture->vanish(item);
  environment.cleanUpWholly(foreign);
}

TEST_CASE("the workspace can be kept when all else goes") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-keep");
  auto attachment = environment.created();
  fixture->writeFile(*attachment);
  auto report = environment.cleanUp(CleanupScope::ALL_KEEP_WORKSPACE);
  CHECK(report.leftovers.size() == 0);
  CHECK(report.leftInPlace.size() == 1);
  CHECK(fixture->fileStands(*attachment));
  // It is the user's now: nothing of ours is noted, and a later clean-up does not find it.
  CHECK(environment.log.items().size() == 0);
  CHECK(fixture->things().size() == 1);
  environment.cleanUp();
  CHECK(fixture->fileStands(*attachment));
}

TEST_CASE("a workspace is kept also when that could not be noted at once") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-unnoted");
  auto attachment = environment.created();
  fixture->writeFile(*attachment);
  environment.log.failFrom = environment.log.notes + 1;
  auto report = environment.cleanUp(CleanupScope::ALL_KEEP_WORKSPACE);
  CHECK(report.leftovers.size() > 0);
  CHECK(environment.log.items().size() > 0);
  CHECK(fixture->fileStands(*attachment));
  environment.log.failFrom = SIZE_MAX;
  fixture->restart();
  report = environment.cleanUp(CleanupScope::ALL_KEEP_WORKSPACE);
  for (auto& line: report.leftovers)
    FAIL_CHECK(line.cStr());
  CHECK(environment.log.items().size() == 0);
  CHECK(fixture->fileStands(*attachment));
}

TEST_CASE("a folder of the user's is never removed") {
  LogWatch logs;
  auto scope = GENERATE(CleanupScope::ALL, CleanupScope::ALL_KEEP_WORKSPACE, CleanupScope::COMPUTE);
  auto fixture = newBackendFixture();
  auto path = fixture->userDirectory();
  Environment environment(*fixture, "env-user");
  environment.directory = kj::str(path);
  fixture->writeFile(*environment.created());
  auto report = environment.cleanUp(scope);
  CHECK(report.leftovers.size() == 0);
  CHECK(anyHolds(report.leftInPlace, path));
  CHECK(fixture->userDirectoryStands());
  if (scope != CleanupScope::COMPUTE) CHECK(fixture->things().size() == 0);
}

TEST_CASE("a namesake is left alone and reported, and the rest goes") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment first(*fixture, "env-count");
  first.created();
  auto count = first.log.items().size();
  first.cleanUpWholly(nullptr);
  for (size_t i = 0; i < count; ++i) {
    Environment environment(*fixture, kj::str("env-same-", i));
    environment.created();
    auto items = environment.log.clone();
    INFO("item " << items[i].kind);
    auto foreign = fixture->replace(items[i]);
    for (int round = 0; round < 2; ++round) {
      auto report = environment.cleanUp();
      CHECK(anyHolds(report.leftovers, items[i].name));
      // Things inside of what was replaced went with it, so this is what is left.
      REQUIRE(environment.log.items().size() == 1);
      CHECK(environment.log.items()[0].seq == items[i].seq);
      checkSame(kj::arrayPtr(&foreign, 1), fixture->things());
    }
    fixture->vanish(items[i]);
    environment.cleanUpWholly(nullptr);
  }
}

TEST_CASE("one thing that cannot be removed does not save the others") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment first(*fixture, "env-count");
  first.created();
  auto count = first.log.items().size();
  first.cleanUpWholly(nullptr);
  for (size_t i = 0; i < count; ++i) {
    Environment environment(*fixture, kj::str("env-stuck-", i));
    environment.created();
    auto items = environment.log.clone();
    auto reason = fixture->obstruct(items[i]);
    KJ_IF_MAYBE (text, reason) {
      SKIP(text->cStr());
    }
    INFO("item " << items[i].kind);
    auto report = environment.cleanUp();
    CHECK(anyHolds(report.leftovers, items[i].name));
    REQUIRE(environment.log.items().size() == 1);
    CHECK(environment.log.items()[0].seq == items[i].seq);
    fixture->heal();
    checkNoStrays(environment, nullptr);
    environment.cleanUpWholly(nullptr);
  }
}

TEST_CASE("an item of an unknown kind is reported and kept") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-newer");
  environment.created();
  InventoryItem newer;
  newer.step = kj::str("inv.newer.thing");
  newer.kind = kj::str("a-kind-of-a-later-version");
  newer.name = kj::str("thing-17");
  newer.identity = kj::str("17");
  newer.state = InventoryItem::State::MADE;
  fixture->wait(environment.log.intend(kj::mv(newer)));
  auto report = environment.cleanUp();
  CHECK(anyHolds(report.leftovers, "thing-17"));
  REQUIRE(environment.log.items().size() == 1);
  CHECK(environment.log.items()[0].name == "thing-17");
  CHECK(fixture->things().size() == 0);
}

}  // namespace capstan::test
