#pragma once
// The keys of the configuration file, and the scalars they take. For daemon-config.c++ only.

#include "domain/daemon-config.h"

#include <kj/array.h>
#include <kj/string.h>
#include <kj/time.h>

#include <cstdint>
#include <variant>

namespace capstan::config {

// `30s`: a whole number with ms, s, min or h.
struct DurationRule {
  kj::Duration Deadlines::* field;
  kj::Duration least, most;
};
// `64MiB`: a whole number with B, KiB, MiB or GiB.
struct SizeRule {
  size_t Limits::* field;
  uint64_t least, most;
};
struct CountRule {
  size_t Limits::* field;
  uint64_t least, most;
};
struct SwitchRule {
  bool DaemonConfig::* field;
};
struct PathRule {
  kj::Maybe<kj::String> DaemonConfig::* field;
  size_t mostBytes;
  kj::StringPtr standard;  // What holds when it is not set.
};
struct LogFormatRule {};
// A founding key of which one value is true of Capstan, and every other cannot be honoured.
struct FixedRule {
  kj::StringPtr value;
  kj::StringPtr whyNoOther;
};

struct Key {
  kj::StringPtr path;  // "limits.variables"
  std::variant<DurationRule, SizeRule, CountRule, SwitchRule, PathRule, LogFormatRule, FixedRule>
      rule;
  kj::StringPtr meaning;
};

// In the order in which they are written; the keys of a section stand together.
kj::ArrayPtr<const Key> keys();

// A key of earlier designs that is refused by name.
struct GoneKey {
  kj::StringPtr path;
  kj::StringPtr instead;  // What replaced it.
  kj::StringPtr cure;
};
kj::ArrayPtr<const GoneKey> goneKeys();

// What a quantity's text is wrong in; empty = nothing.
struct Quantity {
  uint64_t value = 0;  // In milliseconds, octets or pieces.
  kj::String fault;
};
// Never overflows: what is too large for the largest unit is the largest value.
Quantity readDuration(kj::StringPtr text);
Quantity readSize(kj::StringPtr text);
Quantity readCount(kj::StringPtr text);

// The shortest spelling without a fraction: "90s", "2min", "64MiB". Parts of a millisecond are cut.
kj::String durationText(kj::Duration duration);
kj::String sizeText(uint64_t bytes);

}  // namespace capstan::config
