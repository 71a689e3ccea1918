#include "store-fixture.h"
#include "store/secret-box.h"
#include "store/secret-table.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

using test::get;
using test::problemOf;
using test::TempDir;

namespace {

constexpr kj::StringPtr PLANTED = "planted-secret-5b1f0c77"_kj;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

kj::String textOf(const SecretBytes& bytes) {
  auto octets = bytes.asPtr();
  return kj::heapString(reinterpret_cast<const char*>(octets.begin()), octets.size());
}

SecretRecord user(kj::StringPtr id, kj::StringPtr name) {
  SecretRecord record;
  record.id = kj::str(id);
  record.name = kj::str(name);
  return record;
}

}  // namespace

TEST_CASE("a sealed value opens as its row only, and never twice the same") {
  TempDir temp;
  SystemEntropy entropy;
  auto box = get(SecretBox::open(temp.path(), entropy));
  auto sealed = get(box.seal("row-1", PLANTED.asBytes(), entropy));
  CHECK(sealed.size() == PLANTED.size() + SecretBox::OVERHEAD);
  CHECK(textOf(get(box.open("row-1", sealed))) == PLANTED);
  CHECK(get(box.seal("row-1", PLANTED.asBytes(), entropy)) != sealed);
  auto problem = problemOf(box.open("row-2", sealed));
  CHECK(problem.code == ErrorCode::STORE_CORRUPT);
  CHECK(test::contains(problem.message, "row-2"));
  CHECK(get(box.open("e", get(box.seal("e", nullptr, entropy)))).asPtr().size() == 0);
  CHECK(kj::str(get(box.open("row-1", sealed))) == "(secret)");
  // The key outlives the process.
  auto again = get(SecretBox::open(temp.path(), entropy));
  CHECK(textOf(get(again.open("row-1", sealed))) == PLANTED);
}

TEST_CASE("every changed octet of a sealed value is found") {
  TempDir temp;
  SystemEntropy entropy;
  auto box = get(SecretBox::open(temp.path(), entropy));
  auto sealed = get(box.seal("row", PLANTED.asBytes(), entropy));
  for (size_t i = 0; i < sealed.size(); ++i) {
    sealed[i] ^= 1;
    auto problem = problemOf(box.open("row", sealed));
    CHECK(problem.code == ErrorCode::STORE_CORRUPT);
    CHECK_FALSE(test::contains(kj::str(problem), PLANTED));
    sealed[i] ^= 1;
  }
  for (size_t length = 0; length < sealed.size(); ++length)
    CHECK(box.open("row", sealed.slice(0, length)).is<Problem>());
}

TEST_CASE("another key does not open it and says which file is missing") {
  TempDir one, two;
  SystemEntropy entropy;
  auto sealed =
      get(get(SecretBox::open(one.path(), entropy)).seal("r", PLANTED.asBytes(), entropy));
  auto problem = problemOf(get(SecretBox::open(two.path(), entropy)).open("r", sealed));
  CHECK(problem.code == ErrorCode::STORE_CORRUPT);
  CHECK(test::contains(problem.hint, two.path()));
}

