#include "transport/loop-lag.h"

#include "support/test.h"

namespace capstan {
namespace {

class HandClock final: public kj::MonotonicClock {
public:
  kj::TimePoint now() const override { return time; }
  kj::TimePoint time = kj::origin<kj::TimePoint>();
};

TEST_CASE("a histogram knows its percentiles to a quarter, its maximum exactly") {
  DurationHistogram histogram;
  CHECK(histogram.percentile(0.99) == 0 * kj::SECONDS);
  for (int i = 1; i <= 1000; ++i) {
    histogram.record(i * 100 * kj::MICROSECONDS);
  }
  CHECK(histogram.count() == 1000);
  CHECK(histogram.max() == 100 * kj::MILLISECONDS);
  CHECK(histogram.percentile(0.5) >= 50 * kj::MILLISECONDS);
  CHECK(histogram.percentile(0.5) <= 63 * kj::MILLISECONDS);
  CHECK(histogram.percentile(0.99) >= 99 * kj::MILLISECONDS);
  CHECK(histogram.percentile(0.99) <= 100 * kj::MILLISECONDS);
  CHECK(histogram.percentile(0) <= 125 * kj::MICROSECONDS);
  CHECK(histogram.percentile(1) == histogram.max());
  histogram.reset();
  CHECK(histogram.count() == 0);
}

TEST_CASE("what is negative or beyond the last bucket still counts") {
  DurationHistogram histogram;
  histogram.record(-1 * kj::SECONDS);
  histogram.record(1000 * kj::SECONDS);
  CHECK(histogram.bucket(0) == 1);
  CHECK(histogram.bucket(DurationHistogram::BUCKETS - 1) == 1);
  CHECK(histogram.percentile(1) == 1000 * kj::SECONDS);
  for (size_t i = 1; i < DurationHistogram::BUCKETS; ++i) {
    CHECK(DurationHistogram::bound(i) > DurationHistogram::bound(i - 1));
  }
}

TEST_CASE("lag is how much later than due the timer fired") {
  test::Loop loop;
  HandClock clock;
  LoopLag lag(loop.timer, clock);
  auto advance = [&](kj::Duration by) {
    clock.time = clock.time + by;
    loop.timer.advanceTo(clock.time);
    loop.waitScope.poll();
  };
  loop.waitScope.poll();
  advance(100 * kj::MILLISECONDS);
  CHECK(lag.lag().count() == 1);
  CHECK(lag.lag().max() == 0 * kj::MILLISECONDS);
  advance(140 * kj::MILLISECONDS);
  CHECK(lag.lag().count() == 2);
  CHECK(lag.lag().max() == 40 * kj::MILLISECONDS);
  advance(99 * kj::MILLISECONDS);
  CHECK(lag.lag().count() == 2);

  lag.recordTurn(3 * kj::MILLISECONDS);
  CHECK(lag.turns().max() == 3 * kj::MILLISECONDS);
  lag.reset();
  CHECK(lag.lag().count() == 0);
  CHECK(lag.turns().count() == 0);
}

}  // namespace
}  // namespace capstan
