#include "store/run-table.h"

#include "store/session-table.h"
#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr STATES[] = {"starting"_kj, "running"_kj, "ended"_kj};
constexpr kj::StringPtr KINDS[] = {"exited"_kj, "stopped"_kj, "failed"_kj, "lost"_kj,
                                   "cancelled"_kj};
constexpr kj::StringPtr EXITS[] = {"code"_kj, "signal"_kj, "unknown"_kj};

#define RUN_COLUMNS                                                                            \
  "run.id, run.session_id, run.state, run.spec_values, run.request_id, run.created_ms, "       \
  "run.running_ms, run.ended_ms, run.outcome, run.exit_kind, run.exit_code, run.exit_signal, " \
  "run.error_code, run.error_message"

RunRecord read(Query& row) {
  RunRecord record;
  record.id = row.text(0);
  record.sessionId = row.text(1);
  record.state = valueOf<RunState>(row.text(2), STATES);
  record.spec = decodeLaunchSpec(row.bytes(3));
  record.requestId = row.bytes(4);
  record.createdAt = row.integer(5);
  record.runningAt = row.integer(6);
  if (record.state == RunState::ENDED) {
    RunOutcome outcome;
    outcome.at = row.integer(7);
    outcome.kind = valueOf<RunOutcome::Kind>(row.text(8), KINDS);
    if (!row.isNull(9)) {
      ExitStatus exit;
      exit.kind = valueOf<ExitStatus::Kind>(row.text(9), EXITS);
      exit.code = static_cast<int>(row.integer(10));
      exit.signal = row.text(11);
      exit.at = outcome.at;
      outcome.exit = kj::mv(exit);
    }
    outcome.error = toProblem(row.integer(12), row.text(13));
    record.outcome = kj::mv(outcome);
  }
  return record;
}

kj::Maybe<RunRecord> readOne(Query row) {
  if (!row.next()) return nullptr;
  return read(row);
}

kj::Vector<RunRecord> readAll(Query row) {
  kj::Vector<RunRecord> result;
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace

kj::Maybe<RunRecord> RunTable::find(kj::StringPtr id) {
  return readOne(db.query("SELECT " RUN_COLUMNS " FROM run WHERE id = ? LIMIT 1", id));
}

kj::Maybe<RunRecord> RunTable::findLive(kj::StringPtr sessionId) {
  return readOne(db.query("SELECT " RUN_COLUMNS
                          " FROM run WHERE session_id = ? AND state <> 'ended' LIMIT 1",
                          sessionId));
}

kj::Maybe<RunRecord> RunTable::findByRequest(kj::StringPtr environmentId,
                                             kj::ArrayPtr<const kj::byte> requestId,
                                             UnixMs notBefore) {
  return readOne(
      db.query("SELECT " RUN_COLUMNS " FROM run JOIN session ON session.id = run.session_id "
               "WHERE session.environment_id = ? AND run.request_id = ? AND run.created_ms >= ? "
               "ORDER BY run.created_ms DESC LIMIT 1",
               environmentId, requestId, notBefore));
}

Outcome RunTable::add(const RunRecord& record) {
  if (SessionTable(db).find(record.sessionId) == nullptr) {
    return rowNotFound("session", record.sessionId);
  }
  KJ_IF_MAYBE (live, findLive(record.sessionId)) {
    return Problem(ErrorCode::WRONG_STATE,
                   kj::str("session '", record.sessionId, "' has a run that has not ended"))
        .because(kj::str("run '", live->id, "'"))
        .advise(kj::str("attach to it, or stop the session first"));
  }
  auto spec = encodeLaunchSpec(record.spec);
  auto request = record.requestId.size() == 0 ? Bound(nullptr) : Bound(record.requestId);
  if (record.requestId.size() > 0) {
    db.run("UPDATE run SET request_id = NULL WHERE session_id = ? AND request_id = ?",
           record.sessionId, request);
  }
  db.run(
      "INSERT INTO run (id, session_id, state, spec_values, request_id, created_ms) "
      "VALUES (?, ?, 'starting', ?, ?, ?)",
      record.id, record.sessionId, spec, request, record.createdAt);
  return nullptr;
}

Outcome RunTable::setRunning(kj::StringPtr id, UnixMs at) {
  if (db.run("UPDATE run SET state = 'running', running_ms = ? WHERE id = ? AND "
             "state = 'starting'",
             at, id) == 1) {
    return nullptr;
  }
  KJ_IF_MAYBE (present, find(id)) {
    return Problem(ErrorCode::WRONG_STATE,
                   kj::str("run '", id, "' is ", wordOf(present->state, STATES)));
  }
  return rowNotFound("run", id);
}

Result<RunTable::Applied> RunTable::end(kj::StringPtr id, const RunOutcome& outcome) {
  // No exit is NULL in three columns, an unknown one is not.
  Bound kind(nullptr), code(nullptr), signal(nullptr);
  KJ_IF_MAYBE (exit, outcome.exit) {
    kind = wordOf(exit->kind, EXITS);
    code = exit->code;
    signal = exit->signal.asPtr();
  }
  if (db.run("UPDATE run SET state = 'ended', ended_ms = ?, outcome = ?, exit_kind = ?, "
             "exit_code = ?, exit_signal = ?, error_code = ?, error_message = ? "
             "WHERE id = ? AND state <> 'ended'",
             outcome.at, wordOf(outcome.kind, KINDS), kind, code, signal,
             problemCode(outcome.error), problemMessage(outcome.error), id) == 1) {
    return Applied::NOW;
  }
  if (find(id) == nullptr) return rowNotFound("run", id);
  return Applied::BEFORE;
}

kj::Vector<RunRecord> RunTable::list(kj::StringPtr sessionId, size_t limit) {
  return readAll(db.query("SELECT * FROM (SELECT " RUN_COLUMNS
                          " FROM run WHERE session_id = ? ORDER BY created_ms DESC, id DESC "
                          "LIMIT ?) ORDER BY created_ms, id",
                          sessionId, limit));
}

kj::Vector<RunRecord> RunTable::listLive(kj::StringPtr after, size_t limit) {
  return readAll(db.query("SELECT " RUN_COLUMNS
                          " FROM run WHERE state <> 'ended' AND id > ? ORDER BY id LIMIT ?",
                          after, limit));
}

kj::Vector<RunRecord> RunTable::listEnded(UnixMs before, size_t limit) {
  return readAll(db.query("SELECT " RUN_COLUMNS
                          " FROM run WHERE ended_ms < ? ORDER BY ended_ms LIMIT ?",
                          before, limit));
}

Outcome RunTable::remove(kj::StringPtr id) {
  if (db.run("DELETE FROM run WHERE id = ?", id) == 0) return rowNotFound("run", id);
  return nullptr;
}

}  // namespace capstan
