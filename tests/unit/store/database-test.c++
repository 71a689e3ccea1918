#include "store/database.h"

#include "store-fixture.h"
#include "store/setting-table.h"

#include <cstdlib>
#include <filesystem>

namespace capstan {

using test::Gate;
using test::get;
using test::problemOf;
using test::Store;

TEST_CASE("writes that wait together are one commit, in the order of the calls") {
  test::LogWatch log;
  Store store;
  Gate gate;
  auto held = store.hold(gate);
  auto before = store.database->stats().commits;
  kj::Vector<kj::Promise<Result<uint64_t>>> waiting;
  waiting.add(store.set("order", "0"));
  for (uint64_t i = 1; i < 64; ++i)
    waiting.add(store.set("order", kj::str(i), i));  // Only in this order do the versions fit.
  CHECK_FALSE(waiting[0].poll(store.loop.waitScope));

  gate.open();

  for (uint64_t i = 0; i < waiting.size(); ++i)
    CHECK(get(store.wait(kj::mv(waiting[i]))) == i + 1);
  CHECK(store.setting("order") == "63");
  CHECK(store.database->stats().commits == before + 1);
  CHECK(store.database->stats().requests == 64);
  test::fine(store.wait(kj::mv(held)));
}

TEST_CASE("writes that do not wait together are commits of their own") {
  Store store;
  for (int i = 0; i < 5; ++i)
    get(store.wait(store.set(kj::str("key", i), "x")));
  CHECK(store.database->stats().commits == 5);
}

TEST_CASE("a request's problem undoes that request and leaves the others of its commit") {
  Store store;
  Gate gate;
  auto held = store.hold(gate);
  auto first = store.set("a", "1");
  auto refused = store.database->write([](Connection& db) -> Outcome {
    get(SettingTable(db).put("half", "done", 0));
    return Problem(ErrorCode::WRONG_STATE, kj::str("not now"));
  });
  auto broken = store.database->write([](Connection& db) -> Outcome {
    get(SettingTable(db).put("half", "done", 0));
    db.run("INSERT INTO setting VALUES ('half', 'again', 1)");
    return nullptr;
  });
  auto last = store.set("b", "2");
  gate.open();
  get(store.wait(kj::mv(first)));
  CHECK(problemOf(store.wait(kj::mv(refused))).code == ErrorCode::WRONG_STATE);
  CHECK(problemOf(store.wait(kj::mv(broken))).code == ErrorCode::ALREADY_EXISTS);
  get(store.wait(kj::mv(last)));
  CHECK(store.setting("a") == "1");
  CHECK(store.setting("half") == "");
  CHECK(store.setting("b") == "2");
  CHECK(store.database->stats().commits == 1);
}

TEST_CASE("an exception in a request is that request's alone") {
  Store store;  // The line that the thread logs is not seen by a LogWatch of this one.
  auto broken = store.wait(
      store.database->write([](Connection&) -> Outcome { KJ_FAIL_REQUIRE("a mistake"); }));
  CHECK(problemOf(kj::mv(broken)).code == ErrorCode::INTERNAL);
  get(store.wait(store.set("a", "1")));
}

TEST_CASE("a mistake in a statement is that request's alone") {
  Store store;
  Gate gate;
  auto held = store.hold(gate);
  auto wrong = store.database->write([](Connection& db) -> Outcome {
    get(SettingTable(db).put("half", "done", 0));
    db.run("INSERT INTO nowhere VALUES (1)");
    return nullptr;
  });
  auto wrongRead = store.database->read([](Connection& db) -> Outcome {
    db.query("SELECT nothing FROM setting LIMIT 1");
    return nullptr;
  });
  auto fine = store.set("a", "1");
  gate.open();
  CHECK(problemOf(store.wait(kj::mv(wrong))).code == ErrorCode::INTERNAL);
  CHECK(problemOf(store.wait(kj::mv(wrongRead))).code == ErrorCode::INTERNAL);
  get(store.wait(kj::mv(fine)));
  CHECK(store.setting("half") == "");
  CHECK(store.database->readOnly() == nullptr);
  CHECK(store.database->stats().failures == 0);
}

TEST_CASE("dropping the promise leaves the commit to happen") {
  Store store;
  Gate gate;
  auto held = store.hold(gate);
  {
    auto dropped = store.set("dropped", "yes");
  }
  gate.open();
  CHECK(store.setting("dropped") == "yes");
}

TEST_CASE("a full queue refuses at once, by number and by octets") {
  DatabaseOptions options;
  options.queuedRequests = 3;
  options.queuedBytes = 1000;
  Store store(kj::mv(options));
  Gate gate;
  auto held = store.hold(gate);
  auto write = [&](size_t bytes) {
    return store.database->write([](Connection&) -> Outcome { return nullptr; }, bytes);
  };
  auto first = write(600);
  auto tooLarge = problemOf(store.wait(write(600)));
  CHECK(tooLarge.code == ErrorCode::RESOURCE_EXHAUSTED);
  CHECK(tooLarge.retry == RetryHint::SAME_REQUEST_LATER);
  auto second = write(100), third = write(100);
  CHECK(problemOf(store.wait(write(1))).code == ErrorCode::RESOURCE_EXHAUSTED);
  gate.open();
  test::fine(store.wait(kj::mv(first)));
  test::fine(store.wait(kj::mv(third)));
  test::fine(store.wait(write(600)));  // There is room again.
}

TEST_CASE("close runs what waits and refuses what comes after") {
  Store store;
  Gate gate;
  auto held = store.hold(gate);
  auto waiting = store.set("late", "kept");
  auto closed = store.database->close();
  auto after = store.set("after", "x");
  CHECK(problemOf(store.wait(kj::mv(after))).code == ErrorCode::SHUTTING_DOWN);
  CHECK_FALSE(closed.poll(store.loop.waitScope));
  gate.open();
  store.wait(kj::mv(closed));
  get(store.wait(kj::mv(waiting)));
  store.wait(store.database->close());  // Twice is once.
  CHECK(std::filesystem::file_size(store.path.cStr()) > 0);
  CHECK_FALSE(std::filesystem::exists(kj::str(store.path, "-wal").cStr()));
  store.database = nullptr;
  store.database = get(store.wait(Database::open({.path = kj::str(store.path)})));
  CHECK(store.setting("late") == "kept");
}

TEST_CASE("destruction without close ends the request in progress and refuses the rest") {
  Store store;
  Gate gate;
  auto inProgress = store.hold(gate);
  auto waiting = store.set("never", "x");
  std::thread opener([&]() { gate.open(); });
  store.database = nullptr;
  opener.join();
  // Whichever came first, the gate or the end, the write has one answer and the file agrees.
  auto answer = store.wait(kj::mv(waiting));
  bool stored = answer.is<uint64_t>();
  if (!stored) CHECK(answer.get<Problem>().code == ErrorCode::SHUTTING_DOWN);
  store.database = get(store.wait(Database::open({.path = kj::str(store.path)})));
  CHECK((store.setting("never") == "x") == stored);
}

TEST_CASE("reads see the writes before them and run while writes fail") {
  Store store;
  auto write = store.set("a", "1");
  CHECK(store.setting("a") == "1");
  get(store.wait(kj::mv(write)));
  test::fine(store.wait(store.database->read([](Connection& db) -> Outcome {
    db.script("PRAGMA query_only = 1");
    return nullptr;
  })));
  auto refused = problemOf(store.wait(store.set("b", "2")));
  CHECK(refused.code == ErrorCode::DENIED);
  CHECK(test::contains(refused.message, store.path));
  CHECK(store.database->readOnly() != nullptr);
  CHECK(store.setting("a") == "1");
  test::fine(store.wait(store.database->read([](Connection& db) -> Outcome {
    db.script("PRAGMA query_only = 0");
    return nullptr;
  })));
  get(store.wait(store.set("b", "2")));
  CHECK(store.setting("b") == "2");
  CHECK(store.database->readOnly() == nullptr);
}

}  // namespace capstan
