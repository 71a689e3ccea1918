#pragma once
// Reads what an agentctl executable says of itself, without running it.

#include <kj/array.h>
#include <kj/string.h>

namespace capstan {

struct HelperNote {
  kj::String build;
  kj::Array<kj::String> capabilities;
  kj::String platform;  // "linux/amd64"
};

// The note of a 64-bit little-endian ELF file whose bytes are `file`; null when the file is no such
// thing, holds no note of ours, or is malformed. Never reads outside `file`.
kj::Maybe<HelperNote> readHelperNote(kj::ArrayPtr<const kj::byte> file);

}  // namespace capstan
