#pragma once
// How the steps of a fake runtime go: how long each takes, and which of them go wrong and how.

#include "base/problem.h"

#include <kj/async.h>
#include <kj/function.h>
#include <kj/map.h>
#include <kj/timer.h>
#include <kj/vector.h>

namespace capstan {

// One way for a step to go wrong.
struct FakeFault {
  enum class How {
    REFUSES,       // Nothing happens; the answer is `problem`.
    THROWS,        // Nothing happens; an exception.
    FAILS_AFTER,   // It happens; the answer is `problem`.
    LOSES_ANSWER,  // It happens; a disconnected exception.
    HANGS,         // Nothing happens and no answer comes.
    HANGS_AFTER,   // It happens and no answer comes.
    LIES,          // Nothing happens; the answer is that it did.
  };
  How how = How::REFUSES;
  Problem problem = Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("the fake was told to fail"));
  uint32_t times = 1;  // After so many it is over.

  FakeFault clone() const;
};

// The steps are, for each `kind` of fake-world.h:
//   create.KIND  stop.compute  start.compute  remove.KIND
// and:
//   health  recover (one a place)  recover.all (the call)  dial  resume  remote-status  stage
//   commit  dial-port  listen-port  test  interactive
class FakeControls final {
public:
  // Nothing set: every step takes one turn of the loop before and one after it, no time, and goes
  // well.
  FakeControls() = default;
  KJ_DISALLOW_COPY_AND_MOVE(FakeControls);

  void setDelay(kj::StringPtr step, kj::Duration delay);
  // For all steps without a delay of their own.
  void setDefaultDelay(kj::Duration delay) { defaultDelay = delay; }
  // After what was set for the same step before.
  void addFault(kj::StringPtr step, FakeFault fault);
  // Forgets all faults and delays.
  void clear();

  // How often a step was begun, and the steps in their order.
  uint32_t count(kj::StringPtr step) const;
  kj::ArrayPtr<const kj::String> history() const { return begun; }
  void forgetHistory() { begun.clear(); }

  // Takes the step: waits, does `act` unless a fault forbids it, and answers.
  kj::Promise<Outcome> run(kj::Timer& timer, kj::String step,
                           kj::Function<kj::Promise<Outcome>()> act);

private:
  static constexpr size_t MAX_HISTORY = 100'000;
  kj::Duration defaultDelay = 0 * kj::SECONDS;
  kj::HashMap<kj::String, kj::Duration> delays;
  kj::HashMap<kj::String, kj::Vector<FakeFault>> faults;
  kj::HashMap<kj::String, uint32_t> counts;
  kj::Vector<kj::String> begun;  // The first MAX_HISTORY.

  kj::Maybe<FakeFault> takeFault(kj::StringPtr step);
};

}  // namespace capstan
