#pragma once

#include "domain/records.h"
#include "store/database-connection.h"
#include "store/secret-box.h"

namespace capstan {

// Sealed secrets and who may use them. Values come in sealed by the SecretBox for the row's id and
// go out sealed: no value passes the queue or the database in the clear.
class SecretTable {
public:
  explicit SecretTable(Connection& db): db(db) {}

  kj::Maybe<SecretRecord> find(kj::StringPtr id);
  // USER secrets only.
  kj::Maybe<SecretRecord> findByName(kj::StringPtr name);
  kj::Maybe<kj::Array<kj::byte>> sealed(kj::StringPtr id);

  // The new version. record.version 0 = a new row: alreadyExists for a taken id or name; else the
  // value changes if it is at that version. Kind and name of a row stay.
  Result<uint64_t> put(const SecretRecord& record, kj::ArrayPtr<const kj::byte> sealed);
  // With all permissions for it.
  Outcome remove(kj::StringPtr id);
  // USER secrets in order of their names, after `after`, at most `limit`.
  kj::Vector<SecretRecord> listNames(kj::StringPtr after, size_t limit);

  // An administrator lets launches of the environment, or of all with the profile, use the secret.
  // Idempotent. notFound when either is not there.
  Outcome allowEnvironment(kj::StringPtr id, kj::StringPtr environmentId);
  Outcome allowProfile(kj::StringPtr id, kj::StringPtr profileId);
  // Takes it back; fine when it was not allowed. notFound without the secret.
  Outcome disallowEnvironment(kj::StringPtr id, kj::StringPtr environmentId);
  Outcome disallowProfile(kj::StringPtr id, kj::StringPtr profileId);
  // Who is allowed, ordered.
  kj::Vector<kj::String> environmentsOf(kj::StringPtr id, size_t limit);
  kj::Vector<kj::String> profilesOf(kj::StringPtr id, size_t limit);
  // Whether a launch in the environment under the profile (empty = none) may use it.
  bool isAllowed(kj::StringPtr id, kj::StringPtr environmentId, kj::StringPtr profileId);

  // USER secrets.
  size_t countNames();
  // Rows of every kind.
  size_t count();
  // Whether there is any row: then the key must not be made anew.
  bool any();

  // Seals rows that are not under the box's present key again: those after id `after`, at most
  // `limit` rows looked at. The last id looked at; empty = all done. A row that does not open is a
  // Problem, and nothing of the call stays.
  Result<kj::String> reseal(const SecretBox& box, Entropy& entropy, kj::StringPtr after,
                            size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
