#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// Runs of sessions. At most one of a session has not ended.
class RunTable {
public:
  explicit RunTable(Connection& db): db(db) {}

  kj::Maybe<RunRecord> find(kj::StringPtr id);
  kj::Maybe<RunRecord> findLive(kj::StringPtr sessionId);
  // What an earlier call with this request id started in the environment, if at or after
  // `notBefore`.
  kj::Maybe<RunRecord> findByRequest(kj::StringPtr environmentId,
                                     kj::ArrayPtr<const kj::byte> requestId, UnixMs notBefore);

  // A new run in state STARTING. notFound without its session; wrongState, naming it, while another
  // of the session has not ended.
  Outcome add(const RunRecord& record);
  // STARTING to RUNNING; wrongState from any other.
  Outcome setRunning(kj::StringPtr id, UnixMs at);

  enum class Applied { NOW, BEFORE };
  // Ends the run. The first outcome counts: BEFORE = it had one, which stays as it is.
  Result<Applied> end(kj::StringPtr id, const RunOutcome& outcome);

  // Of one session, oldest first, at most `limit` of the latest.
  kj::Vector<RunRecord> list(kj::StringPtr sessionId, size_t limit);
  // Runs that have not ended, in order of their ids, after `after`: what a start has to take back.
  kj::Vector<RunRecord> listLive(kj::StringPtr after, size_t limit);
  // Ended before `before`, oldest first: whose output may go.
  kj::Vector<RunRecord> listEnded(UnixMs before, size_t limit);
  Outcome remove(kj::StringPtr id);

private:
  Connection& db;
};

}  // namespace capstan
