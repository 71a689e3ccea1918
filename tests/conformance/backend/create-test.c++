// Makes places.

#include "conformance/backend/cases.h"

namespace capstan::test {

TEST_CASE("a place is what its inventory says and no more") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  Environment environment(*fixture, "env-first");
  auto attachment = environment.created();
  checkComplete(environment, foreign);

  CHECK(attachment->workspace().startsWith("/"));
  auto runs = attachment->runDirectory("r-1");
  CHECK(runs.startsWith("/"));
  CHECK(runs != attachment->runDirectory("r-2"));
  CHECK(attachment->helperKey().size() > 0);
  CHECK(attachment->credential().key().size() >= 16);
  CHECK(fixture->backend().name().size() > 0);
  for (auto& item: environment.log.items()) {
    CHECK(item.step.startsWith(kj::str("inv.", fixture->backend().name(), ".")));
  }
  environment.cleanUpWholly(foreign);
}

TEST_CASE("progress is reported step by step") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-steps");
  environment.created();
  REQUIRE(environment.steps.seen.size() >= 2);
  uint16_t next = 0;
  for (auto& step: environment.steps.seen) {
    CHECK(step.name.size() > 0);
    CHECK(step.index == next);
    CHECK(step.index < step.total);
    if (step.status == PrepareStep::Status::RUNNING) continue;
    CHECK(step.status == PrepareStep::Status::COMPLETED);
    ++next;
  }
  CHECK(next == environment.steps.seen[0].total);
}

TEST_CASE("nothing is ever there that was not noted before") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto foreign = kj::arr(fixture->plant());
  Environment environment(*fixture, "env-noted");
  kj::Vector<kj::String> notes;
  environment.log.onNote = [&](kj::StringPtr note) {
    notes.add(kj::str(note));
    checkNoStrays(environment, foreign);
  };
  bool done = false;
  auto running = environment.beginCreate()
                     .then([&](Result<kj::Own<Attachment>>&& result) {
                       CHECK(result.is<kj::Own<Attachment>>());
                       done = true;
                     })
                     .eagerlyEvaluate([](kj::Exception&& e) { FAIL(kj::str(e).cStr()); });
  while (!done) {
    fixture->turn();
    checkNoStrays(environment, foreign);
  }
  CHECK(notes.size() >= 2);
  CHECK(notes[0].startsWith("intend "));
  environment.log.onNote = [](kj::StringPtr) {};
  environment.cleanUpWholly(foreign);
}

TEST_CASE("made twice it is one place") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-twice");
  auto first = environment.created();
  fixture->writeFile(*first);
  auto before = fixture->things();
  auto noted = environment.log.notes;
  auto second = environment.created();
  checkSame(before, fixture->things());
  CHECK(environment.log.notes == noted);
  CHECK(first->helperKey() == second->helperKey());
  CHECK(first->workspace() == second->workspace());
  CHECK(fixture->fileStands(*second));

  fixture->restart();
  auto third = environment.created();
  checkSame(before, fixture->things());
  CHECK(first->workspace() == third->workspace());
  CHECK(fixture->fileStands(*third));
}

TEST_CASE("a workspace that has to be there is never made") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-reuse");
  auto refused = fixture->wait(fixture->backend().createInstance(
      environment.request(true), environment.steps, environment.log));
  REQUIRE(refused.is<Problem>());
  CHECK(refused.get<Problem>().code == ErrorCode::WORKSPACE_LOST);
  CHECK(fixture->things().size() == 0);
  CHECK(environment.log.items().size() == 0);

  fixture->writeFile(*environment.created());
  auto reused = fixture->wait(fixture->backend().createInstance(
      environment.request(true), environment.steps, environment.log));
  REQUIRE(reused.is<kj::Own<Attachment>>());
  CHECK(fixture->fileStands(*reused.get<kj::Own<Attachment>>()));
}

TEST_CASE("a workspace that has vanished is not made anew") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-lost");
  environment.created();
  fixture->vanish(environment.workspaceItem());
  auto before = fixture->things();
  for (int i = 0; i < 2; ++i) {
    auto result = environment.create();
    REQUIRE(result.is<Problem>());
    CHECK(result.get<Problem>().code == ErrorCode::WORKSPACE_LOST);
    checkSame(before, fixture->things());
    CHECK(environment.workspaceItem().state == InventoryItem::State::MADE);
    fixture->restart();
  }
  environment.cleanUpWholly(nullptr);
}

TEST_CASE("a folder of the user's is used and not made") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto path = fixture->userDirectory();
  Environment environment(*fixture, "env-given");
  environment.directory = kj::str(path);
  auto attachment = environment.created();
  CHECK(attachment->workspace() == path);
  CHECK_FALSE(attachment->runDirectory("r-1").startsWith(path));

  fixture->removeUserDirectory();
  auto again = environment.create();
  REQUIRE(again.is<Problem>());
  CHECK(again.get<Problem>().code == ErrorCode::WORKSPACE_LOST);
  CHECK_FALSE(fixture->userDirectoryStands());
  environment.cleanUpWholly(nullptr);

  Environment other(*fixture, "env-given-2");
  other.directory = kj::str(path);
  auto never = other.create();
  REQUIRE(never.is<Problem>());
  CHECK(never.get<Problem>().code == ErrorCode::WORKSPACE_LOST);
  CHECK(fixture->things().size() == 0);
  CHECK(other.log.items().size() == 0);
}

