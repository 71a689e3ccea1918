#pragma once
// The tables, and how an older database becomes a current one.

#include "store/database-connection.h"

namespace capstan {

// In the file's header: "CpSt". Tells our databases from others.
inline constexpr int64_t STORE_APPLICATION_ID = 0x43705374;

// One step from the version before it. `version` counts from 1 without gaps.
struct Migration {
  int version;
  kj::StringPtr sql;
};

// The numbered steps of this build, oldest first. Steps that were released never change.
kj::ArrayPtr<const Migration> migrations();

// The version that this build writes.
int schemaVersion();

// Brings the database up to the last of `steps`, each in a transaction of its own, so that a crash
// or a failure leaves the version before. A database that is newer: unsupported, and nothing is
// changed.
Outcome migrate(Connection& connection, kj::ArrayPtr<const Migration> steps = migrations());

}  // namespace capstan
