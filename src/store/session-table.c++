#include "store/session-table.h"

#include "store/environment-table.h"
#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr STATES[] = {
    "starting"_kj, "running"_kj, "exited"_kj,     "stopped"_kj,
    "failed"_kj,   "lost"_kj,    "recovering"_kj, "reconnecting"_kj,
};

#define SESSION_COLUMNS \
  "id, environment_id, state, conversation_state, model_override, created_ms, changed_ms, version"

SessionRecord read(Query& row) {
  SessionRecord record;
  record.id = row.text(0);
  record.environmentId = row.text(1);
  record.state = valueOf<SessionState>(row.text(2), STATES);
  record.conversationState = row.text(3);
  record.modelOverride = row.text(4);
  record.createdAt = row.integer(5);
  record.changedAt = row.integer(6);
  record.version = row.integer(7);
  return record;
}

}  // namespace

kj::Maybe<SessionRecord> SessionTable::find(kj::StringPtr id) {
  auto row = db.query("SELECT " SESSION_COLUMNS " FROM session WHERE id = ? LIMIT 1", id);
  if (!row.next()) return nullptr;
  return read(row);
}

Outcome SessionTable::add(const SessionRecord& record) {
  if (EnvironmentTable(db).find(record.environmentId) == nullptr) {
    return rowNotFound("environment", record.environmentId);
  }
  db.run("INSERT INTO session (" SESSION_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, 1)", record.id,
         record.environmentId, wordOf(record.state, STATES), record.conversationState,
         record.modelOverride, record.createdAt, record.changedAt);
  return nullptr;
}

Result<uint64_t> SessionTable::change(kj::StringPtr id, Change change, uint64_t ifVersion) {
  KJ_IF_MAYBE (present, find(id)) {
    if (ifVersion != 0 && present->version != ifVersion) {
      return rowChanged("session", id, ifVersion, present->version);
    }
    auto state = present->state;
    KJ_IF_MAYBE (s, change.state) {
      state = *s;
    }
    kj::StringPtr conversation = present->conversationState;
    KJ_IF_MAYBE (c, change.conversationState) {
      conversation = *c;
    }
    kj::StringPtr model = present->modelOverride;
    KJ_IF_MAYBE (m, change.modelOverride) {
      model = *m;
    }
    db.run(
        "UPDATE session SET state = ?, conversation_state = ?, model_override = ?, "
        "changed_ms = ?, version = version + 1 WHERE id = ?",
        wordOf(state, STATES), conversation, model, change.at, id);
    return present->version + 1;
  }
  return rowNotFound("session", id);
}

Outcome SessionTable::remove(kj::StringPtr id) {
  if (db.run("DELETE FROM session WHERE id = ?", id) == 0) return rowNotFound("session", id);
  return nullptr;
}

kj::Vector<SessionRecord> SessionTable::list(kj::StringPtr environmentId, kj::StringPtr after,
                                             size_t limit) {
  kj::Vector<SessionRecord> result;
  auto row = db.query("SELECT " SESSION_COLUMNS
                      " FROM session WHERE environment_id = ? AND id > ? ORDER BY id LIMIT ?",
                      environmentId, after, limit);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
