#pragma once
// How long the loop could do nothing else, as a histogram.

#include <kj/async.h>
#include <kj/time.h>
#include <kj/timer.h>

#include <array>
#include <cstdint>

namespace capstan {

// Durations in fixed buckets, each a quarter wider than the one before: 50 us to about 80 s.
class DurationHistogram final {
public:
  static constexpr size_t BUCKETS = 65;

  void record(kj::Duration duration);
  void reset() { *this = DurationHistogram(); }

  uint64_t count() const { return total; }
  kj::Duration max() const { return longest; }
  // The bound below which `fraction` (0 to 1) of the records lie: the upper end of the bucket, so
  // at most a quarter too high, and never above max(). Zero without records.
  kj::Duration percentile(double fraction) const;

  // For exports: the upper end of bucket `i` (inclusive; the last has none) and its records.
  static kj::Duration bound(size_t i);
  uint64_t bucket(size_t i) const { return buckets[i]; }

private:
  std::array<uint64_t, BUCKETS> buckets = {};
  uint64_t total = 0;
  kj::Duration longest = 0 * kj::NANOSECONDS;
};

// Measures while it lives: every `period` how much later than due a timer fired (lag), and what it
// is told of single turns (pump turns; longer ones are what causes lag). `timer` and `clock` must
// outlive it and count from the same origin, as kj's own do.
class LoopLag final {
public:
  explicit LoopLag(kj::Timer& timer,
                   const kj::MonotonicClock& clock = kj::systemPreciseMonotonicClock(),
                   kj::Duration period = 100 * kj::MILLISECONDS);
  KJ_DISALLOW_COPY_AND_MOVE(LoopLag);

  const DurationHistogram& lag() const { return lags; }
  const DurationHistogram& turns() const { return turnTimes; }
  void recordTurn(kj::Duration duration) { turnTimes.record(duration); }
  // Begins both anew.
  void reset();

private:
  kj::Timer& timer;
  const kj::MonotonicClock& clock;
  kj::Duration period;
  DurationHistogram lags;
  DurationHistogram turnTimes;
  kj::Promise<void> measuring;  // last: it touches all above

  kj::Promise<void> measure();
};

}  // namespace capstan
