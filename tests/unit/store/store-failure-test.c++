// The store on a full disk, read-only and damaged.
#include "store-fixture.h"
#include "store/setting-table.h"
#include "store/state-lock.h"

#include <kj/io.h>

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan {

using test::get;
using test::problemOf;
using test::Store;
using test::TempDir;

namespace {

// A file system of 1 MiB.
class SmallDisk {
public:
  explicit SmallDisk(kj::StringPtr where): where(kj::str(where)) {
    if (geteuid() == 0) mounted = mount("tmpfs", where.cStr(), "tmpfs", 0, "size=1m") == 0;
  }
  ~SmallDisk() {
    if (mounted) umount2(where.cStr(), MNT_DETACH);
  }
  KJ_DISALLOW_COPY_AND_MOVE(SmallDisk);

  bool mounted = false;
  bool setReadOnly() {
    return mount("tmpfs", where.cStr(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m") == 0;
  }
  void fill() {
    std::ofstream file(kj::str(where, "/fill").cStr());
    std::string block(1024, 'x');
    while (file << block << std::flush) {
    }
  }
  void empty() { unlink(kj::str(where, "/fill").cStr()); }

private:
  kj::String where;
};

std::string content(kj::StringPtr path) {
  std::ifstream file(path.cStr(), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Writes until one fails; how many were stored.
uint64_t fillByWriting(Store& store, Problem& failure) {
  auto large = kj::heapArray<char>(20000);
  memset(large.begin(), 'v', large.size());
  auto value = kj::heapString(large);
  for (uint64_t i = 0; i < 1000; ++i) {
    auto result = store.wait(store.set(kj::str("large", i), value));
    if (result.is<Problem>()) {
      failure = kj::mv(result.get<Problem>());
      return i;
    }
  }
  return 1000;
}

void checkFull(const Problem& problem, kj::StringPtr path) {
  CHECK(problem.code == ErrorCode::RESOURCE_EXHAUSTED);
  CHECK(problem.message == kj::str("state store full: ", path));
  CHECK(test::contains(problem.hint, "free space"));
  CHECK(problem.retry == RetryHint::AFTER_USER_ACTION);
}

}  // namespace

TEST_CASE("case 071: a full disk refuses writes, keeps reads, and heals when there is room") {
  TempDir temp;
  SmallDisk disk(temp.path());
  if (!disk.mounted) SKIP("only root with the right to mount can make a small disk");
  test::IoLoop loop;
  auto wait = [&](auto promise) {
    return loop.timer.timeoutAfter(60 * kj::SECONDS, kj::mv(promise)).wait(loop.waitScope);
  };
  auto path = temp / "capstan.db";
  auto database = get(wait(Database::open({.path = kj::str(path)})));
  auto put = [&](kj::StringPtr key) {
    return database->write(
        [key = kj::str(key)](Connection& db) { return SettingTable(db).put(key, "a value", 0); });
  };
  auto has = [&](kj::StringPtr key) {
    return get(wait(database->read([key = kj::str(key)](Connection& db) -> Result<bool> {
      return SettingTable(db).find(key) != nullptr;
    })));
  };
  get(wait(put("before")));

  disk.fill();
  kj::Vector<kj::String> stored, refused;
  for (int i = 0; i < 200; ++i) {
    auto key = kj::str("key", i);
    auto result = wait(put(key));
    if (result.is<Problem>()) {
      checkFull(result.get<Problem>(), path);
      refused.add(kj::mv(key));
    } else {
      stored.add(kj::mv(key));
    }
  }
  REQUIRE(refused.size() > 0);
  CHECK(database->readOnly() != nullptr);
  CHECK(has("before"));

  disk.empty();
  get(wait(put("after")));
  CHECK(database->readOnly() == nullptr);
  wait(database->close());
  database = get(wait(Database::open({.path = kj::str(path)})));
  for (auto& key: stored)
    CHECK(has(key));
  for (auto& key: refused)
    CHECK_FALSE(has(key));
  CHECK(has("after"));
}

TEST_CASE("case 071: a store cannot be begun on a full disk, and can when there is room") {
  TempDir temp;
  SmallDisk disk(temp.path());
  if (!disk.mounted) SKIP("only root with the right to mount can make a small disk");
  test::IoLoop loop;
  auto path = temp / "capstan.db";
  disk.fill();
  checkFull(problemOf(Database::open({.path = kj::str(path)}).wait(loop.waitScope)), path);
  disk.empty();
  get(Database::open({.path = kj::str(path)}).wait(loop.waitScope));
}

TEST_CASE("case 071: a state folder on a full disk is not taken, and can be when there is room") {
  TempDir temp;
  SmallDisk disk(temp.path());
  if (!disk.mounted) SKIP("only root with the right to mount can make a small disk");
  disk.fill();
  auto problem = problemOf(StateLock::take(temp.path()));
  CHECK(problem.code == ErrorCode::RESOURCE_EXHAUSTED);
  CHECK(problem.message == kj::str("state store full: ", temp / "lock"));
  CHECK(problem.hint == "free space on that file system");
  disk.empty();
  get(StateLock::take(temp.path()));
}

TEST_CASE("a failed commit fails every waiter, also those behind it, and stores none") {
  DatabaseOptions options;
  options.requestsPerCommit = 2;
  Store store(kj::mv(options));
  test::fine(store.wait(store.database->read([](Connection& db) -> Outcome {
    auto pages = db.query("PRAGMA page_count");
    KJ_REQUIRE(pages.next());
    db.script(kj::str("PRAGMA max_page_count = ", pages.integer(0) + 20));
    return nullptr;
  })));
  Problem failure;
  auto stored = fillByWriting(store, failure);
  REQUIRE(stored < 1000);
  checkFull(failure, store.path);

  test::Gate gate;
  auto held = store.hold(gate);
  auto large = kj::heapArray<char>(200000);
  memset(large.begin(), 'v', large.size());
  auto tooMuch = store.set("too-much", kj::heapString(large));
  kj::Vector<kj::Promise<Result<uint64_t>>> behind;
  for (int i = 0; i < 6; ++i)
    behind.add(store.set(kj::str("behind", i), "small"));
  auto failures = store.database->stats().failures;
  gate.open();

  checkFull(problemOf(store.wait(kj::mv(tooMuch))), store.path);
  for (auto& promise: behind)
    checkFull(problemOf(store.wait(kj::mv(promise))), store.path);
  CHECK(store.database->stats().failures == failures + 1);
  CHECK(store.setting("behind0") == "");
  CHECK(store.setting("behind5") == "");
  get(store.wait(store.set("small", "fits")));  // It is asked for after the failure was known.
  CHECK(store.database->readOnly() == nullptr);
}

TEST_CASE("a store that cannot be written is refused at the start") {
  TempDir temp;
  SmallDisk disk(temp.path());
  auto path = temp / "capstan.db";
  test::openTables(path) = nullptr;
  if (geteuid() == 0) {
    if (!disk.mounted || !disk.setReadOnly()) SKIP("root needs the right to mount");
  } else {
    REQUIRE(chmod(path.cStr(), 0400) == 0);
  }
  auto problem = problemOf(Connection::open(path, {}));
  CHECK(problem.code == ErrorCode::DENIED);
  CHECK(test::contains(problem.message, path));
}

TEST_CASE("a link, or a file that others may read, is no store") {
  TempDir temp;
  auto real = temp / "real.db", link = temp / "link.db";
  test::openTables(real) = nullptr;
  REQUIRE(symlink(real.cStr(), link.cStr()) == 0);
  CHECK(problemOf(Connection::open(link, {})).code == ErrorCode::DENIED);
  REQUIRE(chmod(real.cStr(), 0644) == 0);
  auto problem = problemOf(Connection::open(real, {}));
  CHECK(problem.code == ErrorCode::DENIED);
  CHECK(problem.hint == kj::str("chmod 600 ", real));
}

TEST_CASE("a damaged file is refused and not changed") {
  TempDir temp;
  auto path = temp / "capstan.db";
  {
    auto connection = test::openTables(path);
    SettingTable table(*connection);
    connection->script("BEGIN");
    for (int i = 0; i < 300; ++i)
      get(table.put(kj::str("key", i), "a value that takes some room in its page", 0));
    connection->script("COMMIT");
  }
  auto size = std::filesystem::file_size(path.cStr());
  size_t from = 0, to = 0;
  SECTION("pages in the middle") {
    from = 4096;
    to = size / 2;
  }
  SECTION("the header") { to = 100; }
  SECTION("cut short") { REQUIRE(truncate(path.cStr(), static_cast<off_t>(size / 2 + 100)) == 0); }
  {
    std::fstream file(path.cStr(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(from));
    file << std::string(to - from, '\x5a');
  }
  auto before = content(path);

  test::IoLoop loop;
  auto problem = problemOf(Database::open({.path = kj::str(path)}).wait(loop.waitScope));

  CHECK(problem.code == ErrorCode::STORE_CORRUPT);
  CHECK(test::contains(problem.message, path));
  CHECK(content(path) == before);
}

TEST_CASE("another program's database is refused and not changed") {
  TempDir temp;
  auto path = temp / "capstan.db";
  {
    auto connection = get(Connection::open(path, {}));
    connection->script("CREATE TABLE theirs (x); PRAGMA application_id = 7;");
  }
  auto before = content(path);
  auto problem = problemOf(Connection::open(path, {}));
  CHECK(problem.code == ErrorCode::STORE_CORRUPT);
  CHECK(content(path) == before);
}

TEST_CASE("damage that is met at work stops all writes for good") {
  Store store;
  test::fine(store.wait(store.database->write([](Connection& db) -> Outcome {
    SettingTable table(db);
    for (int i = 0; i < 200; ++i)
      get(table.put(kj::str("key", i), "a value that takes some room in its page", 0));
    return nullptr;
  })));
  store.wait(store.database->close());
  store.database = get(store.wait(Database::open({.path = kj::str(store.path)})));
  test::fine(store.wait(store.database->read([](Connection& db) -> Outcome {
    db.script("PRAGMA shrink_memory");
    return nullptr;
  })));
  {
    auto size = std::filesystem::file_size(store.path.cStr());
    std::fstream file(store.path.cStr(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(size - 4096, '\x5a');
  }
  auto first = problemOf(store.wait(store.set("new", "x")));
  CHECK(first.code == ErrorCode::STORE_CORRUPT);
  CHECK(problemOf(store.wait(store.set("newer", "x"))).code == ErrorCode::STORE_CORRUPT);
  CHECK(KJ_ASSERT_NONNULL(store.database->readOnly()).code == ErrorCode::STORE_CORRUPT);
}

TEST_CASE("what was acknowledged is there after the process was killed") {
  TempDir temp;
  auto path = temp / "capstan.db";
  uint64_t last = 0;
  constexpr uint64_t KILL_AFTER[] = {0, 1, 2, 7, 40, 90};
  for (uint64_t acknowledgements: KILL_AFTER) {
    int acks[2];
    KJ_SYSCALL(pipe2(acks, O_CLOEXEC));
    pid_t pid;
    KJ_SYSCALL(pid = fork());
    if (pid == 0) {
      test::IoLoop loop;
      auto database = get(Database::open({.path = kj::str(path)}).wait(loop.waitScope));
      for (uint64_t i = last + 1;; i += 8) {
        kj::Vector<kj::Promise<Result<uint64_t>>> together;
        for (uint64_t k = i; k < i + 8; ++k) {
          together.add(database->write([k](Connection& db) {
            db.run("DELETE FROM setting WHERE key = ?", kj::str("key", k));
            return SettingTable(db).put(kj::str("key", k), "value", 0);
          }));
        }
        for (uint64_t k = i; k < i + 8; ++k) {
          if (together[k - i].wait(loop.waitScope).is<Problem>()) _exit(1);
          (void)!write(acks[1], &k, sizeof(k));
        }
      }
    }
    close(acks[1]);
    uint64_t seen = 0, next = last;
    while (seen <= acknowledgements && read(acks[0], &next, sizeof(next)) == sizeof(next)) {
      ++seen;
      last = next;
    }
    kill(pid, SIGKILL);
    while (read(acks[0], &next, sizeof(next)) == sizeof(next))
      last = next;
    close(acks[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    REQUIRE((WIFSIGNALED(status) && seen == acknowledgements + 1));
  }
  auto connection = test::openTables(path);
  SettingTable table(*connection);
  for (uint64_t i = 1; i <= last; ++i)
    CHECK(table.find(kj::str("key", i)) != nullptr);
  CHECK(last > 100);
}

}  // namespace capstan
