#pragma once
// Helpers that outlive a daemon, written down in memory: the book outlives the backend objects.

#include "backends/backend.h"

#include <kj/vector.h>

namespace capstan::test {

class MemoryBook: public HelperBook {
public:
  MemoryBook() = default;
  KJ_DISALLOW_COPY_AND_MOVE(MemoryBook);

  kj::Promise<Result<kj::Maybe<HelperEntry>>> current() override;
  kj::Promise<Result<kj::Vector<HelperEntry>>> draining() override;
  kj::Promise<Outcome> add(HelperEntry entry) override;
  kj::Promise<Outcome> started(kj::String name, int64_t pid, uint64_t startTicks,
                               kj::String bootId) override;
  kj::Promise<Outcome> remove(kj::String name) override;

  kj::ArrayPtr<const HelperEntry> entries() const { return written; }
  // What opens them cannot be read any more, or can be read again.
  void lock(bool locked) { isLocked = locked; }
  // Forgets those of which it is not known which process they are. How many there were.
  size_t dropUnknown();

private:
  kj::Vector<HelperEntry> written;  // The last one is current.
  bool isLocked = false;
};

}  // namespace capstan::test
