#include "base/backoff.h"

#include <kj/debug.h>

namespace capstan {

Backoff::Backoff(Entropy& entropy, BackoffOptions options): entropy(entropy), options(options) {
  KJ_REQUIRE(options.floor <= options.first && options.first <= options.cap);
}

kj::Duration Backoff::next(kj::TimePoint now) {
  if (failures > 0 && now - resumed >= options.quiet) failures = 0;
  auto ceiling = options.first;
  for (uint32_t i = 0; i < failures && ceiling < options.cap; ++i) {
    ceiling = kj::min(ceiling * 2, options.cap);
  }
  ++failures;
  auto span = static_cast<uint64_t>((ceiling - options.floor) / kj::NANOSECONDS);
  auto delay =
      options.floor + static_cast<int64_t>(randomBelow(entropy, span + 1)) * kj::NANOSECONDS;
  resumed = now + delay;
  return delay;
}

}  // namespace capstan
