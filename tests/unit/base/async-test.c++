#include "base/async.h"

#include "support/test.h"

namespace capstan {
namespace {

using test::Loop;

struct Gate {
  kj::PromiseFulfillerPair<void> pair = kj::newPromiseAndFulfiller<void>();
};

TEST_CASE("AsyncLock runs bodies one after another in call order") {
  Loop loop;
  AsyncLock lock;
  kj::Vector<int> order;
  Gate first;
  auto a = lock.with([&]() {
    order.add(1);
    return kj::mv(first.pair.promise);
  });
  auto b = lock.with([&]() -> kj::Promise<void> {
    order.add(2);
    return kj::READY_NOW;
  });

  CHECK_FALSE(b.poll(loop.waitScope));
  REQUIRE(order.size() == 1);
  first.pair.fulfiller->fulfill();
  b.wait(loop.waitScope);

  CHECK(order.size() == 2);
  a.wait(loop.waitScope);
}

TEST_CASE("AsyncLock: a dropped waiter neither wakes the next one early nor breaks it") {
  Loop loop;
  AsyncLock lock;
  Gate first;
  bool second = false;
  bool third = false;
  auto a = lock.with([&]() { return kj::mv(first.pair.promise); });
  kj::Maybe<kj::Promise<void>> b = lock.with([&]() -> kj::Promise<void> {
    second = true;
    return kj::READY_NOW;
  });
  auto c = lock.with([&]() -> kj::Promise<void> {
    third = true;
    return kj::READY_NOW;
  });

  b = nullptr;
  CHECK_FALSE(c.poll(loop.waitScope));
  CHECK_FALSE(third);
  first.pair.fulfiller->fulfill();
  c.wait(loop.waitScope);

  CHECK(third);
  CHECK_FALSE(second);
}

TEST_CASE("AsyncLock: a body that fails or is dropped lets the next one in") {
  Loop loop;
  AsyncLock lock;
  auto failing = lock.with([]() -> kj::Promise<void> { return KJ_EXCEPTION(FAILED, "broken"); });
  kj::Maybe<kj::Promise<void>> endless =
      lock.with([]() -> kj::Promise<void> { return kj::NEVER_DONE; });
  bool ran = false;
  auto last = lock.with([&]() -> kj::Promise<void> {
    ran = true;
    return kj::READY_NOW;
  });

  CHECK_THROWS(failing.wait(loop.waitScope));
  CHECK_FALSE(last.poll(loop.waitScope));
  endless = nullptr;
  last.wait(loop.waitScope);

  CHECK(ran);
}

TEST_CASE("SingleFlight shares one run and starts anew after it") {
  Loop loop;
  SingleFlight flight;
  int starts = 0;
  Gate gate;
  auto a = flight.run([&]() {
    ++starts;
    return kj::mv(gate.pair.promise);
  });
  auto b = flight.run([&]() -> kj::Promise<void> {
    ++starts;
    return kj::READY_NOW;
  });

  CHECK(flight.running());
  CHECK_FALSE(b.poll(loop.waitScope));
  gate.pair.fulfiller->fulfill();
  a.wait(loop.waitScope);
  b.wait(loop.waitScope);
  CHECK(starts == 1);
  CHECK_FALSE(flight.running());

  flight
      .run([&]() -> kj::Promise<void> {
        ++starts;
        return kj::READY_NOW;
      })
      .wait(loop.waitScope);
  CHECK(starts == 2);
}

TEST_CASE("SingleFlight: the run outlives the caller who began it") {
  Loop loop;
  SingleFlight flight;
  Gate gate;
  bool done = false;
  kj::Maybe<kj::Promise<void>> a =
      flight.run([&]() { return gate.pair.promise.then([&]() { done = true; }); });
  auto b = flight.run([]() -> kj::Promise<void> { return KJ_EXCEPTION(FAILED, "never started"); });

  a = nullptr;
  gate.pair.fulfiller->fulfill();
  b.wait(loop.waitScope);

  CHECK(done);
}

TEST_CASE("SingleFlight: destroying the object cancels the run; a throw goes to the caller") {
  Loop loop;
  bool cancelled = false;
  kj::Promise<void> orphan = nullptr;
  {
    SingleFlight flight;
    CHECK_THROWS(
        flight.run([]() -> kj::Promise<void> { KJ_FAIL_REQUIRE("at once"); }).wait(loop.waitScope));
    orphan = flight.run([&]() {
      return kj::Promise<void>(kj::NEVER_DONE).attach(kj::defer([&]() { cancelled = true; }));
    });
    orphan = nullptr;
    CHECK_FALSE(cancelled);
  }
  CHECK(cancelled);
}

TEST_CASE("within() gives up at the limit and cancels the work") {
  Loop loop;
  bool cancelled = false;
  auto work = kj::Promise<void>(kj::NEVER_DONE).attach(kj::defer([&]() { cancelled = true; }));

  auto outcome = within(loop.timer, 5 * kj::SECONDS, kj::mv(work));
  loop.advance(4999 * kj::MILLISECONDS);
  CHECK_FALSE(outcome.poll(loop.waitScope));
  loop.advance(1 * kj::MILLISECONDS);

  CHECK(outcome.wait(loop.waitScope) == Waited::TOO_LATE);
  CHECK(cancelled);
}

TEST_CASE("within() passes on work and failures that come in time") {
  Loop loop;
  CHECK(within(loop.timer, 1 * kj::SECONDS, kj::READY_NOW).wait(loop.waitScope) == Waited::DONE);
  CHECK_THROWS(within(loop.timer, 1 * kj::SECONDS, KJ_EXCEPTION(FAILED, "x")).wait(loop.waitScope));
}

TEST_CASE("Deadline: what is left, the earlier of two, never") {
  Loop loop;
  auto deadline = Deadline::after(loop.timer, 10 * kj::SECONDS);
  CHECK(KJ_ASSERT_NONNULL(deadline.left(loop.timer.now())) == 10 * kj::SECONDS);
  auto step = deadline.atMost(loop.timer.now(), 3 * kj::SECONDS);
  CHECK(KJ_ASSERT_NONNULL(step.left(loop.timer.now())) == 3 * kj::SECONDS);
  auto longer = deadline.atMost(loop.timer.now(), 30 * kj::SECONDS);
  CHECK(KJ_ASSERT_NONNULL(longer.left(loop.timer.now())) == 10 * kj::SECONDS);

  loop.advance(10 * kj::SECONDS);
  CHECK(deadline.passed(loop.timer.now()));
  CHECK(KJ_ASSERT_NONNULL(deadline.left(loop.timer.now())) == 0 * kj::SECONDS);
  CHECK_FALSE(Deadline::never().passed(loop.timer.now()));
  CHECK(Deadline::never().left(loop.timer.now()) == nullptr);
  CHECK(Deadline::never().atMost(loop.timer.now(), 1 * kj::SECONDS).when() != nullptr);
}

TEST_CASE("until() waits for a deadline; never() waits for the work alone") {
  Loop loop;
  auto late = until(loop.timer, Deadline::after(loop.timer, 1 * kj::SECONDS), kj::NEVER_DONE);
  auto open = until(loop.timer, Deadline::never(), kj::NEVER_DONE);
  loop.advance(1 * kj::SECONDS);
  CHECK(late.wait(loop.waitScope) == Waited::TOO_LATE);
  CHECK_FALSE(open.poll(loop.waitScope));
}

}  // namespace
}  // namespace capstan
