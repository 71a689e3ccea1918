#include "store/environment-table.h"

#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr STATES[] = {
    "preparing"_kj,    "ready"_kj,  "stopping"_kj, "stopped"_kj,  "recovering"_kj,
    "reconnecting"_kj, "failed"_kj, "lost"_kj,     "cleaning"_kj,
};

#define ENVIRONMENT_COLUMNS                                                                     \
  "id, owner, executor_id, executor_type, runtime, profile_id, state, workspace, spec_values, " \
  "request_id, error_code, error_message, created_ms, changed_ms, steps_values, prepared, "     \
  "cleanup_scope, version, generation"

EnvironmentRecord read(Query& row) {
  EnvironmentRecord record;
  record.id = row.text(0);
  record.owner = row.text(1);
  record.executorId = row.text(2);
  record.executorType = row.text(3);
  record.runtime = row.text(4);
  record.profileId = row.text(5);
  record.state = valueOf<EnvironmentState>(row.text(6), STATES);
  record.workspace = row.text(7);
  record.spec = decodeEnvironmentSpec(row.bytes(8));
  record.requestId = row.bytes(9);
  record.lastError = toProblem(row.integer(10), row.text(11));
  record.createdAt = row.integer(12);
  record.changedAt = row.integer(13);
  record.steps = decodeSteps(row.bytes(14));
  record.prepared = row.integer(15) != 0;
  record.cleanupScope = row.text(16);
  record.version = row.integer(17);
  record.generation = row.text(18);
  return record;
}

kj::Maybe<EnvironmentRecord> readOne(Query row) {
  if (!row.next()) return nullptr;
  return read(row);
}

}  // namespace

kj::Maybe<EnvironmentRecord> EnvironmentTable::find(kj::StringPtr id) {
  return readOne(
      db.query("SELECT " ENVIRONMENT_COLUMNS " FROM environment WHERE id = ? LIMIT 1", id));
}

kj::Maybe<EnvironmentRecord> EnvironmentTable::findByTask(kj::StringPtr owner,
                                                          kj::StringPtr taskId) {
  return readOne(db.query("SELECT " ENVIRONMENT_COLUMNS
                          " FROM environment WHERE owner = ? AND task_id = ? LIMIT 1",
                          owner, taskId));
}

// Both look through all rows: only the removal of an executor or a profile asks.
kj::Maybe<EnvironmentRecord> EnvironmentTable::findByExecutor(kj::StringPtr executorId) {
  return readOne(db.query(
      "SELECT " ENVIRONMENT_COLUMNS " FROM environment WHERE executor_id = ? LIMIT 1", executorId));
}

kj::Maybe<EnvironmentRecord> EnvironmentTable::findByProfile(kj::StringPtr profileId) {
  return readOne(db.query(
      "SELECT " ENVIRONMENT_COLUMNS " FROM environment WHERE profile_id = ? LIMIT 1", profileId));
}

kj::Maybe<EnvironmentRecord> EnvironmentTable::findByRequest(kj::StringPtr owner,
                                                             kj::ArrayPtr<const kj::byte> requestId,
                                                             UnixMs notBefore) {
  return readOne(
      db.query("SELECT " ENVIRONMENT_COLUMNS
               " FROM environment WHERE owner = ? AND request_id = ? AND created_ms >= ? LIMIT 1",
               owner, requestId, notBefore));
}

Outcome EnvironmentTable::add(const EnvironmentRecord& record) {
  if (findByTask(record.owner, record.spec.taskId) != nullptr) {
    return Problem(ErrorCode::ALREADY_EXISTS,
                   kj::str("task '", record.spec.taskId, "' has an environment already"));
  }
  auto request = record.requestId.size() == 0 ? Bound(nullptr) : Bound(record.requestId);
  if (record.requestId.size() > 0) {
    db.run("UPDATE environment SET request_id = NULL WHERE owner = ? AND request_id = ?",
           record.owner, request);
  }
  auto spec = encodeEnvironmentSpec(record.spec);
  db.run("INSERT INTO environment (task_id, " ENVIRONMENT_COLUMNS
         ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?)",
         record.spec.taskId, record.id, record.owner, record.executorId, record.executorType,
         record.runtime, record.profileId, wordOf(record.state, STATES), record.workspace, spec,
         request, problemCode(record.lastError), problemMessage(record.lastError), record.createdAt,
         record.changedAt, encodeSteps(record.steps), record.prepared ? 1 : 0, record.cleanupScope,
         record.generation);
  return nullptr;
}

Result<uint64_t> EnvironmentTable::change(kj::StringPtr id, Change change, uint64_t ifVersion) {
  KJ_IF_MAYBE (present, find(id)) {
    if (ifVersion != 0 && present->version != ifVersion) {
      return rowChanged("environment", id, ifVersion, present->version);
    }
    auto state = present->state;
    KJ_IF_MAYBE (s, change.state) {
      state = *s;
    }
    kj::StringPtr workspace = present->workspace;
    KJ_IF_MAYBE (w, change.workspace) {
      workspace = *w;
    }
    const kj::Maybe<Problem>* error = &present->lastError;
    KJ_IF_MAYBE (e, change.lastError) {
      error = e;
    }
    kj::ArrayPtr<const PrepareStep> steps = present->steps;
    KJ_IF_MAYBE (s, change.steps) {
      steps = *s;
    }
    bool prepared = present->prepared;
    KJ_IF_MAYBE (p, change.prepared) {
      prepared = *p;
    }
    kj::StringPtr cleanupScope = present->cleanupScope;
    KJ_IF_MAYBE (c, change.cleanupScope) {
      cleanupScope = *c;
    }
    kj::StringPtr generation = present->generation;
    KJ_IF_MAYBE (g, change.generation) {
      generation = *g;
    }
    db.run(
        "UPDATE environment SET state = ?, workspace = ?, error_code = ?, error_message = ?, "
        "changed_ms = ?, steps_values = ?, prepared = ?, cleanup_scope = ?, generation = ?, "
        "version = version + 1 WHERE id = ?",
        wordOf(state, STATES), workspace, problemCode(*error), problemMessage(*error), change.at,
        encodeSteps(steps), prepared ? 1 : 0, cleanupScope, generation, id);
    return present->version + 1;
  }
  return rowNotFound("environment", id);
}

Outcome EnvironmentTable::remove(kj::StringPtr id) {
  auto item = db.query("SELECT kind, name FROM inventory WHERE environment_id = ? LIMIT 1", id);
  if (item.next()) {
    return Problem(ErrorCode::WRONG_STATE,
                   kj::str("environment '", id, "' still has what was made for it"))
        .because(kj::str(item.text(0), " '", item.text(1), "'"))
        .advise(kj::str("clean it up first"));
  }
  if (db.run("DELETE FROM environment WHERE id = ?", id) == 0) {
    return rowNotFound("environment", id);
  }
  return nullptr;
}

kj::Vector<EnvironmentRecord> EnvironmentTable::list(kj::StringPtr after, size_t limit) {
  kj::Vector<EnvironmentRecord> result;
  auto row =
      db.query("SELECT " ENVIRONMENT_COLUMNS " FROM environment WHERE id > ? ORDER BY id LIMIT ?",
               after, limit);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
