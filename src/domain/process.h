#pragma once
// Values about processes: how they ended, their terminal, their streams.

#include <kj/common.h>
#include <kj/string.h>

#include <cstdint>

namespace capstan {

// Wall clock in milliseconds since 1970-01-01T00:00Z; 0 = unknown.
using UnixMs = int64_t;

// How a process ended.
struct ExitStatus {
  enum class Kind {
    CODE,     // `code` holds 0 to 255
    SIGNAL,   // `signal` holds the name without SIG
    UNKNOWN,  // It ended, nobody saw how.
  };
  Kind kind = Kind::UNKNOWN;
  int code = 0;
  kj::String signal;
  UnixMs at = 0;

  ExitStatus clone() const;
  // What a shell reports: the code, 128 + number for a signal, 255 when unknown.
  int shellCode() const;
};

// "exit 3", "signal KILL" or "unknown".
kj::String KJ_STRINGIFY(const ExitStatus& status);

// A terminal as asked for; zero sizes mean 80 x 24, an empty term xterm-256color.
struct Terminal {
  uint16_t columns = 0;
  uint16_t rows = 0;
  kj::String term;

  Terminal clone() const;
};

// TERM first and KILL after a grace, or KILL at once.
enum class StopMode { GRACEFUL, FORCED };

enum class OutputStream : uint8_t { STDOUT = 0, STDERR = 1 };

// The number of a signal by its name without SIG ("TERM"), in upper case; null = no such signal
// that may be sent (real-time signals are not named).
kj::Maybe<int> signalNumber(kj::StringPtr name);
// The name without SIG; the decimal number for a signal without a name.
kj::String signalName(int number);

}  // namespace capstan
