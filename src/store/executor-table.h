#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// Executors. The system rows exec-local-pc and exec-local-docker are there from the start and
// cannot be removed. A removed one keeps its row, without its name, for what was made with it.
class ExecutorTable {
public:
  explicit ExecutorTable(Connection& db): db(db) {}

  // Also a removed one, whose deletedAt is set.
  kj::Maybe<ExecutorRecord> find(kj::StringPtr id);
  kj::Maybe<ExecutorRecord> findByName(kj::StringPtr name);  // Not a removed one.

  // The new version. record.version 0 = new; otherwise the version that was read: wrongState
  // (afterRefresh) when there was a write since. alreadyExists for a taken id or name; denied for a
  // change of a system row's type or system mark. createdAt and deletedAt of an old row stay.
  Result<uint64_t> put(const ExecutorRecord& record);
  // wrongState while a profile is left; denied for a system row.
  Outcome remove(kj::StringPtr id, uint64_t ifVersion, UnixMs now);
  // Those not removed, in order of their ids, after `after`, at most `limit`.
  kj::Vector<ExecutorRecord> list(kj::StringPtr after, size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
