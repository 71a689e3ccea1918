#pragma once
// Blocking work on folders, in order.

#include "base/async.h"
#include "transport/offload.h"

#include <kj/map.h>
#include <kj/refcount.h>

namespace capstan {

// Runs functions on the worker pool: those for one folder one after another in call order, and each
// to its end even if its caller leaves, so that nothing comes into being behind the back of whoever
// asks for the same folder next. The pool must outlive it; destroying it detaches what still runs.
class PlaceQueue final: private kj::TaskSet::ErrorHandler {
public:
  explicit PlaceQueue(Offload& offload): offload(offload), tasks(*this) {}
  ~PlaceQueue() noexcept(false) {}
  KJ_DISALLOW_COPY_AND_MOVE(PlaceQueue);

  // As Offload::run(), for the folder `path`.
  template <typename T>
  kj::Promise<T> run(kj::String path, kj::Function<T()> function) {
    auto pair = kj::newPromiseAndFulfiller<T>();
    auto line = joinLine(path);
    auto work = runInTurn<T>(kj::mv(line), kj::mv(path), kj::mv(function));
    tasks.add(deliver(kj::mv(work), kj::mv(pair.fulfiller)));
    return kj::mv(pair.promise);
  }

private:
  // Those who want the same folder.
  struct Line final: public kj::Refcounted {
    AsyncLock lock;
  };

  Offload& offload;
  kj::HashMap<kj::String, kj::Own<Line>> lines;
  kj::TaskSet tasks;  // last

  kj::Own<Line> joinLine(kj::StringPtr path);
  void leaveLine(kj::Own<Line> line, kj::StringPtr path);

  template <typename T>
  kj::Promise<T> runInTurn(kj::Own<Line> line, kj::String path, kj::Function<T()> function) {
    auto& lock = line->lock;
    KJ_DEFER(leaveLine(kj::mv(line), path));
    kj::Maybe<T> result;
    co_await lock.with([&]() {
      return offload.run<T>(kj::mv(function)).then([&result](T&& value) {
        result = kj::mv(value);
      });
    });
    co_return kj::mv(KJ_ASSERT_NONNULL(result));
  }

  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
