#pragma once
// One connection to the database file, used by one thread at a time. With database.c++ the only
// code that knows SQLite.

#include "base/problem.h"

#include <kj/function.h>
#include <kj/map.h>

struct sqlite3;
struct sqlite3_stmt;

namespace capstan {

// A call of SQLite that failed. Thrown by Connection and Query, never leaves the store: whoever
// runs work on a Connection turns it into a Problem by Connection::explain().
struct SqliteFailure {
  int code;         // Extended result code.
  int systemError;  // errno of the failing system call, 0 = none.
  kj::String text;  // SQLite's own words. Holds names of tables and columns, never values.
};

// One run of a prepared statement. Its statement goes back to the cache at the end.
class Query {
public:
  Query(Query&& other): connection(other.connection), statement(other.statement) {
    other.statement = nullptr;
  }
  ~Query() noexcept(false);
  KJ_DISALLOW_COPY(Query);

  // Steps to the next row; false at the end. Throws SqliteFailure.
  bool next();

  // Columns of the current row, from 0. A NULL is 0, empty, or null for the maybe- forms.
  int64_t integer(int column) const;
  kj::String text(int column) const;
  kj::Array<kj::byte> bytes(int column) const;
  bool isNull(int column) const;

private:
  friend class Connection;
  Query(sqlite3* connection, sqlite3_stmt* statement)
      : connection(connection), statement(statement) {}

  sqlite3* connection;
  sqlite3_stmt* statement;
};

// What a statement's parameter is bound to. Borrows; lives for one call.
class Bound {
public:
  Bound(decltype(nullptr)): kind(Kind::NOTHING) {}
  Bound(int64_t number): kind(Kind::INTEGER), number(number) {}
  Bound(uint64_t number): kind(Kind::INTEGER), number(static_cast<int64_t>(number)) {}
  Bound(int number): kind(Kind::INTEGER), number(number) {}
  Bound(uint32_t number): kind(Kind::INTEGER), number(number) {}
  Bound(bool yes): kind(Kind::INTEGER), number(yes) {}
  Bound(kj::StringPtr text)
      : kind(Kind::TEXT), data(reinterpret_cast<const kj::byte*>(text.begin()), text.size()) {}
  Bound(const kj::String& text): Bound(kj::StringPtr(text)) {}
  Bound(kj::ArrayPtr<const kj::byte> bytes): kind(Kind::BYTES), data(bytes) {}
  Bound(const kj::Array<kj::byte>& bytes): Bound(bytes.asPtr()) {}

private:
  friend class Connection;
  enum class Kind { NOTHING, INTEGER, TEXT, BYTES };
  Kind kind;
  int64_t number = 0;
  kj::ArrayPtr<const kj::byte> data;
};

// An empty text as NULL, for columns where NULL means "not given".
inline Bound orNull(kj::StringPtr text) { return text.size() == 0 ? Bound(nullptr) : Bound(text); }

struct ConnectionOptions {
  int busyTimeoutMs = 5000;  // How long a lock of another process is waited for.
};

// The open database. Not for several threads at once, but for one after the other.
class Connection {
public:
  // Opens `path`, made with mode 0600 if absent, and checks it before anything in it is changed:
  // denied when it is a symbolic link, another user's or read-only; storeCorrupt when it is damaged
  // or some other program's; stateLocked when another process holds a lock for too long;
  // resourceExhausted when the disk is full. Does not migrate.
  static Result<kj::Own<Connection>> open(kj::StringPtr path, ConnectionOptions options);
  ~Connection() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Connection);

  // Runs a statement with its parameters bound in order. `sql` is a literal: the prepared statement
  // is kept by its text. Throws SqliteFailure. A statement must not be used again while its Query
  // lives.
  template <typename... Parameters>
  Query query(kj::StringPtr sql, const Parameters&... parameters) {
    Bound bound[] = {Bound(nullptr), Bound(parameters)...};
    return start(sql, kj::arrayPtr(bound + 1, sizeof...(parameters)));
  }
  // For statements without rows; returns how many rows changed.
  template <typename... Parameters>
  uint64_t run(kj::StringPtr sql, const Parameters&... parameters) {
    auto query = this->query(sql, parameters...);
    while (query.next()) {
    }
    return changes();
  }
  // Several statements without parameters, not cached; for schemas and pragmas.
  void script(kj::StringPtr sql);

  // Whether a transaction is open: some failures end it.
  bool inTransaction() const;
  // Moves the write-ahead log into the database and empties it; gives up quietly when somebody
  // reads for longer than a moment.
  void checkpoint();

  // What a failure means for people. Names the file and the cure.
  Problem explain(const SqliteFailure& failure) const;
  static bool isFull(const SqliteFailure& failure);
  static bool isCorrupt(const SqliteFailure& failure);
  // A broken rule of the schema or a mistake in the statement: the database is well.
  static bool isOfStatement(const SqliteFailure& failure);

  kj::StringPtr path() const { return file; }

private:
  struct Token {};

public:
  // For open() only.
  Connection(Token, kj::StringPtr path): file(kj::str(path)) {}

private:
  kj::String file;
  sqlite3* handle = nullptr;
  int busyTimeoutMs = 0;
  kj::HashMap<kj::String, sqlite3_stmt*> statements;

  Query start(kj::StringPtr sql, kj::ArrayPtr<const Bound> parameters);
  uint64_t changes() const;
  void check(int code) const;
  Outcome verify();
};

}  // namespace capstan
