#include "backends/fake/fake-place.h"

namespace capstan {

namespace {

kj::Array<ProcessVariable> cloneVariables(kj::ArrayPtr<const ProcessVariable> from) {
  return KJ_MAP(each, from) { return ProcessVariable{kj::str(each.key), kj::str(each.value)}; };
}

class PlaceDialer final: public StreamDialer {
public:
  PlaceDialer(FakeWorld& world, kj::Timer& timer, kj::String identity)
      : world(world), timer(timer), identity(kj::mv(identity)) {}

  kj::Promise<kj::Own<kj::AsyncIoStream>> dial() override {
    kj::Own<kj::AsyncIoStream> stream;
    auto connect = [this, &stream]() -> kj::Promise<Outcome> {
      return world.dial(kj::str(identity)).then([&stream](kj::Own<kj::AsyncIoStream>&& made) {
        stream = kj::mv(made);
        return Outcome();
      });
    };
    auto outcome = co_await world.controls.run(timer, kj::str("dial"), kj::mv(connect));
    KJ_IF_MAYBE (problem, outcome) {
      kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "cannot dial", *problem));
    }
    if (stream.get() == nullptr) {
      // A lie: nobody is at the other end.
      auto pipe = kj::newTwoWayPipe();
      stream = kj::mv(pipe.ends[0]);
    }
    co_return kj::mv(stream);
  }

private:
  FakeWorld& world;
  kj::Timer& timer;
  kj::String identity;
};

// To a helper that belongs to no place.
class HelperDialer final: public StreamDialer {
public:
  explicit HelperDialer(kj::Own<FakeHelper> helper): helper(kj::mv(helper)) {}
  kj::Promise<kj::Own<kj::AsyncIoStream>> dial() override { return helper->dial(); }

private:
  kj::Own<FakeHelper> helper;
};

}  // namespace

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
  copy.createdAt = item.createdAt;
  copy.changedAt = item.changedAt;
  return copy;
}

kj::Maybe<const InventoryItem&> findItem(kj::ArrayPtr<const InventoryItem> inventory,
                                         kj::StringPtr kind) {
  for (size_t i = inventory.size(); i-- > 0;) {
    if (inventory[i].kind == kind) return inventory[i];
  }
  return nullptr;
}

kj::StringPtr nonceOf(const InventoryItem& item) {
  for (auto& each: item.details) {
    if (each.key == FAKE_NONCE) return each.value;
  }
  return "";
}

bool isOf(const FakeThing& thing, const InventoryItem& item) {
  if (thing.kind != item.kind || thing.name != item.name) return false;
  if (item.identity.size() > 0) return thing.identity == item.identity;
  return thing.nonce.size() > 0 && thing.nonce == nonceOf(item);
}

kj::Maybe<FakeThing&> findThing(FakeWorld& world, kj::ArrayPtr<const InventoryItem> inventory,
                                kj::StringPtr kind) {
  KJ_IF_MAYBE (item, findItem(inventory, kind)) {
    KJ_IF_MAYBE (thing, world.find(kind, item->name)) {
      if (isOf(*thing, *item)) return *thing;
    }
  }
  return nullptr;
}

FakeStep::FakeStep(ProgressSink& sink, kj::String name, uint16_t index, uint16_t total)
    : sink(sink), index(index), total(total) {
  step.name = kj::mv(name);
  step.status = PrepareStep::Status::RUNNING;
  sink.report(step, index, total);
}

void FakeStep::end(const kj::Maybe<kj::String>& failure) {
  step.status = PrepareStep::Status::COMPLETED;
  KJ_IF_MAYBE (text, failure) {
    step.status = PrepareStep::Status::FAILED;
    step.error = kj::str(*text);
  }
  sink.report(step, index, total);
}

FakeAttachment::FakeAttachment(FakeWorld& world, kj::Timer& timer, FakeThing& helper,
                               FakeHelper& running, kj::String place, kj::String workspace,
                               kj::ArrayPtr<const ProcessVariable> variables)
    : world(world),
      timer(timer),
      identity(kj::str(helper.identity)),
      compute(kj::str(helper.inside)),
      key(kj::str(running.key())),
      nonce(running.credential()),
      place(kj::mv(place)),
      work(kj::mv(workspace)),
      variables(cloneVariables(variables)) {
  if (running.servesMany()) shared = kj::addRef(running);
}

kj::Own<StreamDialer> FakeAttachment::dialer() {
  KJ_IF_MAYBE (helper, shared) {
    return kj::heap<HelperDialer>(kj::addRef(**helper));
  }
  return kj::heap<PlaceDialer>(world, timer, kj::str(identity));
}

kj::String FakeAttachment::runDirectory(kj::StringPtr runId) const {
  return kj::str(place, "/runs/", runId);
}

kj::Array<ProcessVariable> FakeAttachment::inheritedVariables() const {
  return cloneVariables(variables);
}

}  // namespace capstan
