#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// The running records: one a session. Two writers share a row: the lifecycle by put(), the
// conversation by saveProgress(), and neither touches the other's columns.
class RunningRecordTable {
public:
  explicit RunningRecordTable(Connection& db): db(db) {}

  kj::Maybe<RunningRecord> find(kj::StringPtr sessionId);

  // Writes the lifecycle's columns; the new version. record.version 0 = whatever it is at, or a new
  // row (which also takes the conversation's columns); else wrongState (afterRefresh) when it is at
  // another. notFound without its session; invalidArgument for metadata or context that is no JSON.
  Result<uint64_t> put(const RunningRecord& record);

  // Writes the conversation's columns if the record still is of run `runId`: wrongState with cause
  // "execution rotated" when another run took over.
  Outcome saveProgress(kj::StringPtr sessionId, kj::StringPtr runId, kj::StringPtr resumeToken,
                       kj::StringPtr lastMessageUuid, kj::StringPtr context);

  // After a restart that found the process gone: a resumable record, or one with a resume token, is
  // kept as stopped without its local process; any other stays as it is. True if it was kept.
  Result<bool> repair(kj::StringPtr sessionId, UnixMs at);
  Outcome remove(kj::StringPtr sessionId);

  // The recovery inventory: of one runtime (empty = all), in order of the session ids, after
  // `after`, at most `limit`.
  kj::Vector<RunningRecord> list(kj::StringPtr runtime, kj::StringPtr after, size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
