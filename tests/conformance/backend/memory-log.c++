#include "conformance/backend/memory-log.h"

#include <kj/debug.h>

namespace capstan::test {

InventoryItem cloneItem(const InventoryItem& item) {
  InventoryItem copy;
  copy.environmentId = kj::str(item.environmentId);
  copy.seq = item.seq;
  copy.runtime = kj::str(item.runtime);
  copy.step = kj::str(item.step);
  copy.kind = kj::str(item.kind);
  copy.name = kj::str(item.name);
  copy.identity = kj::str(item.identity);
  copy.state = item.state;
  copy.details = KJ_MAP(each, item.details) {
    return Label{kj::str(each.key), kj::str(each.value)};
  };
  return copy;
}

kj::Vector<InventoryItem> cloneItems(kj::ArrayPtr<const InventoryItem> items) {
  kj::Vector<InventoryItem> copy;
  for (auto& each: items)
    copy.add(cloneItem(each));
  return copy;
}

MemoryLog::Fate MemoryLog::note(kj::StringPtr what) {
  ++notes;
  onNote(what);
  if (notes >= failFrom) return Fate::FAILS;
  if (notes != hangAt) return Fate::GOOD;
  return writesWhatHangs ? Fate::HANGS_WRITTEN : Fate::HANGS_UNWRITTEN;
}

kj::Promise<void> MemoryLog::settle(Fate fate) {
  co_await kj::evalLater([]() {});
  if (fate == Fate::HANGS_WRITTEN || fate == Fate::HANGS_UNWRITTEN) {
    co_await kj::Promise<void>(kj::NEVER_DONE);
  }
}

namespace {

Problem readOnly() {
  return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("the store takes no writes"));
}

}  // namespace

// Dropping the promise of a note leaves it to be written: so it is written at once.
kj::Promise<Result<uint64_t>> MemoryLog::intend(InventoryItem item) {
  KJ_REQUIRE(item.kind.size() > 0 && item.name.size() > 0 && item.step.startsWith("inv."),
             item.kind, item.name, item.step);
  KJ_REQUIRE(item.state == InventoryItem::State::INTENDED || item.identity.size() > 0);
  auto fate = note(kj::str("intend ", item.kind));
  if (fate == Fate::FAILS) {
    co_await settle(fate);
    co_return readOnly();
  }
  auto seq = ++last;
  item.seq = seq;
  if (fate != Fate::HANGS_UNWRITTEN) durable.add(kj::mv(item));
  co_await settle(fate);
  co_return seq;
}

InventoryItem& MemoryLog::find(uint64_t seq) {
  for (auto& each: durable) {
    if (each.seq == seq) return each;
  }
  KJ_FAIL_REQUIRE("a note about an item that is not written down", seq);
}

kj::Promise<Outcome> MemoryLog::confirm(uint64_t seq, kj::String identity,
                                        kj::Array<Label> details) {
  KJ_REQUIRE(identity.size() > 0, "nothing is made without an identity");
  auto fate = note(kj::str("confirm ", find(seq).kind));
  if (fate == Fate::FAILS) {
    co_await settle(fate);
    co_return readOnly();
  }
  if (fate != Fate::HANGS_UNWRITTEN) {
    auto& item = find(seq);
    KJ_REQUIRE(item.state == InventoryItem::State::INTENDED || item.identity == identity,
               "another identity than was confirmed before");
    item.identity = kj::mv(identity);
    item.details = kj::mv(details);
    item.state = InventoryItem::State::MADE;
  }
  co_await settle(fate);
  co_return nullptr;
}

kj::Promise<Outcome> MemoryLog::forget(uint64_t seq) {
  auto fate = note(kj::str("forget ", find(seq).kind));
  if (fate == Fate::FAILS) {
    co_await settle(fate);
    co_return readOnly();
  }
  if (fate != Fate::HANGS_UNWRITTEN) {
    kj::Vector<InventoryItem> left;
    for (auto& each: durable) {
      if (each.seq != seq) left.add(kj::mv(each));
    }
    durable = kj::mv(left);
  }
  co_await settle(fate);
  co_return nullptr;
}

}  // namespace capstan::test
