#pragma once
// A complete backend without a runtime behind it, for tests: its places are entries of a FakeWorld,
// and each step can be slow, go wrong or lie (fake-controls.h). No released daemon has it.

#include "backends/capabilities.h"
#include "backends/fake/fake-world.h"
#include "base/entropy.h"

#include <kj/timer.h>

namespace capstan {

// What a fake backend is able to do beyond the common part.
struct FakeAbilities {
  bool remoteStatus = false;
  bool resume = false;
  bool refresh = false;
  bool dialPorts = false;
  bool listenPorts = false;
  bool test = false;
  bool interactive = false;

  static FakeAbilities all() { return {true, true, true, true, true, true, true}; }
};

struct FakeOptions {
  kj::String name = kj::str("fake");
  Traits traits;
  FakeAbilities abilities;
  kj::Array<ProcessVariable> variables;  // What processes start from.
  kj::Duration healthDeadline = 10 * kj::SECONDS;
};

class FakeBackend final: public Backend {
public:
  // All references must outlive it. Time passes on `timer` only.
  FakeBackend(kj::Timer& timer, Entropy& entropy, FakeWorld& world, FakeHelperLauncher& launcher,
              FakeOptions options = FakeOptions());
  ~FakeBackend() noexcept(false);

  kj::StringPtr name() const override { return options.name; }
  Traits traits() const override { return options.traits; }
  kj::Promise<Health> healthCheck() override;
  kj::Promise<Result<kj::Own<Attachment>>> createInstance(CreateRequest request,
                                                          ProgressSink& progress,
                                                          InventoryLog& log) override;
  kj::Promise<StopReport> stopInstance(PlaceRecord place, StopRequest request) override;
  kj::Promise<kj::Vector<Recovered>> recoverInstances(kj::Array<PlaceRecord> places) override;
  kj::Promise<CleanupReport> cleanUp(PlaceRecord place, CleanupScope scope, ProgressSink& progress,
                                     InventoryLog& log) override;
  kj::Promise<void> watch(RuntimeObserver& observer) override { return world.watch(observer); }
  kj::Promise<void> close() override { return kj::READY_NOW; }

  kj::Maybe<RemoteStatusProvider&> remoteStatus() override;
  kj::Maybe<RemoteSessionResumer&> resumer() override;
  kj::Maybe<RemoteInstanceRefresher&> refresher() override;
  kj::Maybe<PortDialer&> portDialer() override;
  kj::Maybe<ReverseListener&> reverseListener() override;
  kj::Maybe<ConnectionTester&> tester() override;
  kj::Maybe<InteractiveRunner&> interactiveRunner() override;

private:
  class Abilities;
  class Refresh;
  class Bringup;

  kj::Timer& timer;
  Entropy& entropy;
  FakeWorld& world;
  FakeHelperLauncher& launcher;
  FakeOptions options;
  kj::Own<Abilities> abilities;

  kj::Promise<Outcome> step(kj::String name, kj::Function<kj::Promise<Outcome>()> act) {
    return world.controls.run(timer, kj::mv(name), kj::mv(act));
  }
  // A way to the place as it is now; null when something of it is not there.
  kj::Maybe<kj::Own<Attachment>> attach(const PlaceRecord& place);
  // Null once it is confirmed to be gone; else why not. Never rejects.
  kj::Promise<kj::Maybe<kj::String>> removeItem(InventoryItem item);
  kj::Promise<Recovered> recover(PlaceRecord place);
};

}  // namespace capstan
