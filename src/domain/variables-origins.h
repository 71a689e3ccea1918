#pragma once
// Origins of variables: the words by which people know them, and how strong each is. This is the
// only place that knows either.

#include "domain/environment.h"

#include <kj/string.h>

namespace capstan {

// How strong an origin is; a smaller number is stronger.
enum class Tier : uint8_t {
  AUTHORITATIVE = 1,
  PROFILE_DEFAULT = 2,
  AGENT_RUNTIME_DEFAULT = 3,
};

// An origin's words, such as "executor profile" or "repository app". `name` is the repository's for
// REPOSITORY (blank: just "repository") and the words themselves for OTHER; else it is not looked
// at. UNSET has no words. An OTHER that uses the words of a known origin counts as that origin: its
// client could as well have named it.
kj::String originWords(Origin origin, kj::StringPtr name = nullptr);
kj::String originWords(const Variable& definition);

// Which origin has these words. Words that none has, and no words: OTHER.
Origin originOfWords(kj::StringPtr words);

// Whether the first word is exactly "repository". Words are parted by white space.
bool isRepositoryOrigin(kj::StringPtr words);

// Whoever is not known is authoritative: an unknown origin must not be overridden unnoticed.
Tier tierForOrigin(kj::StringPtr words);

// The origin as a metric's label has it: repositories without their names, others verbatim.
kj::String originLabel(kj::StringPtr words);

// Whether there is nothing but white space (of ASCII) in it.
bool isBlank(kj::StringPtr text);

}  // namespace capstan
