#pragma once
// SQLite without Capstan: what a durable commit costs on this disk.

#include <kj/array.h>
#include <kj/string.h>

struct sqlite3;
struct sqlite3_stmt;

namespace capstan::bench {

// The row that every store measure writes, and its table.
constexpr size_t ROW_OCTETS = 400;
constexpr kj::StringPtr CREATE_ROWS =
    "CREATE TABLE bench_rows (id INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT"_kj;
constexpr kj::StringPtr INSERT_ROW = "INSERT INTO bench_rows (value) VALUES (?)"_kj;
kj::ArrayPtr<const kj::byte> rowValue();

// A database file of its own in `folder`, with the store's pragmas; removed at the end.
class BareSqlite {
public:
  explicit BareSqlite(kj::StringPtr folder);
  ~BareSqlite() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(BareSqlite);

  // Inserts one row in a transaction of its own; returns when it is durable.
  void commit();

private:
  kj::String path;
  sqlite3* database = nullptr;
  sqlite3_stmt* insert = nullptr;

  void run(kj::StringPtr sql);
};

}  // namespace capstan::bench
