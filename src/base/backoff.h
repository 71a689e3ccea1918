#pragma once
// How long to wait before trying again.

#include "base/entropy.h"

#include <kj/time.h>

namespace capstan {

struct BackoffOptions {
  kj::Duration first = 250 * kj::MILLISECONDS;  // ceiling of the first delay
  kj::Duration cap = 30 * kj::SECONDS;          // ceiling of every delay
  kj::Duration floor = 20 * kj::MILLISECONDS;   // least delay, so that no draw is a busy loop
  kj::Duration quiet = 60 * kj::SECONDS;        // so long without a failure: begin anew
};

// Exponential delays with full jitter: the n-th is drawn evenly from [floor, min(cap, first*2^n)],
// so that many who fail together do not come back together. `entropy` must outlive it.
class Backoff final {
public:
  explicit Backoff(Entropy& entropy, BackoffOptions options = BackoffOptions());

  // A failure happened at `now`: how long to wait.
  kj::Duration next(kj::TimePoint now);
  // The work succeeded: the next failure is a first one.
  void reset() { failures = 0; }
  // Failures in a row, for the log.
  uint32_t count() const { return failures; }

private:
  Entropy& entropy;
  BackoffOptions options;
  uint32_t failures = 0;
  kj::TimePoint resumed = kj::origin<kj::TimePoint>();  // when the last delay was over
};

}  // namespace capstan
