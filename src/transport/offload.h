#pragma once
// Functions that would hold up the loop, run on libuv's worker pool.

#include "transport/uv-loop.h"

#include <kj/debug.h>
#include <kj/exception.h>
#include <kj/refcount.h>

#include <type_traits>

namespace capstan {

// One function on the pool, without its result's type.
class OffloadJob {
public:
  virtual ~OffloadJob() noexcept(false) = default;
  virtual void work() = 0;                  // on a worker; must not throw
  virtual void finish(bool cancelled) = 0;  // on the loop, after work() unless cancelled
};

// Hands functions to the pool, at most `limit` at a time (queued and running); above that run()
// fails as *overloaded*. The uv loop must outlive it; jobs that still run when it is destroyed are
// detached.
class Offload final {
public:
  explicit Offload(UvLoop& uv, uint32_t limit = 1024);
  ~Offload() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Offload);

  // Runs `function` on a worker and resolves to what it returns (rejects with what it throws). It
  // must own all it touches: dropping the promise detaches it, or unqueues it if it has not begun.
  // It is destroyed in the loop's thread. T may be void.
  template <typename T>
  kj::Promise<T> run(kj::Function<T()> function) {
    auto paf = kj::newPromiseAndFulfiller<T>();
    auto withdraw = submit(kj::heap<Job<T>>(kj::mv(function), kj::mv(paf.fulfiller)));
    return paf.promise.attach(kj::mv(withdraw));
  }

  // Jobs queued or running.
  uint32_t inProgress() const;

private:
  class Request;
  struct Counter;
  class Withdraw;

  UvLoop& uv;
  const uint32_t limit;
  kj::Own<Counter> counter;

  kj::Own<void> submit(kj::Own<OffloadJob> job);

  template <typename T>
  class Job final: public OffloadJob {
  public:
    Job(kj::Function<T()> function, kj::Own<kj::PromiseFulfiller<T>> fulfiller)
        : function(kj::mv(function)), fulfiller(kj::mv(fulfiller)) {}
    void work() override {
      error = kj::runCatchingExceptions([this]() {
        if constexpr (std::is_void_v<T>) {
          function();
        } else {
          result = function();
        }
      });
    }
    void finish(bool cancelled) override {
      KJ_IF_MAYBE (exception, error) {
        fulfiller->reject(kj::mv(*exception));
      } else if (cancelled) {
        fulfiller->reject(KJ_EXCEPTION(DISCONNECTED, "the job was withdrawn"));
      } else if constexpr (std::is_void_v<T>) {
        fulfiller->fulfill();
      } else {
        fulfiller->fulfill(kj::mv(KJ_ASSERT_NONNULL(result)));
      }
    }

  private:
    struct Nothing {};
    kj::Function<T()> function;
    kj::Own<kj::PromiseFulfiller<T>> fulfiller;
    kj::Maybe<std::conditional_t<std::is_void_v<T>, Nothing, T>> result;
    kj::Maybe<kj::Exception> error;
  };
};

}  // namespace capstan
