#include "store/schema.h"

#include "store-fixture.h"
#include "store/inventory-table.h"
#include "store/profile-table.h"
#include "store/run-table.h"
#include "store/running-record-table.h"
#include "store/setting-table.h"

#include <fstream>
#include <iterator>
#include <string>

namespace capstan {

using test::get;
using test::problemOf;
using test::TempDir;

namespace {

std::string content(kj::StringPtr path) {
  std::ifstream file(path.cStr(), std::ios::binary);
  REQUIRE(file.good());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

kj::String frozen(kj::StringPtr name) {
  auto text = content(kj::str(COMPAT_STORE, "/", name));
  return kj::heapString(text.data(), text.size());
}

// Every table and index, with its SQL.
kj::String shape(Connection& db) {
  kj::Vector<kj::String> parts;
  auto row = db.query("SELECT name, sql FROM sqlite_schema ORDER BY name LIMIT 1000");
  while (row.next())
    parts.add(kj::str(row.text(0), ": ", row.text(1)));
  return kj::strArray(parts, "\n");
}

int64_t version(Connection& db) {
  auto row = db.query("PRAGMA user_version");
  REQUIRE(row.next());
  return row.integer(0);
}

}  // namespace

TEST_CASE("a released migration never changes") {
  for (auto& step: migrations()) {
    CAPTURE(step.version);
    CHECK(frozen(kj::str("version-", step.version, ".sql")) == step.sql);
  }
}

TEST_CASE("a new database has the newest schema, its mark and the system executors") {
  TempDir temp;
  auto db = test::openTables(temp / "capstan.db");
  CHECK(version(*db) == schemaVersion());
  auto id = db->query("PRAGMA application_id");
  REQUIRE(id.next());
  CHECK(id.integer(0) == STORE_APPLICATION_ID);
  auto rows = ExecutorTable(*db).list("", 10);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].id == "exec-local-docker");
  CHECK(rows[0].name == "Local Docker");
  CHECK(rows[1].id == "exec-local-pc");
  CHECK(rows[1].name == "Local PC");
  CHECK(rows[1].isSystem);
}

TEST_CASE("a database of version 1 becomes a current one with all its rows") {
  TempDir temp;
  auto path = temp / "capstan.db";
  {
    auto old = get(Connection::open(path, {}));
    old->script(frozen("version-1.sql"));
    old->script("PRAGMA user_version = 1");
    old->script(frozen("version-1-rows.sql"));
  }
  auto db = test::openTables(path);
  CHECK(version(*db) == schemaVersion());
  CHECK(shape(*db) == shape(*test::openTables(temp / "new.db")));

  auto environment = KJ_ASSERT_NONNULL(EnvironmentTable(*db).find("env-1"));
  CHECK(environment.spec.taskId == "task-1");
  CHECK(environment.spec.workspace.kind == WorkspaceSpec::Kind::DIRECTORY);
  CHECK(environment.spec.workspace.directory == "/srv/work");
  REQUIRE(environment.spec.labels.size() == 1);
  CHECK(environment.spec.labels[0].value == "blue");
  auto run = KJ_ASSERT_NONNULL(RunTable(*db).find("r-1"));
  REQUIRE(run.spec.command.size() == 2);
  CHECK(run.spec.command[1] == "--fast");
  CHECK(run.spec.variables[0].secret == "api-key");
  CHECK(KJ_ASSERT_NONNULL(run.spec.terminal).columns == 120);
  CHECK(KJ_ASSERT_NONNULL(KJ_ASSERT_NONNULL(run.outcome).exit).signal == "TERM");
  CHECK(KJ_ASSERT_NONNULL(RunningRecordTable(*db).find("s-1")).resumeToken == "resume-me");
  CHECK(InventoryTable(*db).list("env-1", InventoryTable::Order::OLDEST_FIRST)[0].identity ==
        "inode 7");
  CHECK(KJ_ASSERT_NONNULL(ProfileTable(*db).find("p-1")).variables[0].key == "KEY");
  CHECK(KJ_ASSERT_NONNULL(SettingTable(*db).find("default-executor")).value == "exec-local-pc");
}

TEST_CASE("a newer database is refused with both versions and not changed") {
  TempDir temp;
  auto path = temp / "capstan.db";
  test::openTables(path)->script("PRAGMA user_version = 99");
  auto before = content(path);
  test::IoLoop loop;
  auto problem = problemOf(Database::open({.path = kj::str(path)}).wait(loop.waitScope));
  CHECK(problem.code == ErrorCode::UNSUPPORTED);
  CHECK(test::contains(problem.message, "newer"));
  CHECK(test::contains(problem.cause, "99"));
  CHECK(content(path) == before);
}

TEST_CASE("migrations run in order, each whole or not at all") {
  TempDir temp;
  auto db = get(Connection::open(temp / "capstan.db", {}));
  const Migration steps[] = {
      {1, "CREATE TABLE first (x INTEGER) STRICT"_kj},
      {2, "CREATE TABLE second (x INTEGER) STRICT; INSERT INTO first VALUES (1)"_kj},
      {3, "CREATE TABLE third (x INTEGER) STRICT; INSERT INTO missing VALUES (1)"_kj},
  };
  test::fine(migrate(*db, kj::arrayPtr(steps, 1)));
  CHECK(version(*db) == 1);
  auto problem = problemOf(migrate(*db, steps));
  CHECK(test::contains(problem.cause, "missing"));
  CHECK(version(*db) == 2);
  CHECK(test::contains(shape(*db), "second"));
  CHECK_FALSE(test::contains(shape(*db), "third"));
  test::fine(migrate(*db, kj::arrayPtr(steps, 2)));  // Nothing is done twice.
  auto count = db->query("SELECT count(*) FROM first");
  REQUIRE(count.next());
  CHECK(count.integer(0) == 1);
}

}  // namespace capstan
