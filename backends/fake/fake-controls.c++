#include "backends/fake/fake-controls.h"

#include <kj/debug.h>

namespace capstan {

FakeFault FakeFault::clone() const {
  FakeFault copy;
  copy.how = how;
  copy.problem = problem.clone();
  copy.times = times;
  return copy;
}

void FakeControls::setDelay(kj::StringPtr step, kj::Duration delay) {
  delays.upsert(kj::str(step), delay);
}

void FakeControls::addFault(kj::StringPtr step, FakeFault fault) {
  KJ_REQUIRE(fault.times > 0);
  faults.findOrCreate(step, [&]() -> decltype(faults)::Entry { return {kj::str(step), {}}; })
      .add(kj::mv(fault));
}

void FakeControls::clear() {
  defaultDelay = 0 * kj::SECONDS;
  delays.clear();
  faults.clear();
}

uint32_t FakeControls::count(kj::StringPtr step) const {
  KJ_IF_MAYBE (found, counts.find(step)) {
    return *found;
  }
  return 0;
}

kj::Maybe<FakeFault> FakeControls::takeFault(kj::StringPtr step) {
  KJ_IF_MAYBE (list, faults.find(step)) {
    for (auto& each: *list) {
      if (each.times == 0) continue;
      --each.times;
      return each.clone();
    }
  }
  return nullptr;
}

kj::Promise<Outcome> FakeControls::run(kj::Timer& timer, kj::String step,
                                       kj::Function<kj::Promise<Outcome>()> act) {
  counts.findOrCreate(step, [&]() -> decltype(counts)::Entry { return {kj::str(step), 0}; }) += 1;
  if (begun.size() < MAX_HISTORY) begun.add(kj::str(step));
  auto fault = takeFault(step);
  auto delay = delays.find(step).orDefault(defaultDelay);
  if (delay > 0 * kj::SECONDS) {
    co_await timer.afterDelay(delay);
  } else {
    co_await kj::evalLater([]() {});
  }
  using How = FakeFault::How;
  auto how = fault.map([](FakeFault& each) { return each.how; });
  if (how == How::REFUSES) co_return kj::mv(KJ_ASSERT_NONNULL(fault).problem);
  if (how == How::THROWS) {
    kj::throwFatalException(KJ_EXCEPTION(FAILED, "the fake was told to throw", step));
  }
  if (how == How::HANGS) co_await kj::Promise<void>(kj::NEVER_DONE);
  if (how == How::LIES) co_return nullptr;
  auto outcome = co_await act();
  // Between what happened and the answer lies a wait at which a caller can be lost.
  co_await kj::evalLater([]() {});
  if (outcome != nullptr) co_return kj::mv(outcome);
  if (how == How::FAILS_AFTER) co_return kj::mv(KJ_ASSERT_NONNULL(fault).problem);
  if (how == How::LOSES_ANSWER) {
    kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "the fake lost the answer", step));
  }
  if (how == How::HANGS_AFTER) co_await kj::Promise<void>(kj::NEVER_DONE);
  co_return nullptr;
}

}  // namespace capstan
