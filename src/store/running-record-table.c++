#include "store/running-record-table.h"

#include "store/session-table.h"
#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr STATUS[] = {"starting"_kj, "running"_kj,   "ready"_kj,   "failed"_kj,
                                    "stopped"_kj,  "completed"_kj, "prepared"_kj};

#define RUNNING_COLUMNS                                                                          \
  "session_id, id, task_id, execution_profile_id, executor_id, runtime, status, resumable, "     \
  "agent_execution_id, container_id, agentctl_url, agentctl_port, pid, local_pid, worktree_id, " \
  "worktree_path, worktree_branch, error_message, metadata, last_seen_ms, resume_token, "        \
  "last_message_uuid, context, version"

RunningRecord read(Query& row) {
  RunningRecord record;
  record.sessionId = row.text(0);
  record.id = row.text(1);
  record.taskId = row.text(2);
  record.executionProfileId = row.text(3);
  record.executorId = row.text(4);
  record.runtime = row.text(5);
  record.status = valueOf<RunningStatus>(row.text(6), STATUS);
  record.resumable = row.integer(7) != 0;
  record.agentExecutionId = row.text(8);
  record.containerId = row.text(9);
  record.agentctlUrl = row.text(10);
  record.agentctlPort = static_cast<uint16_t>(row.integer(11));
  record.pid = row.integer(12);
  record.localPid = row.integer(13);
  record.worktreeId = row.text(14);
  record.worktreePath = row.text(15);
  record.worktreeBranch = row.text(16);
  record.errorMessage = row.text(17);
  record.metadata = row.text(18);
  record.lastSeenAt = row.integer(19);
  record.resumeToken = row.text(20);
  record.lastMessageUuid = row.text(21);
  record.context = row.text(22);
  record.version = row.integer(23);
  return record;
}

// Refuses a text that is neither empty nor JSON. It is not shown: it is the client's.
Outcome checkJson(Connection& db, kj::StringPtr text, kj::StringPtr field) {
  if (text.size() == 0) return nullptr;
  auto row = db.query("SELECT json_valid(?) LIMIT 1", text);
  if (row.next() && row.integer(0) == 1) return nullptr;
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the ", field, " is no valid JSON"))
      .at(kj::str(field));
}

}  // namespace

kj::Maybe<RunningRecord> RunningRecordTable::find(kj::StringPtr sessionId) {
  auto row = db.query("SELECT " RUNNING_COLUMNS " FROM running_record WHERE session_id = ? LIMIT 1",
                      sessionId);
  if (!row.next()) return nullptr;
  return read(row);
}

Result<uint64_t> RunningRecordTable::put(const RunningRecord& record) {
  if (SessionTable(db).find(record.sessionId) == nullptr) {
    return rowNotFound("session", record.sessionId);
  }
  KJ_IF_MAYBE (problem, checkJson(db, record.metadata, "metadata")) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, checkJson(db, record.context, "context")) {
    return kj::mv(*problem);
  }
  uint64_t actual = 0;
  KJ_IF_MAYBE (present, find(record.sessionId)) {
    actual = present->version;
  }
  if (record.version != 0 && record.version != actual) {
    if (actual == 0) return rowNotFound("running record of session", record.sessionId);
    return rowChanged("running record of session", record.sessionId, record.version, actual);
  }
  auto status = wordOf(record.status, STATUS);
  if (actual == 0) {
    db.run("INSERT INTO running_record (" RUNNING_COLUMNS
           ") VALUES "
           "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
           record.sessionId, record.id, record.taskId, record.executionProfileId, record.executorId,
           record.runtime, status, record.resumable, record.agentExecutionId, record.containerId,
           record.agentctlUrl, uint32_t(record.agentctlPort), record.pid, record.localPid,
           record.worktreeId, record.worktreePath, record.worktreeBranch, record.errorMessage,
           record.metadata, record.lastSeenAt, record.resumeToken, record.lastMessageUuid,
           record.context);
  } else {
    db.run(
        "UPDATE running_record SET id = ?, task_id = ?, execution_profile_id = ?, "
        "executor_id = ?, runtime = ?, status = ?, resumable = ?, agent_execution_id = ?, "
        "container_id = ?, agentctl_url = ?, agentctl_port = ?, pid = ?, local_pid = ?, "
        "worktree_id = ?, worktree_path = ?, worktree_branch = ?, error_message = ?, "
        "metadata = ?, last_seen_ms = ?, version = version + 1 WHERE session_id = ?",
        record.id, record.taskId, record.executionProfileId, record.executorId, record.runtime,
        status, record.resumable, record.agentExecutionId, record.containerId, record.agentctlUrl,
        uint32_t(record.agentctlPort), record.pid, record.localPid, record.worktreeId,
        record.worktreePath, record.worktreeBranch, record.errorMessage, record.metadata,
        record.lastSeenAt, record.sessionId);
  }
  return actual + 1;
}

Outcome RunningRecordTable::saveProgress(kj::StringPtr sessionId, kj::StringPtr runId,
                                         kj::StringPtr resumeToken, kj::StringPtr lastMessageUuid,
                                         kj::StringPtr context) {
  KJ_IF_MAYBE (problem, checkJson(db, context, "context")) {
    return kj::mv(*problem);
  }
  if (db.run("UPDATE running_record SET resume_token = ?, last_message_uuid = ?, context = ?, "
             "version = version + 1 WHERE session_id = ? AND agent_execution_id = ?",
             resumeToken, lastMessageUuid, context, sessionId, runId) == 1) {
    return nullptr;
  }
  KJ_IF_MAYBE (present, find(sessionId)) {
    return Problem(ErrorCode::WRONG_STATE,
                   kj::str("run '", runId, "' is not the session's run any more"))
        .because(kj::str("execution rotated to run '", present->agentExecutionId, "'"));
  }
  return rowNotFound("running record of session", sessionId);
}

Result<bool> RunningRecordTable::repair(kj::StringPtr sessionId, UnixMs at) {
  KJ_IF_MAYBE (present, find(sessionId)) {
    if (!present->resumable && present->resumeToken.size() == 0) return false;
    db.run(
        "UPDATE running_record SET status = 'stopped', local_pid = 0, last_seen_ms = ?, "
        "version = version + 1 WHERE session_id = ?",
        at, sessionId);
    return true;
  }
  return rowNotFound("running record of session", sessionId);
}

Outcome RunningRecordTable::remove(kj::StringPtr sessionId) {
  if (db.run("DELETE FROM running_record WHERE session_id = ?", sessionId) == 0) {
    return rowNotFound("running record of session", sessionId);
  }
  return nullptr;
}

kj::Vector<RunningRecord> RunningRecordTable::list(kj::StringPtr runtime, kj::StringPtr after,
                                                   size_t limit) {
  kj::Vector<RunningRecord> result;
  auto row = runtime.size() == 0
                 ? db.query("SELECT " RUNNING_COLUMNS
                            " FROM running_record WHERE session_id > ? "
                            "ORDER BY session_id LIMIT ?",
                            after, limit)
                 : db.query("SELECT " RUNNING_COLUMNS
                            " FROM running_record WHERE runtime = ? AND session_id > ? "
                            "ORDER BY session_id LIMIT ?",
                            runtime, after, limit);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
