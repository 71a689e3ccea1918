#pragma once
// Ids of what Capstan makes. Ids are names, never secrets.

#include "base/entropy.h"

#include <kj/string.h>

namespace capstan {

// Each kind has a prefix: env- s- r- g- x- p- exec- prof- sec- ep-.
enum class IdKind {
  ENVIRONMENT,
  SESSION,
  RUN,
  GRANT,
  EXEC,
  PRINCIPAL,
  EXECUTOR,
  PROFILE,
  SECRET,
  EPISODE,
};

// The prefix with its hyphen.
kj::StringPtr idPrefix(IdKind kind);

// Prefix and 16 base32 characters of 80 random bits, e.g. "env-k3v5q2mhx7wtrz4a".
kj::String newId(IdKind kind, Entropy& entropy);

// Whether `text` has the form of a whole id of that kind (not a shortened one).
bool isId(IdKind kind, kj::StringPtr text);

// A task id for a client that gave none: "t-" and 10 base32 characters.
kj::String newTaskId(Entropy& entropy);

// Task ids come from clients: 1 to 63 of A-Z a-z 0-9 . _ -, first and last a letter or digit.
bool isTaskId(kj::StringPtr text);

}  // namespace capstan
