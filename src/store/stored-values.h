#pragma once
// Domain values to the octets of a database column and back. Decoding throws kj::Exception when the
// octets are no such message, which a row of ours never is.

#include "domain/records.h"

namespace capstan {

kj::Array<kj::byte> encodePairs(kj::ArrayPtr<const Label> pairs);
kj::Array<Label> decodePairs(kj::ArrayPtr<const kj::byte> bytes);  // No octets = none.

kj::Array<kj::byte> encodeWords(kj::ArrayPtr<const kj::String> words);
kj::Array<kj::String> decodeWords(kj::ArrayPtr<const kj::byte> bytes);

kj::Array<kj::byte> encodeVariables(kj::ArrayPtr<const Variable> variables);
kj::Array<Variable> decodeVariables(kj::ArrayPtr<const kj::byte> bytes);

kj::Array<kj::byte> encodeEnvironmentSpec(const EnvironmentSpec& spec);
EnvironmentSpec decodeEnvironmentSpec(kj::ArrayPtr<const kj::byte> bytes);

kj::Array<kj::byte> encodeSteps(kj::ArrayPtr<const PrepareStep> steps);
kj::Vector<PrepareStep> decodeSteps(kj::ArrayPtr<const kj::byte> bytes);  // No octets = none.

// Code, message, source and upstream code.
kj::Array<kj::byte> encodeEvidence(kj::ArrayPtr<const Problem> problems);
kj::Vector<Problem> decodeEvidence(kj::ArrayPtr<const kj::byte> bytes);  // No octets = none.

// Without `wait`, `start` and `deadline`, which belong to one call.
kj::Array<kj::byte> encodeLaunchSpec(const LaunchSpec& spec);
LaunchSpec decodeLaunchSpec(kj::ArrayPtr<const kj::byte> bytes);

// An enumeration's words in the order of its values. A word that is not among them (a newer
// program's) throws.
template <typename Enum, size_t n>
kj::StringPtr wordOf(Enum value, const kj::StringPtr (&words)[n]) {
  auto index = static_cast<size_t>(value);
  KJ_REQUIRE(index < n);
  return words[index];
}
template <typename Enum, size_t n>
Enum valueOf(kj::StringPtr word, const kj::StringPtr (&words)[n]) {
  for (size_t i = 0; i < n; ++i) {
    if (words[i] == word) return static_cast<Enum>(i);
  }
  KJ_FAIL_REQUIRE("the state store has a word this program does not know", word);
}

// Code and message of a Problem as two columns; NONE = no problem.
int problemCode(const kj::Maybe<Problem>& problem);
kj::StringPtr problemMessage(const kj::Maybe<Problem>& problem);
kj::Maybe<Problem> toProblem(int64_t code, kj::String message);

// The refusals of compare-and-set. `what` like "executor".
Problem rowNotFound(kj::StringPtr what, kj::StringPtr id);
Problem rowChanged(kj::StringPtr what, kj::StringPtr id, uint64_t expected, uint64_t actual);

}  // namespace capstan
