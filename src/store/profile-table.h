#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// Profiles of executors. Variables name secrets, never hold their values.
class ProfileTable {
public:
  explicit ProfileTable(Connection& db): db(db) {}

  kj::Maybe<ProfileRecord> find(kj::StringPtr id);
  kj::Maybe<ProfileRecord> findByName(kj::StringPtr executorId, kj::StringPtr name);

  // As ExecutorTable::put(). A profile of an executor that is not there: notFound. A profile stays
  // with its executor: wrongState for another.
  Result<uint64_t> put(const ProfileRecord& record);
  Outcome remove(kj::StringPtr id, uint64_t ifVersion);
  // In order of their ids, after `after`, at most `limit`; of all executors.
  kj::Vector<ProfileRecord> list(kj::StringPtr after, size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
