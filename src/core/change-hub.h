#pragma once

#include <kj/async.h>
#include <kj/refcount.h>

#include <cstdint>

namespace capstan {

// Counts the changes of one thing and wakes those who wait for the next. Counted: what changes and
// what is told about it may end in any order. A watcher that is slow finds one change where there
// were many, and nobody waits for it.
class ChangeHub final: public kj::Refcounted {
public:
  ChangeHub();
  ~ChangeHub() noexcept(false);

  // The number of changes so far.
  uint64_t seq() const { return count; }
  void changed();
  // Resolves when there have been more than `seen` changes. Dropping the promise is fine. Any
  // number may wait.
  kj::Promise<void> onChangeAfter(uint64_t seen);

private:
  uint64_t count = 0;
  kj::Own<kj::PromiseFulfiller<void>> wake;
  kj::ForkedPromise<void> woken = nullptr;  // Of the next change.

  void arm();
};

}  // namespace capstan
