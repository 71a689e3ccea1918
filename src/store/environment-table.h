#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// Environments: one row for each (owner, task id).
class EnvironmentTable {
public:
  explicit EnvironmentTable(Connection& db): db(db) {}

  kj::Maybe<EnvironmentRecord> find(kj::StringPtr id);
  kj::Maybe<EnvironmentRecord> findByTask(kj::StringPtr owner, kj::StringPtr taskId);
  // Any one that was made under the executor or the profile.
  kj::Maybe<EnvironmentRecord> findByExecutor(kj::StringPtr executorId);
  kj::Maybe<EnvironmentRecord> findByProfile(kj::StringPtr profileId);
  // What an earlier call with this request id made, if it was made at or after `notBefore`.
  kj::Maybe<EnvironmentRecord> findByRequest(kj::StringPtr owner,
                                             kj::ArrayPtr<const kj::byte> requestId,
                                             UnixMs notBefore);

  // A new row at version 1, whatever record.version says. alreadyExists for a taken id or task. A
  // request id of the owner's that stands on an older row moves to the new one.
  Outcome add(const EnvironmentRecord& record);

  struct Change {
    kj::Maybe<EnvironmentState> state;
    kj::Maybe<kj::StringPtr> workspace;
    kj::Maybe<const kj::Maybe<Problem>&> lastError;
    kj::Maybe<kj::ArrayPtr<const PrepareStep>> steps;
    kj::Maybe<bool> prepared;
    kj::Maybe<kj::StringPtr> cleanupScope;
    kj::Maybe<kj::StringPtr> generation;
    UnixMs at = 0;
  };
  // The new version. `ifVersion` 0 = whatever it is at.
  Result<uint64_t> change(kj::StringPtr id, Change change, uint64_t ifVersion = 0);

  // With its sessions, runs, records and permissions for secrets. wrongState while the inventory
  // names anything: a row goes only when what was made is gone.
  Outcome remove(kj::StringPtr id);

  // In order of their ids, after `after`, at most `limit`; of all owners.
  kj::Vector<EnvironmentRecord> list(kj::StringPtr after, size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
