#include "store/control-server-table.h"

#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr STATES[] = {"current"_kj, "draining"_kj};

#define SERVER_COLUMNS                                                                      \
  "id, endpoint, secret_id, state, capabilities_values, build, log_path, pid, created_ms, " \
  "start_ticks, boot_id, server_id, rotation"

ControlServerRecord read(Query& row) {
  ControlServerRecord record;
  record.id = row.text(0);
  record.endpoint = row.text(1);
  record.secretId = row.text(2);
  record.state = valueOf<ControlServerRecord::State>(row.text(3), STATES);
  record.capabilities = decodeWords(row.bytes(4));
  record.build = row.text(5);
  record.logPath = row.text(6);
  record.pid = row.integer(7);
  record.createdAt = row.integer(8);
  record.startTicks = row.integer(9);
  record.bootId = row.text(10);
  record.serverId = row.text(11);
  record.rotation = row.integer(12);
  return record;
}

}  // namespace

kj::Maybe<ControlServerRecord> ControlServerTable::find(kj::StringPtr id) {
  auto row = db.query("SELECT " SERVER_COLUMNS " FROM control_server WHERE id = ? LIMIT 1", id);
  if (!row.next()) return nullptr;
  return read(row);
}

kj::Maybe<ControlServerRecord> ControlServerTable::current() {
  auto row =
      db.query("SELECT " SERVER_COLUMNS " FROM control_server WHERE state = 'current' LIMIT 1");
  if (!row.next()) return nullptr;
  return read(row);
}

Outcome ControlServerTable::add(const ControlServerRecord& record) {
  if (find(record.id) != nullptr) {
    return Problem(ErrorCode::ALREADY_EXISTS,
                   kj::str("there is a control server '", record.id, "' already"));
  }
  db.run("UPDATE control_server SET state = 'draining' WHERE state = 'current'");
  db.run("INSERT INTO control_server (" SERVER_COLUMNS
         ") VALUES (?, ?, ?, 'current', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         record.id, record.endpoint, record.secretId, encodeWords(record.capabilities),
         record.build, record.logPath, record.pid, record.createdAt, record.startTicks,
         record.bootId, record.serverId, record.rotation);
  return nullptr;
}

Outcome ControlServerTable::change(const ControlServerRecord& record) {
  auto changed = db.run(
      "UPDATE control_server SET secret_id = ?, capabilities_values = ?, build = ?, pid = ?, "
      "start_ticks = ?, boot_id = ?, server_id = ?, rotation = ? WHERE id = ?",
      record.secretId, encodeWords(record.capabilities), record.build, record.pid,
      record.startTicks, record.bootId, record.serverId, record.rotation, record.id);
  if (changed == 0) return rowNotFound("control server", record.id);
  return nullptr;
}

Outcome ControlServerTable::drain(kj::StringPtr id) {
  if (db.run("UPDATE control_server SET state = 'draining' WHERE id = ?", id) == 0) {
    return rowNotFound("control server", id);
  }
  return nullptr;
}

Outcome ControlServerTable::remove(kj::StringPtr id) {
  if (db.run("DELETE FROM control_server WHERE id = ?", id) == 0) {
    return rowNotFound("control server", id);
  }
  return nullptr;
}

kj::Vector<ControlServerRecord> ControlServerTable::list(kj::StringPtr after, size_t limit) {
  kj::Vector<ControlServerRecord> result;
  auto row =
      db.query("SELECT " SERVER_COLUMNS " FROM control_server WHERE id > ? ORDER BY id LIMIT ?",
               after, limit);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
