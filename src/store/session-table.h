#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// Sessions of environments. They go with their environment.
class SessionTable {
public:
  explicit SessionTable(Connection& db): db(db) {}

  kj::Maybe<SessionRecord> find(kj::StringPtr id);
  // A new row at version 1. notFound when the environment is not there.
  Outcome add(const SessionRecord& record);

  struct Change {
    kj::Maybe<SessionState> state;
    kj::Maybe<kj::StringPtr> conversationState;
    kj::Maybe<kj::StringPtr> modelOverride;
    UnixMs at = 0;
  };
  // The new version. `ifVersion` 0 = whatever it is at.
  Result<uint64_t> change(kj::StringPtr id, Change change, uint64_t ifVersion = 0);
  // With its runs and its running record.
  Outcome remove(kj::StringPtr id);
  // Of one environment, in order of their ids, after `after`, at most `limit`.
  kj::Vector<SessionRecord> list(kj::StringPtr environmentId, kj::StringPtr after, size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
