#include "tools/capstan-bench/bare-sqlite.h"

#include <kj/debug.h>

#include <sqlite3.h>

#include <unistd.h>

namespace capstan::bench {

kj::ArrayPtr<const kj::byte> rowValue() {
  static const kj::byte value[ROW_OCTETS] = {};
  return value;
}

BareSqlite::BareSqlite(kj::StringPtr folder): path(kj::str(folder, "/bare-", getpid(), ".db")) {
  KJ_REQUIRE(sqlite3_open(path.cStr(), &database) == SQLITE_OK, "cannot open", path);
  run("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
      "PRAGMA journal_size_limit=4194304; PRAGMA temp_store=MEMORY; PRAGMA cell_size_check=ON;"_kj);
  run(CREATE_ROWS);
  KJ_REQUIRE(sqlite3_prepare_v2(database, INSERT_ROW.cStr(), -1, &insert, nullptr) == SQLITE_OK,
             sqlite3_errmsg(database));
}

BareSqlite::~BareSqlite() noexcept(false) {
  sqlite3_finalize(insert);
  sqlite3_close(database);
  for (auto suffix: {"", "-wal", "-shm"}) {
    unlink(kj::str(path, suffix).cStr());
  }
}

void BareSqlite::run(kj::StringPtr sql) {
  KJ_REQUIRE(sqlite3_exec(database, sql.cStr(), nullptr, nullptr, nullptr) == SQLITE_OK, sql,
             sqlite3_errmsg(database));
}

void BareSqlite::commit() {
  auto value = rowValue();
  sqlite3_bind_blob(insert, 1, value.begin(), static_cast<int>(value.size()), SQLITE_STATIC);
  KJ_REQUIRE(sqlite3_step(insert) == SQLITE_DONE, sqlite3_errmsg(database));
  sqlite3_reset(insert);
}

}  // namespace capstan::bench
