#include "backends/fake/fake-backend.h"

#include "backends/fake/fake-abilities.h"
#include "backends/fake/fake-bringup.h"
#include "backends/fake/fake-place.h"
#include "base/async.h"

#include <kj/debug.h>

namespace capstan {

FakeBackend::FakeBackend(kj::Timer& timer, Entropy& entropy, FakeWorld& world,
                         FakeHelperLauncher& launcher, FakeOptions options)
    : timer(timer),
      entropy(entropy),
      world(world),
      launcher(launcher),
      options(kj::mv(options)),
      abilities(kj::heap<Abilities>(*this)) {}

FakeBackend::~FakeBackend() noexcept(false) {}

kj::Promise<Health> FakeBackend::healthCheck() {
  Health health;
  health.version = kj::str(world.version);
  Outcome found;
  auto look = [this]() -> kj::Promise<Outcome> {
    return world.unhealthy.map([](Problem& problem) { return problem.clone(); });
  };
  auto asking = step(kj::str("health"), kj::mv(look)).then([&found](Outcome&& outcome) {
    found = kj::mv(outcome);
  });
  auto waited = co_await within(timer, options.healthDeadline, kj::mv(asking));
  if (waited == Waited::TOO_LATE) {
    health.reason = Problem(ErrorCode::TIMEOUT, kj::str("the runtime did not answer in time"))
                        .retryable(RetryHint::SAME_REQUEST_LATER);
  } else {
    health.reason = kj::mv(found);
  }
  health.healthy = health.reason == nullptr;
  co_return kj::mv(health);
}

kj::Maybe<kj::Own<Attachment>> FakeBackend::attach(const PlaceRecord& place) {
  auto volume = findThing(world, place.inventory, fake_kind::VOLUME);
  auto helper = findThing(world, place.inventory, fake_kind::HELPER);
  if (volume == nullptr || helper == nullptr) return nullptr;
  auto& thing = KJ_ASSERT_NONNULL(helper);
  KJ_IF_MAYBE (running, thing.helper) {
    auto path = world.pathOf(KJ_ASSERT_NONNULL(volume).identity);
    auto workspace = kj::str(path, "/workspace");
    KJ_IF_MAYBE (directory, place.directory) {
      workspace = kj::str(*directory);
    }
    return kj::Own<Attachment>(kj::heap<FakeAttachment>(
        world, timer, thing, **running, kj::mv(path), kj::mv(workspace), options.variables));
  }
  return nullptr;
}

kj::Promise<Result<kj::Own<Attachment>>> FakeBackend::createInstance(CreateRequest request,
                                                                     ProgressSink& progress,
                                                                     InventoryLog& log) {
  Bringup bringup(*this, kj::mv(request), progress, log);
  co_return co_await bringup.run();
}

kj::Promise<StopReport> FakeBackend::stopInstance(PlaceRecord place, StopRequest request) {
  auto deadline = request.deadline;
  world.lastStop = kj::mv(request);
  StopReport report;
  KJ_IF_MAYBE (thing, findThing(world, place.inventory, fake_kind::COMPUTE)) {
    auto act = [this, identity = kj::str(thing->identity),
                name = kj::str(thing->name)]() -> kj::Promise<Outcome> {
      KJ_IF_MAYBE (compute, world.find(fake_kind::COMPUTE, name)) {
        if (compute->identity == identity) world.stop(*compute);
      }
      return Outcome();
    };
    auto stopping = step(kj::str("stop.compute"), kj::mv(act)).then([&report](Outcome&& outcome) {
      report.problem = kj::mv(outcome);
    });
    if (co_await within(timer, deadline, kj::mv(stopping)) == Waited::TOO_LATE) {
      report.problem = Problem(ErrorCode::TIMEOUT, kj::str("the compute did not stop in time"))
                           .retryable(RetryHint::SAME_REQUEST_LATER);
    }
  }
  report.stopped = report.problem == nullptr;
  co_return kj::mv(report);
}

// ---- recovery

kj::Promise<Recovered> FakeBackend::recover(PlaceRecord place) {
  Recovered answer;
  answer.environmentId = kj::str(place.environmentId);
  auto asked =
      co_await step(kj::str("recover"), []() -> kj::Promise<Outcome> { return Outcome(); });
  KJ_IF_MAYBE (problem, asked) {
    answer.why = kj::mv(*problem);
    co_return kj::mv(answer);
  }
  if (place.directory == nullptr && findItem(place.inventory, fake_kind::VOLUME) != nullptr) {
    bool there = findThing(world, place.inventory, fake_kind::VOLUME) != nullptr;
    answer.workspace = there ? HealthAxis::RETAINED : HealthAxis::UNAVAILABLE;
  }
  answer.kind = Recovered::Kind::GONE;
  KJ_IF_MAYBE (helper, findThing(world, place.inventory, fake_kind::HELPER)) {
    if (helper->running && helper->unreachable) {
      answer.kind = Recovered::Kind::UNKNOWN;
      answer.why = Problem(ErrorCode::UNREACHABLE, kj::str("the helper cannot be reached"))
                       .retryable(RetryHint::SAME_REQUEST_LATER);
      co_return kj::mv(answer);
    }
  }
  answer.attachment = attach(place);
  if (answer.attachment != nullptr) answer.kind = Recovered::Kind::ATTACHED;
  co_return kj::mv(answer);
}

kj::Promise<kj::Vector<Recovered>> FakeBackend::recoverInstances(kj::Array<PlaceRecord> places) {
  auto asked =
      co_await step(kj::str("recover.all"), []() -> kj::Promise<Outcome> { return Outcome(); });
  KJ_IF_MAYBE (problem, asked) {
    kj::throwFatalException(asException(*problem));
  }
  kj::Vector<kj::Promise<Recovered>> each;
  for (auto& place: places) {
    auto id = kj::str(place.environmentId);
    each.add(recover(kj::mv(place)).catch_([id = kj::mv(id)](kj::Exception&& error) mutable {
      Recovered answer;
      answer.environmentId = kj::mv(id);
      answer.why = asProblem(error);
      return answer;
    }));
  }
  kj::Vector<Recovered> result;
  auto answers = co_await kj::joinPromises(each.releaseAsArray());
  for (auto& answer: answers)
    result.add(kj::mv(answer));
  if (world.lies.recoversWithTheWrongOne) {
    kj::Vector<Recovered*> attached;
    for (auto& recovered: result) {
      if (recovered.kind == Recovered::Kind::ATTACHED) attached.add(&recovered);
    }
    for (size_t i = 1; i < attached.size(); ++i) {
      auto mine = kj::mv(attached[i]->attachment);
      attached[i]->attachment = kj::mv(attached[i - 1]->attachment);
      attached[i - 1]->attachment = kj::mv(mine);
    }
  }
  co_return kj::mv(result);
}

// ---- clean-up

kj::Promise<kj::Maybe<kj::String>> FakeBackend::removeItem(InventoryItem item) {
  bool known = false;
  for (auto kind: fake_kind::ALL)
    known = known || kind == item.kind;
  if (!known) {
    co_return kj::str(item.name, ": of the kind '", item.kind, "', which this runtime has not");
  }
  auto there = world.find(item.kind, item.name);
  if (there == nullptr) co_return nullptr;
  auto& thing = KJ_ASSERT_NONNULL(there);
  if (!isOf(thing, item)) {
    co_return kj::str(item.kind, ' ', item.name,
                      ": it is not the one that was made for this environment, left alone");
  }
  auto identity = kj::str(thing.identity);
  auto act = [this, kind = kj::str(item.kind),
              identity = kj::str(identity)]() -> kj::Promise<Outcome> {
    world.remove(kind, identity);
    return Outcome();
  };
  auto outcome = co_await step(kj::str("remove.", item.kind), kj::mv(act))
                     .catch_([](kj::Exception&& error) -> Outcome { return asProblem(error); });
  KJ_IF_MAYBE (after, world.find(item.kind, item.name)) {
    if (after->identity == identity) {
      KJ_IF_MAYBE (problem, outcome) {
        co_return kj::str(item.kind, ' ', item.name, ": ", *problem);
      }
      co_return kj::str(item.kind, ' ', item.name, ": its removal was reported, and it is there");
    }
  }
  co_return nullptr;
}

kj::Promise<CleanupReport> FakeBackend::cleanUp(PlaceRecord place, CleanupScope scope,
                                                ProgressSink& progress, InventoryLog& log) {
  CleanupReport report;
  KJ_IF_MAYBE (directory, place.directory) {
    report.leftInPlace.add(kj::str(*directory));
  }
  bool keepsFiles = scope == CleanupScope::COMPUTE;
  bool givesFiles = scope == CleanupScope::ALL_KEEP_WORKSPACE && place.directory == nullptr;
  auto total = static_cast<uint16_t>(place.inventory.size());
  for (size_t i = total; i-- > 0;) {
    auto& item = place.inventory[i];
    bool isVolume = item.kind == fake_kind::VOLUME;
    if (isVolume && keepsFiles) continue;
    FakeStep reporting(progress, kj::str("Remove ", item.kind),
                       static_cast<uint16_t>(total - 1 - i), total);
    kj::Maybe<kj::String> left;
    if (isVolume && givesFiles) {
      KJ_IF_MAYBE (thing, world.find(item.kind, item.name)) {
        // From now on it is the user's.
        if (isOf(*thing, item)) report.leftInPlace.add(kj::str(item.kind, ' ', item.name));
      }
    } else {
      left = co_await removeItem(cloneItem(item));
    }
    reporting.end(left);
    KJ_IF_MAYBE (reason, left) {
      report.leftovers.add(kj::mv(*reason));
      continue;
    }
    KJ_IF_MAYBE (problem, co_await log.forget(item.seq)) {
      report.leftovers.add(
          kj::str(item.kind, ' ', item.name, ": gone, which could not be noted: ", *problem));
    }
  }
  co_return kj::mv(report);
}

}  // namespace capstan
