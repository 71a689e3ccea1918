#include "store/profile-table.h"

#include "store/executor-table.h"
#include "store/stored-values.h"

namespace capstan {

namespace {

#define PROFILE_COLUMNS                                                                \
  "id, executor_id, name, mcp_policy, config_values, prepare_script, cleanup_script, " \
  "variables_values, created_ms, updated_ms, version"

ProfileRecord read(Query& row) {
  ProfileRecord record;
  record.id = row.text(0);
  record.executorId = row.text(1);
  record.name = row.text(2);
  record.mcpPolicy = row.text(3);
  record.config = decodePairs(row.bytes(4));
  record.prepareScript = row.text(5);
  record.cleanupScript = row.text(6);
  record.variables = decodeVariables(row.bytes(7));
  record.createdAt = row.integer(8);
  record.updatedAt = row.integer(9);
  record.version = row.integer(10);
  return record;
}

Problem taken(kj::StringPtr name) {
  return Problem(ErrorCode::ALREADY_EXISTS, kj::str("there is a profile '", name, "' already"));
}

}  // namespace

kj::Maybe<ProfileRecord> ProfileTable::find(kj::StringPtr id) {
  auto row = db.query("SELECT " PROFILE_COLUMNS " FROM profile WHERE id = ? LIMIT 1", id);
  if (!row.next()) return nullptr;
  return read(row);
}

kj::Maybe<ProfileRecord> ProfileTable::findByName(kj::StringPtr executorId, kj::StringPtr name) {
  auto row =
      db.query("SELECT " PROFILE_COLUMNS " FROM profile WHERE executor_id = ? AND name = ? LIMIT 1",
               executorId, name);
  if (!row.next()) return nullptr;
  return read(row);
}

Result<uint64_t> ProfileTable::put(const ProfileRecord& record) {
  bool executorThere = false;
  KJ_IF_MAYBE (executor, ExecutorTable(db).find(record.executorId)) {
    executorThere = executor->deletedAt == 0;
  }
  if (!executorThere) return rowNotFound("executor", record.executorId);
  KJ_IF_MAYBE (other, findByName(record.executorId, record.name)) {
    if (other->id != record.id) return taken(record.name);
  }
  auto config = encodePairs(record.config);
  auto variables = encodeVariables(record.variables);
  KJ_IF_MAYBE (present, find(record.id)) {
    if (record.version == 0) return taken(record.id);
    if (present->version != record.version) {
      return rowChanged("profile", record.id, record.version, present->version);
    }
    if (present->executorId != record.executorId) {
      return Problem(ErrorCode::WRONG_STATE,
                     kj::str("profile '", record.id, "' belongs to executor '", present->executorId,
                             "'"))
          .advise(kj::str("add a profile to the other executor"));
    }
    db.run(
        "UPDATE profile SET name = ?, mcp_policy = ?, config_values = ?, prepare_script = ?, "
        "cleanup_script = ?, variables_values = ?, updated_ms = ?, version = version + 1 "
        "WHERE id = ?",
        record.name, record.mcpPolicy, config, record.prepareScript, record.cleanupScript,
        variables, record.updatedAt, record.id);
    return record.version + 1;
  }
  if (record.version != 0) return rowNotFound("profile", record.id);
  db.run("INSERT INTO profile (" PROFILE_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
         record.id, record.executorId, record.name, record.mcpPolicy, config, record.prepareScript,
         record.cleanupScript, variables, record.createdAt, record.updatedAt);
  return uint64_t(1);
}

Outcome ProfileTable::remove(kj::StringPtr id, uint64_t ifVersion) {
  KJ_IF_MAYBE (present, find(id)) {
    if (present->version != ifVersion)
      return rowChanged("profile", id, ifVersion, present->version);
    db.run("DELETE FROM profile WHERE id = ?", id);
    return nullptr;
  }
  return rowNotFound("profile", id);
}

kj::Vector<ProfileRecord> ProfileTable::list(kj::StringPtr after, size_t limit) {
  kj::Vector<ProfileRecord> result;
  auto row = db.query("SELECT " PROFILE_COLUMNS " FROM profile WHERE id > ? ORDER BY id LIMIT ?",
                      after, limit);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
