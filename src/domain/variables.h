#pragma once
// Which definition of an environment variable wins: a pure function of the definitions, in whatever
// order they come. It neither logs nor counts; the caller does, from the records. No Problem made
// here holds a literal, a secret or a secret's name, except in words that `reveal` itself returned.
//
// Definitions of one key with the same literal, or with the same secret, are one definition with
// several origins. What is left is told apart by the tier of the strongest origin of each
// (tierForOrigin). There is no winner, and so a variableConflict, when the strongest tier holds
// two, and whenever one of several is a secret: a secret is never opened to see whether it differs.

#include "base/problem.h"
#include "domain/environment.h"
#include "domain/variables-origins.h"

#include <kj/array.h>
#include <kj/function.h>
#include <kj/string.h>

namespace capstan {

// A variable as a process gets it.
struct ProcessVariable {
  kj::String key;
  kj::String value;
  bool secret = false;  // The value is a revealed secret: not to be shown, logged or stored.
};

struct LosingOrigin {
  kj::String origin;  // Its words.
  Tier tier;
};

// That one definition was preferred to others. Made only where there was a choice; no field can
// hold a value. Both lists are distinct, ordered by the origin's words, never empty, and may share
// an origin that defines the key twice.
struct OverrideRecord {
  kj::String key;
  kj::Array<kj::String> winningOrigins;  // Words of all origins of the winning definition.
  Tier winningTier;                      // That of the strongest of them.
  kj::Array<LosingOrigin> losingOrigins;
};

// The winner of one key, for `explain` and for whoever reveals its secret.
struct VariableDecision {
  kj::String key;
  kj::String literal;   // The value, when `secret` is empty.
  kj::String secret;    // The secret's name; empty = a literal.
  kj::String tenantId;  // Whose secret it is: that of the first definition in the order of words.
  kj::Array<kj::String> winners;  // Words of all its origins, ordered, at least one.
  Tier tier;
  kj::Array<LosingOrigin> losers;  // Empty when nothing was overridden.
};

// Opens the secret that won. Called at most once a key, in the order of keys, never for a loser and
// never before all keys are free of conflict. A Problem's code, cause and hint reach the caller, so
// its texts must hold no value; notFound when the secret may not be used here.
using RevealSecret = kj::Function<Result<kj::String>(const VariableDecision& winner)>;

// What a set of definitions comes to; everything is ordered by key.
struct Resolution {
  kj::Array<ProcessVariable> variables;
  kj::Array<OverrideRecord> overrides;  // Empty when there was nothing to choose.
  kj::Array<VariableDecision> decisions;
};

// Who wins, without opening any secret. Definitions whose key is blank are passed over. Problems,
// those of the first key when several have one: variableConflict (`cause` names all origins,
// ordered), invalidArgument for a name or literal that no process could be given.
Result<kj::Array<VariableDecision>> decideVariables(kj::ArrayPtr<const Variable> definitions);

// Whether decideVariables() has a Problem with the definitions; null = fine. It refuses nothing
// that resolves, yet promises nothing: definitions of other origins may join later.
Outcome validateVariables(kj::ArrayPtr<const Variable> definitions);

// Decides, then reveals the winners that are secrets. Problems are those of decideVariables() and,
// naming key and origins, that of the first secret which cannot be had: notFound without `reveal`.
Result<Resolution> resolveVariables(kj::ArrayPtr<const Variable> definitions,
                                    kj::Maybe<RevealSecret&> reveal);

// Refuses a name with '=' or NUL and a literal with NUL; null = fine. `path` is the definition's,
// for the Problem's field.
Outcome checkVariableShape(const Variable& definition, kj::StringPtr path);

// What the log says of one record after "environment override applied": {env_key = …, …}, origins
// verbatim. `sessionId` may be empty.
kj::String overrideLogFields(const OverrideRecord& record, kj::StringPtr taskId,
                             kj::StringPtr sessionId);

// The keys under which the counter environment_override_applied_total goes up by one each: one for
// every losing origin, such as "winning_origin=executor profile;losing_origin=agent profile".
// Equal ones count as often as they stand there.
kj::Array<kj::String> overrideCounterKeys(const OverrideRecord& record);

}  // namespace capstan
