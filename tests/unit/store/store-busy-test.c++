// The store beside other processes that use its file.
#include "store-fixture.h"
#include "store/setting-table.h"

#include <kj/io.h>

#include <cstdio>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan {

using test::get;
using test::problemOf;
using test::Store;
using test::TempDir;

namespace {

// A process that has the database open and writes a setting again and again, holds its lock, or
// changes an environment's state a hundred times a second beside somebody who reads it.
class OtherProcess {
public:
  enum class Does { HOLDS_LOCK, WRITES, CHANGES_STATE };
  OtherProcess(kj::StringPtr path, Does does) {
    int ready[2], stop[2];
    KJ_SYSCALL(pipe2(ready, O_CLOEXEC));
    KJ_SYSCALL(pipe2(stop, O_CLOEXEC | O_NONBLOCK));
    KJ_SYSCALL(pid = fork());
    if (pid == 0) {
      // It must not go on as a second test program.
      try {
        work(path, does, ready[1], stop[0]);
      } catch (const SqliteFailure& failure) {
        dprintf(STDERR_FILENO, "the other process: %d %s\n", failure.code, failure.text.cStr());
        _exit(1);
      }
      _exit(0);
    }
    close(ready[1]);
    close(stop[0]);
    stopEnd = kj::AutoCloseFd(stop[1]);
    char octet;
    KJ_SYSCALL(read(ready[0], &octet, 1));
    close(ready[0]);
  }
  ~OtherProcess() { end(); }
  KJ_DISALLOW_COPY_AND_MOVE(OtherProcess);
  void end() {
    if (pid == 0) return;
    (void)!write(stopEnd.get(), "s", 1);
    int status = 0;
    waitpid(pid, &status, 0);
    pid = 0;
    CHECK(status == 0);
  }

private:
  pid_t pid;
  kj::AutoCloseFd stopEnd;

  static void work(kj::StringPtr path, Does does, int ready, int stop) {
    auto connection = test::openTables(path), second = test::openTables(path);
    char octet = 0;
    auto stopped = [&]() { return read(stop, &octet, 1) == 1; };
    auto write = [&](Connection& db, kj::StringPtr sql, int value) {
      db.script("BEGIN IMMEDIATE");
      db.run(sql, value);
      db.script("COMMIT");
    };
    if (does == Does::HOLDS_LOCK) connection->script("BEGIN IMMEDIATE");
    (void)!::write(ready, "r", 1);
    for (int i = 0; !stopped(); ++i) {
      if (does == Does::WRITES) {
        write(*connection, "INSERT OR REPLACE INTO setting VALUES ('other', ?, 1)", i);
      } else if (does == Does::CHANGES_STATE) {
        auto count = connection->query("SELECT count(*) FROM environment");
        KJ_REQUIRE(count.next());
        write(*second, "UPDATE environment SET changed_ms = ?", i);
        usleep(8000);
      }
      usleep(2000);
    }
  }
};

}  // namespace

TEST_CASE("a lock of another process is told, and waited for within the time-out") {
  TempDir temp;
  auto path = temp / "capstan.db";
  OtherProcess other(path, OtherProcess::Does::HOLDS_LOCK);
  test::IoLoop loop;
  auto database = get(Database::open({.path = kj::str(path), .connection = {.busyTimeoutMs = 20}})
                          .wait(loop.waitScope));
  auto put = [&]() {
    return database->write([](Connection& db) { return SettingTable(db).put("a", "b", 0); })
        .wait(loop.waitScope);
  };
  auto problem = problemOf(put());
  CHECK(problem.code == ErrorCode::STATE_LOCKED);
  CHECK(problem.retry == RetryHint::SAME_REQUEST_LATER);
  CHECK(test::contains(problem.message, path));
  other.end();
  CHECK(get(put()) == 1);
}

TEST_CASE("case 070: a read transaction that turns into a write is refused at once") {
  TempDir temp;
  auto path = temp / "capstan.db";
  auto a = test::openTables(path), b = test::openTables(path);
  test::fine(EnvironmentTable(*a).add(test::environment("env-1", "task")));
  a->script("BEGIN");
  {
    auto count = a->query("SELECT count(*) FROM environment");
    REQUIRE(count.next());
  }
  b->script("BEGIN IMMEDIATE");
  b->run("UPDATE environment SET changed_ms = 5");
  b->script("COMMIT");
  auto before = kj::systemPreciseMonotonicClock().now();
  int code = 0;
  try {
    a->run("UPDATE environment SET changed_ms = 6");
  } catch (const SqliteFailure& failure) {
    code = failure.code;
  }
  CHECK(code == 517);  // SQLITE_BUSY_SNAPSHOT; the 5 s of the busy time-out do not help.
  CHECK(kj::systemPreciseMonotonicClock().now() - before < 3 * kj::SECONDS);
}

TEST_CASE("case 070: state changes succeed beside a reader and writer 100 times a second") {
  TempDir temp;
  auto path = temp / "capstan.db";
  test::fine(EnvironmentTable(*test::openTables(path)).add(test::environment("env-1", "task")));
  OtherProcess other(path, OtherProcess::Does::CHANGES_STATE);
  test::IoLoop loop;
  auto wait = [&](auto promise) {
    return loop.timer.timeoutAfter(60 * kj::SECONDS, kj::mv(promise)).wait(loop.waitScope);
  };
  auto database = get(wait(Database::open({.path = kj::str(path)})));
  for (int i = 0; i < 100; ++i) {
    auto state = i % 2 == 0 ? EnvironmentState::READY : EnvironmentState::STOPPED;
    get(wait(database->write([state](Connection& db) -> Result<uint64_t> {
      EnvironmentTable table(db);
      auto record = KJ_ASSERT_NONNULL(table.find("env-1"));  // Reads first.
      EnvironmentTable::Change change;
      change.state = state;
      return table.change(record.id, kj::mv(change), record.version);
    })));
    auto seen = get(wait(database->read([](Connection& db) -> Result<EnvironmentRecord> {
      return KJ_ASSERT_NONNULL(EnvironmentTable(db).find("env-1"));
    })));
    CHECK(seen.state == state);
  }
  CHECK(database->stats().failures == 0);
}

TEST_CASE("case 070: whoever reads the store does not hold up its end") {
  Store store;
  auto reader = test::openTables(store.path);
  reader->script("BEGIN");
  {
    auto count = reader->query("SELECT count(*) FROM environment");
    REQUIRE(count.next());
  }
  get(store.wait(store.set("a", "b")));
  auto before = kj::systemPreciseMonotonicClock().now();
  store.wait(store.database->close());
  CHECK(kj::systemPreciseMonotonicClock().now() - before < 3 * kj::SECONDS);  // Not the 5 s.
}

TEST_CASE("case 070: writes succeed while another process writes without pause") {
  TempDir temp;
  auto path = temp / "capstan.db";
  OtherProcess other(path, OtherProcess::Does::WRITES);
  test::IoLoop loop;
  auto wait = [&](auto promise) {
    return loop.timer.timeoutAfter(60 * kj::SECONDS, kj::mv(promise)).wait(loop.waitScope);
  };
  auto database = get(wait(Database::open({.path = kj::str(path)})));
  for (int i = 0; i < 50; ++i) {
    // Reads first, then writes: what SQLite refuses at once outside BEGIN IMMEDIATE.
    CHECK(get(wait(database->write([i](Connection& db) -> Result<uint64_t> {
            SettingTable table(db);
            table.list("", 10);
            return table.put(kj::str("key", i), "value", 0);
          }))) == 1);
  }
  CHECK(database->stats().failures == 0);
}

}  // namespace capstan
