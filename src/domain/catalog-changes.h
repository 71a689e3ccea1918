#pragma once
// What may be saved of executors and profiles, and how a partial save becomes a whole row.

#include "domain/catalog.h"
#include "domain/limits.h"

namespace capstan {

// A save names the version it saw. These two are none.
inline constexpr uint64_t NEW_ROW = 0;
inline constexpr uint64_t ANY_VERSION = ~uint64_t(0);  // Whatever it is at: the last commit wins.

// A save of an executor. Null = stays as it is at the time of the commit; for a new row: empty,
// active. A given list replaces the whole list.
struct ExecutorChange {
  kj::String id;  // Empty for a new row, which gets its id.
  uint64_t ifVersion = NEW_ROW;
  kj::Maybe<kj::String> name;
  kj::Maybe<kj::String> type;    // Fixed once it is there.
  kj::Maybe<kj::String> status;  // active, disabled
  kj::Maybe<kj::Array<Label>> config;
};

// A save of a profile, likewise. An empty script clears it.
struct ProfileChange {
  kj::String id;
  uint64_t ifVersion = NEW_ROW;
  kj::Maybe<kj::String> executorId;  // Exact. Fixed once it is there.
  kj::Maybe<kj::String> name;
  kj::Maybe<kj::String> mcpPolicy;
  kj::Maybe<kj::Array<Label>> config;
  kj::Maybe<kj::String> prepareScript;
  kj::Maybe<kj::String> cleanupScript;
  kj::Maybe<kj::Array<Variable>> variables;
};

// About what a change carries.
size_t bytesOf(const ExecutorChange& change);
size_t bytesOf(const ProfileChange& change);

// The row as it is to be stored: `present` with the change in it, checked; `version` is the one
// that the store must find, NEW_ROW without `present`. invalidArgument naming the field; wrongState
// (afterRefresh, naming the present version) when `present` has another version than the change
// saw. Of a new row the id is empty.
//
// Types are those of runtimeOf(), the alias written out. Names have 1 to 100 octets of printable
// text, no blank at either end, no '-' in front, and not the form of an id. Config keys are A-Z a-z
// 0-9 . _ -, each once, and one with an empty value is left out; keys this version does not know
// are kept, documented ones have their form checked. A host key's fingerprint is never taken from a
// save: it may stay or be cleared.
Result<ExecutorRecord> applied(kj::Maybe<const ExecutorRecord&> present,
                               const ExecutorChange& change, const Limits& limits, UnixMs now);
// Variables get the origin executorProfile; a set that could never resolve is variableConflict.
Result<ProfileRecord> applied(kj::Maybe<const ProfileRecord&> present, const ProfileChange& change,
                              const Limits& limits, UnixMs now);

// Names of secrets: 1 to 128 of A-Z a-z 0-9 . _ - and /, the first a letter or digit. Null = fine.
Outcome checkSecretName(kj::StringPtr name);

}  // namespace capstan
