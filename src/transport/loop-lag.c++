#include "transport/loop-lag.h"

#include <kj/debug.h>

namespace capstan {

namespace {

using Bounds = std::array<int64_t, DurationHistogram::BUCKETS>;  // nanoseconds

constexpr Bounds makeBounds() {
  Bounds result = {};
  int64_t bound = 50000;
  for (auto& entry: result) {
    entry = bound;
    bound += bound / 4;
  }
  return result;
}

constexpr Bounds BOUNDS = makeBounds();

}  // namespace

kj::Duration DurationHistogram::bound(size_t i) { return BOUNDS[i] * kj::NANOSECONDS; }

void DurationHistogram::record(kj::Duration duration) {
  duration = kj::max(duration, 0 * kj::NANOSECONDS);
  size_t i = 0;
  while (i < BUCKETS - 1 && duration > bound(i)) {
    ++i;
  }
  ++buckets[i];
  ++total;
  longest = kj::max(longest, duration);
}

kj::Duration DurationHistogram::percentile(double fraction) const {
  KJ_REQUIRE(fraction >= 0 && fraction <= 1);
  if (total == 0) return 0 * kj::NANOSECONDS;
  auto wanted = fraction * static_cast<double>(total);
  uint64_t seen = 0;
  for (size_t i = 0; i < BUCKETS - 1; ++i) {
    seen += buckets[i];
    if (seen > 0 && static_cast<double>(seen) >= wanted) return kj::min(bound(i), longest);
  }
  return longest;
}

LoopLag::LoopLag(kj::Timer& timer, const kj::MonotonicClock& clock, kj::Duration period)
    : timer(timer), clock(clock), period(period), measuring(measure().eagerlyEvaluate(nullptr)) {}

void LoopLag::reset() {
  lags.reset();
  turnTimes.reset();
}

kj::Promise<void> LoopLag::measure() {
  for (;;) {
    auto due = timer.now() + period;
    co_await timer.atTime(due);
    lags.record(clock.now() - due);
  }
}

}  // namespace capstan
