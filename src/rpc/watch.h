#pragma once
// How changes are told to a client: Watcher and the Subscription that stands for it, for whatever
// kind of value. What the values are and how they change is a WatchSource's.

#include "environment.capnp.h"
#include "rpc/guard.h"
#include "stream.capnp.h"

#include <kj/async.h>
#include <kj/debug.h>
#include <kj/map.h>

namespace capstan {

// What one watcher has still to be told: ids, each once however often it changes. Bounded: above
// the bound they are forgotten and everything has to be told anew, which takes less then.
class WatchQueue {
public:
  WatchQueue() = default;
  KJ_DISALLOW_COPY_AND_MOVE(WatchQueue);

  void add(kj::StringPtr id);
  // The next one in turn, so that one that changes all the time holds up no other; or null.
  kj::Maybe<kj::String> take();
  // What is about to be told by other means need not be told again.
  void drop(kj::StringPtr id) { waiting.eraseMatch(id); }
  // Whether everything has to be told anew, at first and after too many changes. Resets that.
  bool takeAnew();
  bool isAnew() const { return anew; }
  // Resolves when there is something to tell. For one waiter.
  kj::Promise<void> onMore();
  // Changes that did not become an event of their own.
  uint64_t coalesced() const { return merged; }

private:
  kj::TreeSet<kj::String> waiting;
  kj::String last;  // What was taken last.
  bool anew = true;
  uint64_t merged = 0;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> wake;

  void wakeUp();
};

// Where a watcher's values come from: many of them by id, or a single one. Listens to their changes
// while it lives and puts them into the queue.
template <typename T>
class WatchSource {
public:
  virtual ~WatchSource() noexcept(false) = default;

  // Grows with every change.
  virtual uint64_t seq() = 0;
  // Ids behind `after` in their order, a page of them; none = the end.
  virtual kj::Vector<kj::String> idsAfter(kj::StringPtr after) = 0;
  // The value as it is now; false, and nothing is written, when there is none.
  virtual bool write(kj::StringPtr id, typename rpc::Watcher<T>::Change::Builder change) = 0;
  // Why nothing will be told any more; null = it goes on. Asked when all has been told.
  virtual kj::Maybe<Problem> end() = 0;

  WatchQueue& queue() { return changes; }

private:
  WatchQueue changes;
};

// Tells one watcher: reset, all values, synced, then what changes, each value as it is by the time
// it is sent. The client's stream window is the only pacing, and nobody else waits for it; a client
// that takes nothing costs its window and the queue. Ends when dropped, when the client refuses an
// event, and with closed() when the source ends or `daemonEnd` resolves.
template <typename T>
class WatchCap final: public rpc::Subscription::Server {
public:
  // `place` is this watcher's among those of its connection.
  WatchCap(typename rpc::Watcher<T>::Client watcher, kj::Own<WatchSource<T>> source,
           kj::Promise<void> daemonEnd, Guard guard, kj::Own<void> place)
      : watcher(kj::mv(watcher)),
        source(kj::mv(source)),
        guard(kj::mv(guard)),
        place(kj::mv(place)),
        sending(run(kj::mv(daemonEnd)).eagerlyEvaluate([](kj::Exception&& exception) {
          KJ_LOG(INFO, "a watcher is gone", exception.getDescription());
        })) {}

protected:
  kj::Promise<void> stats(StatsContext context) override {
    if (guard.refuses(ruleOf("Subscription.stats"), context)) co_return;
    context.getResults().setDelivered(delivered);
    context.getResults().setCoalesced(merged());
  }

private:
  using Watcher = rpc::Watcher<T>;

  kj::Maybe<typename Watcher::Client> watcher;  // Null once it is told nothing more.
  kj::Maybe<kj::Own<WatchSource<T>>> source;    // Likewise.
  uint64_t mergedBefore = 0;
  Guard guard;
  kj::Own<void> place;
  uint64_t delivered = 0;
  kj::Promise<void> sending;  // Last: it uses the rest.

  uint64_t merged() {
    KJ_IF_MAYBE (present, source) {
      return (*present)->queue().coalesced();
    }
    return mergedBefore;
  }

  kj::Promise<void> run(kj::Promise<void> daemonEnd) {
    auto told = tell(*KJ_ASSERT_NONNULL(source)).exclusiveJoin(daemonEnd.then([]() {
      return Problem(ErrorCode::SHUTTING_DOWN, kj::str("the daemon has ended"))
          .retryable(RetryHint::SAME_REQUEST_LATER);
    }));
    // An event that could not be made is told; a client that refused one does not mind.
    auto why = co_await told.catch_([](kj::Exception&& e) { return asProblem(e); });
    // Whatever the client does from here on, nothing is kept for it.
    mergedBefore = merged();
    source = nullptr;
    auto request = KJ_ASSERT_NONNULL(watcher).closedRequest();
    watcher = nullptr;
    capstan::write(request.initError(), why);
    co_await request.send().ignoreResult();
  }

  // All events; why there are no more.
  kj::Promise<Problem> tell(WatchSource<T>& from) {
    auto& queue = from.queue();
    for (;;) {
      if (queue.takeAnew()) co_await tellAll(from);
      while (!queue.isAnew()) {
        auto next = queue.take();
        if (next == nullptr) break;
        co_await tellOne(from, kj::mv(KJ_ASSERT_NONNULL(next)));
      }
      auto ended = queue.isAnew() ? kj::Maybe<Problem>() : from.end();
      KJ_IF_MAYBE (problem, ended) {
        co_return kj::mv(*problem);
      }
      co_await queue.onMore();
    }
  }

  kj::Promise<void> tellAll(WatchSource<T>& from) {
    co_await deliver(from, [](auto change) { change.setReset(); });
    kj::String after;
    for (;;) {
      auto page = from.idsAfter(after);
      if (page.size() == 0) break;
      after = kj::str(page.back());
      for (auto& id: page) {
        if (from.queue().isAnew()) co_return;
        // Whatever befell it meanwhile is told now.
        from.queue().drop(id);
        co_await tellOne(from, kj::mv(id));
      }
    }
    co_await deliver(from, [](auto change) { change.setSynced(); });
  }

  kj::Promise<void> tellOne(WatchSource<T>& from, kj::String id) {
    return deliver(from, [&](auto change) {
      if (!from.write(id, change)) change.setRemove(id);
    });
  }

  template <typename Fill>
  kj::Promise<void> deliver(WatchSource<T>& from, Fill fill) {
    auto request = KJ_ASSERT_NONNULL(watcher).eventRequest();
    request.setSeq(from.seq());
    fill(request.initChange());
    ++delivered;
    return request.send();
  }
};

// Serves a watch() method. Throws when the request names no watcher or the connection has too many.
template <typename T, typename Context>
void answerWatch(Context& context, kj::Own<WatchSource<T>> source, kj::Promise<void> daemonEnd,
                 Guard guard, size_t mostWatchers) {
  if (!context.getParams().hasWatcher()) {
    kj::throwFatalException(
        asException(Problem(ErrorCode::INVALID_ARGUMENT, kj::str("there is no watcher to tell"))
                        .at(kj::str("watcher"))));
  }
  auto place = guard.takeWatcher(mostWatchers);
  if (place.template is<Problem>()) {
    kj::throwFatalException(asException(place.template get<Problem>()));
  }
  context.getResults().setSubscription(
      kj::heap<WatchCap<T>>(context.getParams().getWatcher(), kj::mv(source), kj::mv(daemonEnd),
                            kj::mv(guard), kj::mv(place.template get<kj::Own<void>>())));
}

}  // namespace capstan
