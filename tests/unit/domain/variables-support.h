#pragma once
// Short spellings of definitions and results for the tests of the resolver.

#include "domain/variables.h"
#include "support/test.h"

#include <algorithm>

namespace capstan::test {

// A definition by literal; the origin by its words.
inline Variable defined(kj::StringPtr words, kj::StringPtr key, kj::StringPtr literal) {
  Variable definition;
  definition.key = kj::str(key);
  definition.literal = kj::str(literal);
  definition.origin = originOfWords(words);
  if (definition.origin == Origin::OTHER) definition.otherOrigin = kj::str(words);
  if (definition.origin == Origin::REPOSITORY && words.size() > 11) {
    definition.repository = kj::str(words.slice(11));
  }
  return definition;
}

inline Variable bySecret(kj::StringPtr words, kj::StringPtr key, kj::StringPtr secret,
                         kj::StringPtr tenant = ""_kj) {
  auto definition = defined(words, key, "");
  definition.secret = kj::str(secret);
  definition.tenantId = kj::str(tenant);
  return definition;
}

inline kj::String shown(const OverrideRecord& record) {
  auto losers = KJ_MAP(loser, record.losingOrigins) {
    return kj::str(loser.origin, " ", static_cast<uint>(loser.tier));
  };
  return kj::str(record.key, ": ", kj::strArray(record.winningOrigins, ", "), " ",
                 static_cast<uint>(record.winningTier), " over ", kj::strArray(losers, ", "));
}

// The variables as "K=v L=w", then the records as "; K: winners tier over loser tier, …".
inline kj::String shown(const Resolution& resolution) {
  kj::Vector<kj::String> parts;
  parts.add(kj::strArray(
      KJ_MAP(each, resolution.variables) { return kj::str(each.key, "=", each.value); }, " "));
  for (auto& record: resolution.overrides)
    parts.add(shown(record));
  return kj::strArray(parts, "; ");
}

// Likewise, or "code field cause".
inline kj::String shown(const Result<Resolution>& result) {
  if (result.is<Resolution>()) return shown(result.get<Resolution>());
  auto& problem = result.get<Problem>();
  return kj::str(errorCodeName(problem.code), " ", problem.field, " ", problem.cause);
}

inline kj::String resolvedInEveryOrder(kj::Array<Variable> set) {
  RevealSecret reveal = [](const VariableDecision& winner) -> Result<kj::String> {
    return kj::str("<", winner.tenantId, "/", winner.secret, ">");
  };
  kj::String first;
  kj::Vector<size_t> order;
  for (auto i: kj::indices(set))
    order.add(i);
  do {
    auto permuted = KJ_MAP(i, order) { return set[i].clone(); };
    auto result = resolveVariables(permuted, reveal);
    CHECK((validateVariables(permuted) == nullptr) == result.is<Resolution>());
    if (first == nullptr) first = shown(result);
    CHECK(shown(result) == first);
  } while (std::next_permutation(order.begin(), order.end()));
  return first;
}

// What the definitions come to in every order. That all orders agree, and that validation agrees
// with resolution, is checked on the way. At most 6 definitions.
template <typename... Definitions>
kj::String resolved(Definitions&&... definitions) {
  return resolvedInEveryOrder(kj::arr(kj::mv(definitions)...));
}

}  // namespace capstan::test
