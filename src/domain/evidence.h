#pragma once
// What may be kept and shown of a failure's words, whoever said them.

#include "base/problem.h"

namespace capstan {

// Most octets of evidence that one episode keeps.
inline constexpr size_t EVIDENCE_BYTES = 4096;

// `text` as one line of valid UTF-8 of at most `limit` octets (at least 4; cut between characters,
// with "..." at its end). Absolute and home paths become <path>; of a URL only scheme and host
// stay; values of variables (NAME=...), words after "token", "password" and the like, and tokens of
// well-known forms become <hidden>. Terminal sequences and control characters go.
kj::String evidenceText(kj::StringPtr text, size_t limit);

// Code, system and upstream code of `problem`, and its message and cause in one text of at most
// `limit` octets. No hint: that was for whoever asked.
Problem evidenceOf(const Problem& problem, size_t limit);

}  // namespace capstan
