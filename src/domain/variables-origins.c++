#include "domain/variables-origins.h"

namespace capstan {

namespace {

constexpr kj::StringPtr REPOSITORY_WORD = "repository"_kj;

struct Known {
  Origin origin;
  kj::StringPtr words;
  Tier tier;
};

// Repositories are told by their first word, and whoever stands in neither is authoritative.
constexpr Known KNOWN[] = {
    {Origin::MANAGED_RUNTIME, "managed runtime"_kj, Tier::AUTHORITATIVE},
    {Origin::MANAGED_CREDENTIALS, "managed credentials"_kj, Tier::AUTHORITATIVE},
    {Origin::EXECUTOR_PROFILE, "executor profile"_kj, Tier::AUTHORITATIVE},
    {Origin::AGENT_PROFILE, "agent profile"_kj, Tier::PROFILE_DEFAULT},
    {Origin::MANAGED_AGENT_DEFAULTS, "managed agent defaults"_kj, Tier::AGENT_RUNTIME_DEFAULT},
};

bool isSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

kj::Maybe<const Known&> findKnown(kj::StringPtr words) {
  for (auto& known: KNOWN) {
    if (known.words == words) return known;
  }
  return nullptr;
}

kj::ArrayPtr<const char> trimmed(kj::StringPtr text) {
  kj::ArrayPtr<const char> rest = text.asArray();
  while (rest.size() > 0 && isSpace(rest.front()))
    rest = rest.slice(1, rest.size());
  while (rest.size() > 0 && isSpace(rest.back()))
    rest = rest.slice(0, rest.size() - 1);
  return rest;
}

}  // namespace

kj::String originWords(Origin origin, kj::StringPtr name) {
  if (origin == Origin::OTHER) return kj::str(name);
  if (origin == Origin::REPOSITORY) {
    if (isBlank(name)) return kj::str(REPOSITORY_WORD);
    return kj::str(REPOSITORY_WORD, ' ', trimmed(name));
  }
  for (auto& known: KNOWN) {
    if (known.origin == origin) return kj::str(known.words);
  }
  return kj::String();
}

kj::String originWords(const Variable& definition) {
  return originWords(definition.origin, definition.origin == Origin::REPOSITORY
                                            ? definition.repository
                                            : definition.otherOrigin);
}

Origin originOfWords(kj::StringPtr words) {
  if (isRepositoryOrigin(words)) return Origin::REPOSITORY;
  KJ_IF_MAYBE (known, findKnown(words)) {
    return known->origin;
  }
  return Origin::OTHER;
}

bool isRepositoryOrigin(kj::StringPtr words) {
  auto rest = trimmed(words);
  size_t length = 0;
  while (length < rest.size() && !isSpace(rest[length]))
    ++length;
  return rest.slice(0, length) == REPOSITORY_WORD.asArray();
}

Tier tierForOrigin(kj::StringPtr words) {
  KJ_IF_MAYBE (known, findKnown(words)) {
    return known->tier;
  }
  return Tier::AUTHORITATIVE;
}

kj::String originLabel(kj::StringPtr words) {
  return isRepositoryOrigin(words) ? kj::str(REPOSITORY_WORD) : kj::str(words);
}

bool isBlank(kj::StringPtr text) { return trimmed(text).size() == 0; }

}  // namespace capstan