TEST_CASE("a key file that is not exactly ours is refused") {
  TempDir temp;
  SystemEntropy entropy;
  auto path = temp / "secret.key";
  get(SecretBox::open(temp.path(), entropy));
  struct stat info;
  REQUIRE(stat(path.cStr(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  CHECK(info.st_size == 32);
  kj::StringPtr part;
  SECTION("mode") {
    REQUIRE(chmod(path.cStr(), 0640) == 0);
    part = "0640"_kj;
  }
  SECTION("size") {
    REQUIRE(truncate(path.cStr(), 31) == 0);
    part = "31 octets"_kj;
  }
  SECTION("symbolic link") {
    auto real = temp / "real";
    REQUIRE(rename(path.cStr(), real.cStr()) == 0);
    REQUIRE(symlink(real.cStr(), path.cStr()) == 0);
    part = "symbolic link"_kj;
  }
  SECTION("folder") {
    REQUIRE(unlink(path.cStr()) == 0);
    REQUIRE(mkdir(path.cStr(), 0600) == 0);
    part = "regular file"_kj;
  }
  if (geteuid() == 0) {  // Nobody else can give a file away.
    SECTION("owner") {
      REQUIRE(chown(path.cStr(), 12345, 0) == 0);
      part = "user 12345"_kj;
    }
  }
  auto problem = problemOf(SecretBox::open(temp.path(), entropy));
  CHECK(problem.code == ErrorCode::DENIED);
  CHECK(test::contains(problem.message, path));
  CHECK(test::contains(problem.cause, part));
}

TEST_CASE("a lost key is not replaced when there are sealed values") {
  TempDir temp;
  SystemEntropy entropy;
  auto problem = problemOf(SecretBox::open(temp.path(), entropy, SecretBox::WhenAbsent::REFUSE));
  CHECK(problem.code == ErrorCode::DENIED);
  CHECK_FALSE(std::filesystem::exists((temp / "secret.key").cStr()));
}

TEST_CASE("a new key seals every row again, also when it was interrupted") {
  TempDir temp;
  SystemEntropy entropy;
  auto db = test::openTables(temp / "capstan.db");
  SecretTable table(*db);
  auto box = get(SecretBox::open(temp.path(), entropy));
  for (int i = 0; i < 5; ++i) {
    auto id = kj::str("sec-", i);
    get(table.put(user(id, kj::str("name", i)), get(box.seal(id, PLANTED.asBytes(), entropy))));
  }
  auto before = content((temp / "secret.key").cStr());
  test::fine(box.beginRotation(entropy));
  auto cursor = get(table.reseal(box, entropy, "", 2));
  CHECK(cursor == "sec-1");

  // The process ends here; the next one finds two keys and reads rows of both.
  box = get(SecretBox::open(temp.path(), entropy));
  CHECK(box.isRotating());
  for (int i = 0; i < 5; ++i) {
    auto id = kj::str("sec-", i);
    CHECK(textOf(get(box.open(id, KJ_ASSERT_NONNULL(table.sealed(id))))) == PLANTED);
  }
  test::fine(box.beginRotation(entropy));
  for (cursor = kj::str();;) {
    cursor = get(table.reseal(box, entropy, cursor, 2));
    if (cursor.size() == 0) break;
  }
  test::fine(box.finishRotation());

  CHECK_FALSE(box.isRotating());
  CHECK(content((temp / "secret.key").cStr()) != before);
  CHECK_FALSE(std::filesystem::exists((temp / "secret.key.next").cStr()));
  box = get(SecretBox::open(temp.path(), entropy));
  for (int i = 0; i < 5; ++i) {
    auto id = kj::str("sec-", i);
    auto sealed = KJ_ASSERT_NONNULL(table.sealed(id));
    CHECK(box.isCurrent(sealed));
    CHECK(textOf(get(box.open(id, sealed))) == PLANTED);
  }
}

TEST_CASE("secrets have one name, versions, and are used only where they were allowed") {
  TempDir temp;
  auto db = test::openTables(temp / "capstan.db");
  SecretTable table(*db);
  CHECK_FALSE(table.any());
  auto value = kj::heapArray<kj::byte>({1, 2, 3});
  CHECK(get(table.put(user("sec-1", "token"), value)) == 1);
  CHECK(problemOf(table.put(user("sec-2", "token"), value)).code == ErrorCode::ALREADY_EXISTS);
  auto change = user("sec-1", "token");
  change.version = 1;
  CHECK(get(table.put(change, value)) == 2);
  CHECK(problemOf(table.put(change, value)).retry == RetryHint::AFTER_REFRESH);
  CHECK(KJ_ASSERT_NONNULL(table.findByName("token")).id == "sec-1");

  test::fine(EnvironmentTable(*db).add(test::environment("env-1", "t1")));
  CHECK_FALSE(table.isAllowed("sec-1", "env-1", ""));
  test::fine(table.allowEnvironment("sec-1", "env-1"));
  test::fine(table.allowEnvironment("sec-1", "env-1"));
  CHECK(table.isAllowed("sec-1", "env-1", ""));
  CHECK_FALSE(table.isAllowed("sec-1", "env-2", ""));
  CHECK(problemOf(table.allowEnvironment("sec-1", "env-9")).code == ErrorCode::NOT_FOUND);
  CHECK(problemOf(table.allowProfile("sec-1", "p-9")).code == ErrorCode::NOT_FOUND);
  CHECK(table.listNames("", 10).size() == 1);
  test::fine(table.remove("sec-1"));
  CHECK_FALSE(table.isAllowed("sec-1", "env-1", ""));
}

TEST_CASE("no file of the store and no error holds a secret in the clear") {
  SystemEntropy entropy;
  test::Store store;
  auto box = get(SecretBox::open(store.temp.path(), entropy));
  auto sealed = get(box.seal("sec-1", PLANTED.asBytes(), entropy));
  auto put = [&]() {
    return store.wait(
        store.database->write([sealed = kj::heapArray(sealed.asPtr())](Connection& db) {
          return SecretTable(db).put(user("sec-1", "name"), sealed);
        }));
  };
  get(put());
  CHECK_FALSE(test::contains(kj::str(problemOf(put())), PLANTED));
  auto search = [&]() {
    size_t files = 0;
    for (auto& entry: std::filesystem::recursive_directory_iterator(store.temp.path().cStr())) {
      if (!entry.is_regular_file()) continue;
      ++files;
      CHECK(content(entry.path()).find(PLANTED.cStr()) == std::string::npos);
    }
    return files;
  };
  CHECK(search() >= 3);  // With the log.
  store.wait(store.database->close());
  CHECK(search() >= 2);
}

}  // namespace capstan
