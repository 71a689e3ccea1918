#pragma once
// An inventory in memory that can fail at any note, and stop the world at any note.

#include "backends/backend.h"

#include <kj/function.h>

namespace capstan::test {

InventoryItem cloneItem(const InventoryItem& item);
kj::Vector<InventoryItem> cloneItems(kj::ArrayPtr<const InventoryItem> items);

// A note is written when it is asked for (dropping its promise leaves it to be written), and its
// promise resolves a turn of the loop later.
class MemoryLog final: public InventoryLog {
public:
  MemoryLog() = default;
  KJ_DISALLOW_COPY_AND_MOVE(MemoryLog);

  kj::Promise<Result<uint64_t>> intend(InventoryItem item) override;
  kj::Promise<Outcome> confirm(uint64_t seq, kj::String identity,
                               kj::Array<Label> details) override;
  kj::Promise<Outcome> forget(uint64_t seq) override;

  // What is written down, oldest first.
  kj::ArrayPtr<const InventoryItem> items() const { return durable; }
  kj::Vector<InventoryItem> clone() const { return cloneItems(durable); }
  size_t notes = 0;  // Asked for so far.

  // Called with "VERB KIND" when a note is asked for, before it is written.
  kj::Function<void(kj::StringPtr note)> onNote = [](kj::StringPtr) {};
  // The note of that number (from 1) and all later ones answer a Problem and are not written.
  size_t failFrom = SIZE_MAX;
  // The note of that number never resolves; it is written, or is not.
  size_t hangAt = SIZE_MAX;
  bool writesWhatHangs = true;

private:
  kj::Vector<InventoryItem> durable;
  uint64_t last = 0;

  // Whether this note is to be written, and what its answer is.
  enum class Fate { GOOD, FAILS, HANGS_WRITTEN, HANGS_UNWRITTEN };
  Fate note(kj::StringPtr what);
  kj::Promise<void> settle(Fate fate);
  InventoryItem& find(uint64_t seq);
};

// Takes the steps of long work and keeps their names.
class StepList final: public ProgressSink {
public:
  struct Seen {
    kj::String name;
    PrepareStep::Status status;
    uint16_t index, total;
  };
  kj::Vector<Seen> seen;

  void report(const PrepareStep& step, uint16_t index, uint16_t total) override {
    seen.add(Seen{kj::str(step.name), step.status, index, total});
  }
};

}  // namespace capstan::test
