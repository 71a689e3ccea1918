#include "base/async.h"

#include <kj/debug.h>

namespace capstan {

kj::Promise<void> AsyncLock::with(kj::Function<kj::Promise<void>()> body) {
  auto mine = kj::newPromiseAndFulfiller<void>();
  auto turn = tail.addBranch();
  tail = tail.addBranch()
             .then([done = kj::mv(mine.promise)]() mutable { return kj::mv(done); })
             .fork();
  KJ_DEFER(mine.fulfiller->fulfill());
  co_await turn;
  co_await body();
}

kj::Promise<void> SingleFlight::run(kj::FunctionParam<kj::Promise<void>()> start) {
  if (!inFlight) {
    auto work = kj::evalNow([&]() { return start(); });  // a throw becomes a rejection
    inFlight = true;
    flight = work.attach(kj::defer([this]() { inFlight = false; })).fork();
  }
  return KJ_ASSERT_NONNULL(flight).addBranch();
}

kj::Promise<void> SingleFlight::settled() {
  if (!inFlight) return kj::READY_NOW;
  // Those who wait for the run itself get its failure.
  return KJ_ASSERT_NONNULL(flight).addBranch().catch_([](kj::Exception&&) {});
}

kj::Promise<Waited> within(kj::Timer& timer, kj::Duration limit, kj::Promise<void> work) {
  return work.then([]() { return Waited::DONE; }).exclusiveJoin(timer.afterDelay(limit).then([]() {
    return Waited::TOO_LATE;
  }));
}

kj::Maybe<kj::Duration> Deadline::left(kj::TimePoint now) const {
  KJ_IF_MAYBE (end, point) {
    return *end > now ? *end - now : 0 * kj::NANOSECONDS;
  }
  return nullptr;
}

bool Deadline::passed(kj::TimePoint now) const {
  KJ_IF_MAYBE (end, point) {
    return *end <= now;
  }
  return false;
}

Deadline Deadline::atMost(kj::TimePoint now, kj::Duration limit) const {
  auto own = now + limit;
  KJ_IF_MAYBE (end, point) {
    if (*end < own) return *this;
  }
  return Deadline(own);
}

kj::Promise<Waited> until(kj::Timer& timer, Deadline deadline, kj::Promise<void> work) {
  KJ_IF_MAYBE (left, deadline.left(timer.now())) {
    return within(timer, *left, kj::mv(work));
  }
  return work.then([]() { return Waited::DONE; });
}

}  // namespace capstan
