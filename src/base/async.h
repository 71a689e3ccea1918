#pragma once
// Small tools of the loop: turns, shared runs, time-outs, deadlines.

#include <kj/async.h>
#include <kj/function.h>
#include <kj/timer.h>

namespace capstan {

// Runs bodies one after another in call order. A waiter that is dropped leaves the queue without
// waking the next one early; a body that is dropped or fails lets the next one in.
class AsyncLock final {
public:
  // Runs `body` when all earlier ones have ended. The body lives in the returned promise; dropping
  // that cancels it. Must not be called from inside a body of the same lock (it waits for itself).
  kj::Promise<void> with(kj::Function<kj::Promise<void>()> body);

private:
  kj::ForkedPromise<void> tail = kj::Promise<void>(kj::READY_NOW).fork();
};

// Lets all callers who ask while an operation runs share that one run. The run belongs to this
// object: a caller that goes away does not cancel it for the others, destroying the object does.
class SingleFlight final {
public:
  SingleFlight() = default;
  KJ_DISALLOW_COPY_AND_MOVE(SingleFlight);

  // Joins the run in progress, else starts one with `start`. A failure goes to all who share the
  // run; the next call starts anew.
  kj::Promise<void> run(kj::FunctionParam<kj::Promise<void>()> start);

  bool running() const { return inFlight; }
  // Resolves when the run in progress has ended, however; at once without one. Starts nothing.
  kj::Promise<void> settled();

private:
  bool inFlight = false;
  kj::Maybe<kj::ForkedPromise<void>> flight;  // after inFlight: its destructor writes there
};

// Hands the outcome of `work`, a failure included, to `fulfiller`: for a task set that works for a
// caller who may leave.
template <typename T>
kj::Promise<void> deliver(kj::Promise<T> work, kj::Own<kj::PromiseFulfiller<T>> fulfiller) {
  auto& to = *fulfiller;
  return work
      .then([&to](T&& result) { to.fulfill(kj::mv(result)); },
            [&to](kj::Exception&& e) { to.reject(kj::mv(e)); })
      .attach(kj::mv(fulfiller));
}

enum class Waited { DONE, TOO_LATE };

// Resolves to TOO_LATE after `limit`; the loser of the race is cancelled at once. Unlike
// Timer::timeoutAfter() a foreseen time-out is a value here, not an *overloaded* exception.
kj::Promise<Waited> within(kj::Timer& timer, kj::Duration limit, kj::Promise<void> work);

// A point in time by which a request has to be answered; made once at the border and passed down,
// so that steps do not each start a full limit. A value; `now` always comes from the same timer.
class Deadline final {
public:
  static Deadline at(kj::TimePoint when) { return Deadline(when); }
  static Deadline after(kj::Timer& timer, kj::Duration limit) {
    return Deadline(timer.now() + limit);
  }
  // For what only its caller ends.
  static Deadline never() { return Deadline(nullptr); }

  // Zero when it has passed; null when there is none.
  kj::Maybe<kj::Duration> left(kj::TimePoint now) const;
  bool passed(kj::TimePoint now) const;
  // The earlier one of this and `limit` from now: for a step with a bound of its own.
  Deadline atMost(kj::TimePoint now, kj::Duration limit) const;
  kj::Maybe<kj::TimePoint> when() const { return point; }

private:
  explicit Deadline(kj::Maybe<kj::TimePoint> point): point(point) {}
  kj::Maybe<kj::TimePoint> point;  // null = never
};

// within() for a deadline. A deadline that has passed cancels `work` unless it is already done.
kj::Promise<Waited> until(kj::Timer& timer, Deadline deadline, kj::Promise<void> work);

}  // namespace capstan
