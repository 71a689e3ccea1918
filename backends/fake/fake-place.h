#pragma once
// How a fake place stands in an inventory, and the way to it.

#include "backends/fake/fake-world.h"

#include <kj/timer.h>

namespace capstan {

inline constexpr kj::StringPtr FAKE_NONCE = "nonce"_kj;  // The detail with what was written on it.
inline constexpr kj::StringPtr FAKE_PROCESS = "process"_kj;  // Of a helper that was replaced.

InventoryItem cloneItem(const InventoryItem& item);

// The newest item of that kind; null = none.
kj::Maybe<const InventoryItem&> findItem(kj::ArrayPtr<const InventoryItem> inventory,
                                         kj::StringPtr kind);
// The item's nonce; empty = none.
kj::StringPtr nonceOf(const InventoryItem& item);
// Whether `thing` is what `item` speaks of: by its identity, or by its nonce before that is known.
bool isOf(const FakeThing& thing, const InventoryItem& item);
// The thing in the world, if it is there and not a namesake.
kj::Maybe<FakeThing&> findThing(FakeWorld& world, kj::ArrayPtr<const InventoryItem> inventory,
                                kj::StringPtr kind);

// Reports one step of long work as it goes; at time 0, for a fake has no clock.
class FakeStep {
public:
  FakeStep(ProgressSink& sink, kj::String name, uint16_t index, uint16_t total);
  void end(const kj::Maybe<kj::String>& failure);

private:
  ProgressSink& sink;
  PrepareStep step;
  uint16_t index, total;
};

class FakeAttachment final: public Attachment {
public:
  FakeAttachment(FakeWorld& world, kj::Timer& timer, FakeThing& helper, FakeHelper& running,
                 kj::String place, kj::String workspace,
                 kj::ArrayPtr<const ProcessVariable> variables);

  kj::StringPtr helperKey() const override { return key; }
  kj::StringPtr generation() const override { return compute; }
  kj::Own<StreamDialer> dialer() override;
  Credential credential() const override { return nonce.clone(); }
  kj::StringPtr workspace() const override { return work; }
  kj::String runDirectory(kj::StringPtr runId) const override;
  kj::Array<ProcessVariable> inheritedVariables() const override;

private:
  FakeWorld& world;
  kj::Timer& timer;
  kj::String identity;  // Of the helper.
  kj::String compute;   // In which it runs.
  kj::Maybe<kj::Own<FakeHelper>> shared;
  kj::String key;
  Credential nonce;
  kj::String place;
  kj::String work;
  kj::Array<ProcessVariable> variables;
};

}  // namespace capstan
