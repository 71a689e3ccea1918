#include "store/database-connection.h"

#include "store/schema.h"

#include <kj/io.h>

#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

// Far above the number of statements in the program: a text made at run time is a mistake.
constexpr size_t MOST_STATEMENTS = 512;
constexpr int CHECKPOINT_WAIT_MS = 100;

[[noreturn]] void fail(sqlite3* handle, int code) {
  int extended = handle == nullptr ? code : sqlite3_extended_errcode(handle);
  // A misuse leaves the connection's own code alone.
  if ((extended & 0xff) != (code & 0xff)) extended = code;
  // SQLite keeps the last failed system call's errno: it belongs to failures of these kinds only.
  bool system = (extended & 0xff) == SQLITE_IOERR || (extended & 0xff) == SQLITE_CANTOPEN;
  throw SqliteFailure{extended, system && handle != nullptr ? sqlite3_system_errno(handle) : 0,
                      kj::str(handle == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle))};
}

Problem refusedFile(kj::StringPtr path, kj::String cause) {
  return Problem(ErrorCode::DENIED, kj::str("cannot use the state store ", path))
      .because(kj::mv(cause))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

// Makes the file with its mode before SQLite would, and refuses what is not a file of ours.
Outcome prepareFile(kj::StringPtr path) {
  int fd = open(path.cStr(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    int error = errno;
    if (error == ELOOP) return refusedFile(path, kj::str("it is a symbolic link"));
    if (error == ENOSPC || error == EDQUOT) {
      return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("state store full: ", path))
          .because(kj::str(strerror(error)))
          .advise(kj::str("free space on that file system, then try again"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    }
    return refusedFile(path, kj::str(strerror(error)))
        .advise(kj::str("the daemon's user must be able to write it; or choose another "
                        "--state-dir"));
  }
  kj::AutoCloseFd file(fd);
  struct stat info;
  KJ_SYSCALL(fstat(fd, &info));
  if (!S_ISREG(info.st_mode)) return refusedFile(path, kj::str("it is no regular file"));
  if (info.st_uid != geteuid()) {
    return refusedFile(path, kj::str("it belongs to user ", info.st_uid));
  }
  if ((info.st_mode & 077) != 0) {
    return refusedFile(path, kj::str("others have rights to it"))
        .advise(kj::str("chmod 600 ", path));
  }
  return nullptr;
}

}  // namespace

Query::~Query() noexcept(false) {
  if (statement == nullptr) return;
  sqlite3_reset(statement);  // Its code repeats the last step's, which was thrown already.
  sqlite3_clear_bindings(statement);
}

bool Query::next() {
  int code = sqlite3_step(statement);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail(connection, code);
  return false;
}

int64_t Query::integer(int column) const { return sqlite3_column_int64(statement, column); }

kj::String Query::text(int column) const {
  auto begin = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
  if (begin == nullptr) return kj::str();
  return kj::heapString(begin, sqlite3_column_bytes(statement, column));
}

kj::Array<kj::byte> Query::bytes(int column) const {
  auto begin = static_cast<const kj::byte*>(sqlite3_column_blob(statement, column));
  if (begin == nullptr) return nullptr;
  return kj::heapArray(begin, sqlite3_column_bytes(statement, column));
}

bool Query::isNull(int column) const {
  return sqlite3_column_type(statement, column) == SQLITE_NULL;
}

Result<kj::Own<Connection>> Connection::open(kj::StringPtr path, ConnectionOptions options) {
  KJ_IF_MAYBE (problem, prepareFile(path)) {
    return kj::mv(*problem);
  }
  auto connection = kj::heap<Connection>(Token(), path);
  auto& self = *connection;
  // One thread at a time: SQLite's own mutexes are not needed.
  int code = sqlite3_open_v2(
      path.cStr(), &self.handle,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
      nullptr);
  try {
    self.check(code);
    self.busyTimeoutMs = options.busyTimeoutMs;
    sqlite3_busy_timeout(self.handle, self.busyTimeoutMs);
    if (sqlite3_db_readonly(self.handle, "main") == 1) {
      return refusedFile(path, kj::str("it is read-only"));
    }
    sqlite3_db_config(self.handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(self.handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    // Until it is known to be ours and whole, not even its end may change the file.
    sqlite3_db_config(self.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    KJ_IF_MAYBE (problem, self.verify()) {
      return kj::mv(*problem);
    }
    self.script(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
        // The log does not stay as large as one burst made it.
        "PRAGMA journal_size_limit=4194304; PRAGMA temp_store=MEMORY;");
    sqlite3_db_config(self.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  } catch (const SqliteFailure& failure) {
    return self.explain(failure);
  }
  return kj::mv(connection);
}

Outcome Connection::verify() {
  script("PRAGMA cell_size_check=ON;");
  auto damaged = [this](kj::String cause) {
    return Problem(ErrorCode::STORE_CORRUPT, kj::str("the state store ", file, " is damaged"))
        .because(kj::mv(cause))
        .advise(kj::str("nothing was changed; put back a copy of it, or move it away to begin "
                        "with an empty one"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  };
  {
    auto check = query("PRAGMA quick_check(1)");
    if (!check.next()) return damaged(kj::str("it cannot be checked"));
    auto verdict = check.text(0);
    if (verdict != "ok") return damaged(kj::mv(verdict));
  }
  int64_t tables = 0, application = 0, version = 0;
  {
    auto count = query("SELECT count(*) FROM sqlite_schema");
    if (count.next()) tables = count.integer(0);
  }
  {
    auto id = query("PRAGMA application_id");
    if (id.next()) application = id.integer(0);
  }
  {
    auto number = query("PRAGMA user_version");
    if (number.next()) version = number.integer(0);
  }
  if ((tables > 0 || version != 0) && application != STORE_APPLICATION_ID) {
    return Problem(ErrorCode::STORE_CORRUPT, kj::str(file, " is some other program's database"))
        .advise(kj::str("nothing was changed; move it away, or choose another --state-dir"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  return nullptr;
}

Connection::~Connection() noexcept(false) {
  for (auto& entry: statements)
    sqlite3_finalize(entry.value);
  sqlite3_close_v2(handle);
}

void Connection::check(int code) const {
  if (code != SQLITE_OK) fail(handle, code);
}

Query Connection::start(kj::StringPtr sql, kj::ArrayPtr<const Bound> parameters) {
  sqlite3_stmt* statement = nullptr;
  KJ_IF_MAYBE (kept, statements.find(sql)) {
    statement = *kept;
    KJ_REQUIRE(sqlite3_stmt_busy(statement) == 0, "a statement is used inside itself", sql);
  } else {
    KJ_REQUIRE(statements.size() < MOST_STATEMENTS, "statements are literals", sql);
    check(sqlite3_prepare_v3(handle, sql.cStr(), static_cast<int>(sql.size()),
                             SQLITE_PREPARE_PERSISTENT, &statement, nullptr));
    statements.insert(kj::str(sql), statement);
  }
  KJ_REQUIRE(sqlite3_bind_parameter_count(statement) == static_cast<int>(parameters.size()),
             "wrong number of parameters", sql);
  Query result(handle, statement);
  int index = 0;
  for (auto& bound: parameters) {
    ++index;
    auto text = reinterpret_cast<const char*>(bound.data.begin());
    switch (bound.kind) {
      case Bound::Kind::NOTHING:
        break;  // Unbound is NULL.
      case Bound::Kind::INTEGER:
        check(sqlite3_bind_int64(statement, index, bound.number));
        break;
      case Bound::Kind::TEXT:
        check(sqlite3_bind_text64(statement, index, bound.data.size() == 0 ? "" : text,
                                  bound.data.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
        break;
      case Bound::Kind::BYTES:
        if (bound.data.size() == 0) {
          check(sqlite3_bind_zeroblob(statement, index, 0));
        } else {
          check(sqlite3_bind_blob64(statement, index, text, bound.data.size(), SQLITE_TRANSIENT));
        }
        break;
    }
  }
  return result;
}

void Connection::script(kj::StringPtr sql) {
  check(sqlite3_exec(handle, sql.cStr(), nullptr, nullptr, nullptr));
}

uint64_t Connection::changes() const { return sqlite3_changes64(handle); }

bool Connection::inTransaction() const { return sqlite3_get_autocommit(handle) == 0; }

void Connection::checkpoint() {
  // While it waits for readers it holds the writer's lock, so that a process which reads and then
  // writes would wait for us.
  sqlite3_busy_timeout(handle, std::min(busyTimeoutMs, CHECKPOINT_WAIT_MS));
  int code =
      sqlite3_wal_checkpoint_v2(handle, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  sqlite3_busy_timeout(handle, busyTimeoutMs);
  if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY && (code & 0xff) != SQLITE_LOCKED) {
    fail(handle, code);
  }
}

bool Connection::isFull(const SqliteFailure& failure) {
  if ((failure.code & 0xff) == SQLITE_FULL) return true;
  bool noRoom = failure.systemError == ENOSPC || failure.systemError == EDQUOT ||
                failure.systemError == EFBIG;
  auto kind = failure.code & 0xff;
  return noRoom && (kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN);
}

bool Connection::isCorrupt(const SqliteFailure& failure) {
  auto kind = failure.code & 0xff;
  return kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB;
}

bool Connection::isOfStatement(const SqliteFailure& failure) {
  switch (failure.code & 0xff) {
    case SQLITE_CONSTRAINT:
    case SQLITE_ERROR:
    case SQLITE_MISMATCH:
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_TOOBIG:
      return true;
    default:
      return false;
  }
}

Problem Connection::explain(const SqliteFailure& failure) const {
  auto cause = failure.systemError == 0
                   ? kj::str(failure.text)
                   : kj::str(failure.text, ": ", strerror(failure.systemError));
  auto upstream = kj::str(failure.code);
  if (isFull(failure)) {
    return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("state store full: ", file))
        .because(kj::mv(cause))
        .advise(kj::str("free space on that file system; what runs goes on, new work is refused "
                        "until then"))
        .from("sqlite", kj::mv(upstream))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  switch (failure.code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Problem(ErrorCode::STORE_CORRUPT, kj::str("the state store ", file, " is damaged"))
          .because(kj::mv(cause))
          .advise(kj::str("stop the daemon, then put back a copy of it, or move it away to begin "
                          "with an empty one"))
          .from("sqlite", kj::mv(upstream))
          .retryable(RetryHint::AFTER_USER_ACTION);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Problem(ErrorCode::STATE_LOCKED,
                     kj::str("another process keeps the state store ", file, " locked"))
          .because(kj::mv(cause))
          .advise(kj::str("end what has it open (fuser ", file, ")"))
          .from("sqlite", kj::mv(upstream))
          .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return Problem(ErrorCode::DENIED, kj::str("cannot write the state store ", file))
          .because(kj::mv(cause))
          .advise(kj::str("the daemon's user must be able to write the file and its folder"))
          .from("sqlite", kj::mv(upstream))
          .retryable(RetryHint::AFTER_USER_ACTION);
    case SQLITE_CONSTRAINT:
      if (failure.code == SQLITE_CONSTRAINT_UNIQUE ||
          failure.code == SQLITE_CONSTRAINT_PRIMARYKEY) {
        return Problem(ErrorCode::ALREADY_EXISTS, kj::str("the store has such a row already"))
            .because(kj::mv(cause))
            .from("sqlite", kj::mv(upstream));
      }
      if (failure.code == SQLITE_CONSTRAINT_FOREIGNKEY) {
        return Problem(ErrorCode::WRONG_STATE,
                       kj::str("another row of the store is missing, or still needs this one"))
            .because(kj::mv(cause))
            .from("sqlite", kj::mv(upstream));
      }
      break;
    default:
      break;
  }
  return Problem(ErrorCode::INTERNAL, kj::str("the state store ", file, " failed"))
      .because(kj::mv(cause))
      .from("sqlite", kj::mv(upstream));
}

}  // namespace capstan
