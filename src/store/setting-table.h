#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// Key and value settings of the daemon, such as the default executors. Like every table here a view
// of a connection for one piece of work: made inside Database::write() or read(), kept nowhere.
// Methods throw SqliteFailure, which the Database explains.
class SettingTable {
public:
  explicit SettingTable(Connection& db): db(db) {}

  kj::Maybe<SettingRecord> find(kj::StringPtr key);
  // The new version. `ifVersion` 0 = there must be none: alreadyExists; else wrongState with
  // RetryHint afterRefresh when it is at another, notFound when it is gone.
  Result<uint64_t> put(kj::StringPtr key, kj::StringPtr value, uint64_t ifVersion);
  Outcome remove(kj::StringPtr key, uint64_t ifVersion);
  // In order of the keys, those after `after`, at most `limit`.
  kj::Vector<SettingRecord> list(kj::StringPtr after, size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