TEST_CASE("a namesake is neither taken over nor touched") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-namesake");
  environment.created();
  auto item = environment.workspaceItem();
  auto foreign = fixture->replace(item);
  auto before = fixture->things();
  auto result = environment.create();
  REQUIRE(result.is<Problem>());
  CHECK(result.get<Problem>().code == ErrorCode::OWNERSHIP_MISMATCH);
  checkSame(before, fixture->things());

  // The same name, wanted for the first time.
  Environment fresh(*fixture, "env-namesake");
  auto refused = fresh.create();
  REQUIRE(refused.is<Problem>());
  CHECK(refused.get<Problem>().code == ErrorCode::OWNERSHIP_MISMATCH);
  checkSame(before, fixture->things());
  CHECK(fresh.log.items().size() == 0);
}

TEST_CASE("what a failing create made is taken back or noted, and a later one succeeds") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  auto reason = fixture->refuseAll();
  KJ_IF_MAYBE (text, reason) {
    SKIP(text->cStr());
  }
  auto before = fixture->things();
  Environment environment(*fixture, "env-refused");
  auto result = environment.create();
  REQUIRE(result.is<Problem>());
  INFO(kj::str(result.get<Problem>()).cStr());
  CHECK(result.get<Problem>().message.size() > 0);
  bool reported = false;
  for (auto& step: environment.steps.seen)
    reported = reported || step.status == PrepareStep::Status::FAILED;
  CHECK(reported);
  checkNoStrays(environment, before);
  fixture->heal();
  environment.created();
  checkComplete(environment, nullptr);
  environment.cleanUpWholly(nullptr);
}

TEST_CASE("places made at the same time are independent") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  kj::Vector<kj::Own<Environment>> all;
  kj::Vector<kj::Promise<Result<kj::Own<Attachment>>>> creating;
  for (auto id: {"env-a", "env-b", "env-c"}) {
    all.add(kj::heap<Environment>(*fixture, id));
    creating.add(all.back()->beginCreate());
  }
  kj::Vector<kj::String> workspaces;
  for (auto& each: creating) {
    auto result = fixture->wait(kj::mv(each));
    REQUIRE(result.is<kj::Own<Attachment>>());
    workspaces.add(kj::str(result.get<kj::Own<Attachment>>()->workspace()));
  }
  CHECK(workspaces[0] != workspaces[1]);
  CHECK(workspaces[1] != workspaces[2]);
  auto each = KJ_MAP(one, all) { return one.get(); };
  CHECK(strays(*fixture, each, nullptr).size() == 0);
  all[1]->cleanUp();
  CHECK(all[1]->log.items().size() == 0);
  CHECK(fixture->things().size() == all[0]->log.items().size() + all[2]->log.items().size());
}

TEST_CASE("one place wanted twice at the same time is made once") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  SECTION("for the first time") {
    // Core never does that; a backend must not end with two places, or with one that nobody names.
    Environment one(*fixture, "env-race"), two(*fixture, "env-race");
    auto first = one.beginCreate();
    auto second = two.beginCreate();
    auto a = fixture->wait(kj::mv(first));
    auto b = fixture->wait(kj::mv(second));
    bool madeA = a.is<kj::Own<Attachment>>(), madeB = b.is<kj::Own<Attachment>>();
    CHECK((madeA || madeB));
    auto both = kj::arr(&one, &two);
    CHECK(strays(*fixture, both, nullptr).size() == 0);
    auto& made = madeA ? one : two;
    auto& other = madeA ? two : one;
    CHECK(fixture->things().size() == made.log.items().size());
    if (!(madeA && madeB)) CHECK(other.log.items().size() == 0);
    made.cleanUp();
    other.cleanUp();
    CHECK(fixture->things().size() == 0);
  }
  SECTION("and again") {
    Environment environment(*fixture, "env-again");
    environment.created();
    environment.stop();
    fixture->restart();
    auto before = fixture->things();
    auto first = environment.beginCreate();
    auto second = environment.beginCreate();
    auto a = fixture->wait(kj::mv(first));
    auto b = fixture->wait(kj::mv(second));
    REQUIRE(a.is<kj::Own<Attachment>>());
    REQUIRE(b.is<kj::Own<Attachment>>());
    CHECK(a.get<kj::Own<Attachment>>()->helperKey() == b.get<kj::Own<Attachment>>()->helperKey());
    checkSame(before, fixture->things());
  }
}

}  // namespace capstan::test
