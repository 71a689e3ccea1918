#include "backends/fake/fake-bringup.h"

#include "base/encoding.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr size_t NONCE_BYTES = 10;

// Whether its identity can be chosen before it is made.
bool isNamedBeforehand(kj::StringPtr kind) {
  return kind == fake_kind::VOLUME || kind == fake_kind::NETWORK;
}

Problem foreign(kj::StringPtr kind, kj::StringPtr name) {
  return Problem(ErrorCode::OWNERSHIP_MISMATCH,
                 kj::str("the ", kind, ' ', name, " is not the one of this environment"))
      .advise(kj::str("remove it or give it another name"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

Problem workspaceLost(kj::String message) {
  return Problem(ErrorCode::WORKSPACE_LOST, kj::mv(message))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

}  // namespace

InventoryItem& FakeBackend::Bringup::item(uint64_t seq) {
  for (auto& each: request.place.inventory) {
    if (each.seq == seq) return each;
  }
  KJ_FAIL_ASSERT("no such item", seq);
}

Outcome FakeBackend::Bringup::checkDirectory() {
  KJ_IF_MAYBE (directory, request.place.directory) {
    if (!backend.world.hasDirectory(*directory)) {
      return workspaceLost(kj::str("no folder ", *directory))
          .at(kj::str("spec.workspace.directory"));
    }
  }
  return nullptr;
}

kj::Promise<Result<kj::Own<Attachment>>> FakeBackend::Bringup::run() {
  auto outcome = checkDirectory();
  if (outcome == nullptr) outcome = co_await makeAll();
  KJ_IF_MAYBE (problem, outcome) {
    co_await takeBack();
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (attachment, backend.attach(request.place)) {
    co_return kj::mv(*attachment);
  }
  // It was reported to be made and is not there: somebody lied, or was quick.
  co_return Problem(ErrorCode::RUNTIME_UNAVAILABLE,
                    kj::str("the environment was made and is not there"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

kj::Promise<Outcome> FakeBackend::Bringup::makeAll() {
  constexpr uint16_t TOTAL = kj::size(fake_kind::ALL);
  for (uint16_t i = 0; i < TOTAL; ++i) {
    auto kind = fake_kind::ALL[i];
    FakeStep reporting(progress, kj::str("Create ", kind), i, TOTAL);
    auto outcome = co_await ensure(kind);
    reporting.end(outcome.map([](Problem& problem) { return kj::str(problem); }));
    if (outcome != nullptr) co_return kj::mv(outcome);
  }
  co_return nullptr;
}

kj::Promise<Outcome> FakeBackend::Bringup::ensure(kj::StringPtr kind) {
  auto known = findItem(request.place.inventory, kind);
  if (known == nullptr) {
    if (kind == fake_kind::VOLUME && mustExist()) {
      co_return workspaceLost(kj::str("the environment has no workspace yet"))
          .at(kj::str("spec.workspace.reuseRequired"));
    }
    co_return co_await makeNew(kind);
  }
  auto& found = KJ_ASSERT_NONNULL(known);
  auto seq = found.seq;
  bool intended = found.state == InventoryItem::State::INTENDED;
  KJ_IF_MAYBE (thing, backend.world.find(kind, found.name)) {
    if (!isOf(*thing, found)) co_return foreign(kind, found.name);
    if (intended) {
      KJ_IF_MAYBE (problem, co_await confirm(seq, kj::str(thing->identity))) {
        co_return kj::mv(*problem);
      }
    }
    co_return co_await startAgain(kind);
  }
  if (intended) {
    if (kind == fake_kind::VOLUME && mustExist()) {
      co_return workspaceLost(kj::str("the environment's workspace was never completed"));
    }
    co_return co_await makeNoted(seq);
  }
  if (kind == fake_kind::VOLUME) {
    co_return workspaceLost(kj::str("the environment's volume ", found.name, " is gone"));
  }
  KJ_IF_MAYBE (problem, co_await forget(seq)) {
    co_return kj::mv(*problem);
  }
  co_return co_await makeNew(kind);
}

kj::Promise<Outcome> FakeBackend::Bringup::startAgain(kj::StringPtr kind) {
  KJ_IF_MAYBE (thing, findThing(backend.world, request.place.inventory, kind)) {
    if (thing->running) co_return nullptr;
    auto name = kj::str(thing->name);
    if (kind == fake_kind::COMPUTE) {
      auto act = [this, name = kj::str(name)]() -> kj::Promise<Outcome> {
        KJ_IF_MAYBE (compute, backend.world.find(fake_kind::COMPUTE, name)) {
          compute->running = true;
          return Outcome();
        }
        return Outcome(Problem(ErrorCode::INSTANCE_LOST, kj::str("the compute has vanished")));
      };
      co_return co_await backend.step(kj::str("start.compute"), kj::mv(act));
    }
    if (kind == fake_kind::HELPER) {
      FakeThing again;
      again.name = kj::mv(name);
      auto act = [this, &again]() { return launchHelper(kj::mv(again)); };
      co_return co_await backend.step(kj::str("create.helper"), kj::mv(act));
    }
  }
  co_return nullptr;
}

kj::Promise<Outcome> FakeBackend::Bringup::makeNew(kj::StringPtr kind) {
  kj::FixedArray<kj::byte, NONCE_BYTES> random;
  backend.entropy.fill(random);
  InventoryItem wanted;
  wanted.environmentId = kj::str(request.place.environmentId);
  wanted.step = kj::str("inv.", backend.name(), '.', kind);
  wanted.kind = kj::str(kind);
  wanted.name = FakeWorld::nameOf(request.place.environmentId, kind);
  if (isNamedBeforehand(kind)) wanted.identity = encodeHex(random);
  wanted.state = InventoryItem::State::INTENDED;
  wanted.details = kj::arr(Label{kj::str(FAKE_NONCE), encodeHex(random)});
  auto kept = cloneItem(wanted);
  auto answer = co_await log.intend(kj::mv(wanted));
  if (answer.is<Problem>()) {
    unnotable = true;
    co_return kj::mv(answer.get<Problem>());
  }
  kept.seq = answer.get<uint64_t>();
  auto seq = kept.seq;
  noted.add(seq);
  request.place.inventory.add(kj::mv(kept));
  co_return co_await makeNoted(seq);
}

kj::Promise<Outcome> FakeBackend::Bringup::makeNoted(uint64_t seq) {
  auto& wanted = item(seq);
  auto kind = kj::str(wanted.kind);
  auto name = kj::str(wanted.name);
  FakeThing thing;
  thing.kind = kj::str(kind);
  thing.name = kj::str(name);
  thing.identity =
      wanted.identity.size() > 0 ? kj::str(wanted.identity) : backend.world.newIdentity(kind);
  thing.nonce = kj::str(nonceOf(wanted));
  auto identity = kj::str(thing.identity);
  auto act = [this, &thing]() { return makeThing(kj::mv(thing)); };
  auto outcome = co_await backend.step(kj::str("create.", kind), kj::mv(act));
  KJ_IF_MAYBE (problem, outcome) {
    if (problem->code == ErrorCode::ALREADY_EXISTS) co_return foreign(kind, name);
    co_return kj::mv(*problem);
  }
  co_return co_await confirm(seq, kj::mv(identity));
}

kj::Promise<Outcome> FakeBackend::Bringup::makeThing(FakeThing thing) {
  if (thing.kind == fake_kind::HELPER) co_return co_await launchHelper(kj::mv(thing));
  thing.running = thing.kind == fake_kind::COMPUTE;
  co_return backend.world.make(kj::mv(thing));
}

// Starts a helper for `thing.name`: for the helper that is there and stopped, else as a new thing.
kj::Promise<Outcome> FakeBackend::Bringup::launchHelper(FakeThing thing) {
  auto launched = co_await backend.launcher.launch(kj::str(thing.name));
  if (launched.is<Problem>()) co_return kj::mv(launched.get<Problem>());
  auto compute = findThing(backend.world, request.place.inventory, fake_kind::COMPUTE);
  auto computeRuns = compute.map([](FakeThing& each) { return each.running; }).orDefault(false);
  if (!computeRuns) {
    co_return Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("no compute to run the helper in"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  auto inside = kj::str(KJ_ASSERT_NONNULL(compute).identity);
  KJ_IF_MAYBE (present, findThing(backend.world, request.place.inventory, fake_kind::HELPER)) {
    if (present->running) co_return nullptr;  // Somebody was quicker.
    present->running = true;
    present->inside = kj::mv(inside);
    present->helper = kj::mv(launched.get<kj::Own<FakeHelper>>());
    co_return nullptr;
  }
  if (thing.identity.size() == 0) {
    co_return Problem(ErrorCode::INSTANCE_LOST, kj::str("the helper has vanished"));
  }
  thing.running = true;
  thing.inside = kj::mv(inside);
  thing.helper = kj::mv(launched.get<kj::Own<FakeHelper>>());
  co_return backend.world.make(kj::mv(thing));
}

kj::Promise<Outcome> FakeBackend::Bringup::confirm(uint64_t seq, kj::String identity) {
  auto details = kj::arr(Label{kj::str(FAKE_NONCE), kj::str(nonceOf(item(seq)))});
  KJ_IF_MAYBE (problem, co_await log.confirm(seq, kj::str(identity), kj::mv(details))) {
    unnotable = true;
    co_return kj::mv(*problem);
  }
  auto& confirmed = item(seq);
  confirmed.identity = kj::mv(identity);
  confirmed.state = InventoryItem::State::MADE;
  co_return nullptr;
}

kj::Promise<Outcome> FakeBackend::Bringup::forget(uint64_t seq) {
  KJ_IF_MAYBE (problem, co_await log.forget(seq)) {
    unnotable = true;
    co_return kj::mv(*problem);
  }
  kj::Vector<InventoryItem> left;
  for (auto& each: request.place.inventory) {
    if (each.seq != seq) left.add(kj::mv(each));
  }
  request.place.inventory = kj::mv(left);
  co_return nullptr;
}

kj::Promise<void> FakeBackend::Bringup::takeBack() {
  // A volume that is removed and still noted as made would be a lost workspace: when the log takes
  // no notes, everything stays as it is noted.
  while (noted.size() > 0 && !unnotable) {
    auto seq = noted.back();
    noted.removeLast();
    auto& made = item(seq);
    kj::Maybe<kj::String> left;
    auto there = backend.world.find(made.kind, made.name);
    // A namesake means that ours was never made.
    bool ours = there.map([&](FakeThing& thing) { return isOf(thing, made); }).orDefault(false);
    if (ours) left = co_await backend.removeItem(cloneItem(made));
    KJ_IF_MAYBE (reason, left) {
      KJ_LOG(INFO, "not taken back, a clean-up will", *reason);
      continue;
    }
    KJ_IF_MAYBE (problem, co_await forget(seq)) {
      KJ_LOG(WARNING, "could not note that something is gone, a clean-up will", *problem);
    }
  }
}

}  // namespace capstan
