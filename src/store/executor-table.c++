#include "store/executor-table.h"

#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr STATUS[] = {"active"_kj, "disabled"_kj};

#define EXECUTOR_COLUMNS                                                                  \
  "id, name, type, status, is_system, resumable, config_values, created_ms, updated_ms, " \
  "deleted_ms, version"

ExecutorRecord read(Query& row) {
  ExecutorRecord record;
  record.id = row.text(0);
  record.name = row.text(1);
  record.type = row.text(2);
  record.status = valueOf<ExecutorStatus>(row.text(3), STATUS);
  record.isSystem = row.integer(4) != 0;
  record.resumable = row.integer(5) != 0;
  record.config = decodePairs(row.bytes(6));
  record.createdAt = row.integer(7);
  record.updatedAt = row.integer(8);
  record.deletedAt = row.integer(9);
  record.version = row.integer(10);
  return record;
}

Problem nameTaken(kj::StringPtr name) {
  return Problem(ErrorCode::ALREADY_EXISTS, kj::str("there is an executor '", name, "' already"))
      .at(kj::str("name"));
}

}  // namespace

kj::Maybe<ExecutorRecord> ExecutorTable::find(kj::StringPtr id) {
  auto row = db.query("SELECT " EXECUTOR_COLUMNS " FROM executor WHERE id = ? LIMIT 1", id);
  if (!row.next()) return nullptr;
  return read(row);
}

kj::Maybe<ExecutorRecord> ExecutorTable::findByName(kj::StringPtr name) {
  auto row = db.query("SELECT " EXECUTOR_COLUMNS
                      " FROM executor WHERE name = ? AND deleted_ms IS NULL LIMIT 1",
                      name);
  if (!row.next()) return nullptr;
  return read(row);
}

Result<uint64_t> ExecutorTable::put(const ExecutorRecord& record) {
  KJ_IF_MAYBE (other, findByName(record.name)) {
    if (other->id != record.id) return nameTaken(record.name);
  }
  auto config = encodePairs(record.config);
  auto status = wordOf(record.status, STATUS);
  KJ_IF_MAYBE (present, find(record.id)) {
    if (record.version == 0) {
      return Problem(ErrorCode::ALREADY_EXISTS,
                     kj::str("there is an executor '", record.id, "' already"));
    }
    if (present->deletedAt != 0) return rowNotFound("executor", record.id);
    if (present->version != record.version) {
      return rowChanged("executor", record.id, record.version, present->version);
    }
    if (present->isSystem != record.isSystem ||
        (present->isSystem && present->type != record.type)) {
      return Problem(ErrorCode::DENIED, kj::str("'", record.id, "' is a system executor"))
          .because(kj::str("its type is fixed"));
    }
    db.run(
        "UPDATE executor SET name = ?, type = ?, status = ?, resumable = ?, config_values = ?, "
        "updated_ms = ?, version = version + 1 WHERE id = ?",
        record.name, record.type, status, record.resumable, config, record.updatedAt, record.id);
    return record.version + 1;
  }
  if (record.version != 0) return rowNotFound("executor", record.id);
  db.run("INSERT INTO executor (" EXECUTOR_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, 1)",
         record.id, record.name, record.type, status, record.isSystem, record.resumable, config,
         record.createdAt, record.updatedAt);
  return uint64_t(1);
}

Outcome ExecutorTable::remove(kj::StringPtr id, uint64_t ifVersion, UnixMs now) {
  KJ_IF_MAYBE (present, find(id)) {
    if (present->deletedAt != 0) return rowNotFound("executor", id);
    if (present->isSystem) {
      return Problem(ErrorCode::DENIED, kj::str("'", id, "' is a system executor"))
          .because(kj::str("it cannot be removed"))
          .advise(kj::str("disable it instead"));
    }
    if (present->version != ifVersion) {
      return rowChanged("executor", id, ifVersion, present->version);
    }
    auto profile = db.query("SELECT name FROM profile WHERE executor_id = ? LIMIT 1", id);
    if (profile.next()) {
      return Problem(ErrorCode::WRONG_STATE, kj::str("executor '", id, "' still has profiles"))
          .because(kj::str("'", profile.text(0), "' is one"))
          .advise(kj::str("remove its profiles first"));
    }
    db.run(
        "UPDATE executor SET deleted_ms = ?, updated_ms = ?, version = version + 1 "
        "WHERE id = ?",
        now, now, id);
    return nullptr;
  }
  return rowNotFound("executor", id);
}

kj::Vector<ExecutorRecord> ExecutorTable::list(kj::StringPtr after, size_t limit) {
  kj::Vector<ExecutorRecord> result;
  auto row = db.query("SELECT " EXECUTOR_COLUMNS
                      " FROM executor WHERE id > ? AND deleted_ms IS NULL ORDER BY id LIMIT ?",
                      after, limit);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
