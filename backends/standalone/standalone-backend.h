#pragma once

#include "backends/backend.h"
#include "backends/standalone/place-queue.h"
#include "base/async.h"
#include "base/entropy.h"
#include "transport/child.h"
#include "transport/helper-files.h"
#include "transport/offload.h"
#include "transport/watched-process.h"

#include <kj/async-io.h>
#include <kj/map.h>

namespace capstan {

struct StandaloneOptions {
  kj::String stateDirectory;             // Absolute; environments live below it.
  kj::String runtimeDirectory;           // Absolute, private; the helper's socket stands in it.
  kj::Array<ProcessVariable> variables;  // Of the daemon, for agents to start from.
  uint64_t agentDescriptors = 1024;      // Soft limit of open descriptors of agents.
  kj::Duration helperStart = 30 * kj::SECONDS;
  // Of the runs of a helper that died, from TERM to KILL: nothing takes their places before.
  kj::Duration stopGrace = 10 * kj::SECONDS;
  // How long a helper outlives its daemon's link before it ends its instances and itself; 0 = it
  // does so as long as they live: they belong to the user of the machine.
  kj::Duration unowned = 0 * kj::SECONDS;
  // How long it does so when it holds nothing.
  kj::Duration idle = 10 * kj::MINUTES;
};

// Environments on this machine: a folder each, all served by one helper process that is started
// detached with the first of them and outlives the daemon: the next one takes it over. Isolates
// nothing from the daemon's user.
class StandaloneBackend final: public Backend {
public:
  // All references must outlive it.
  StandaloneBackend(kj::AsyncIoContext& io, UvLoop& uv, Offload& offload, HelperFiles& files,
                    Entropy& entropy, HelperBook& book, StandaloneOptions options);
  ~StandaloneBackend() noexcept(false);

  kj::StringPtr name() const override { return "standalone"_kj; }
  Traits traits() const override { return Traits(); }
  kj::Promise<Health> healthCheck() override;
  kj::Promise<Result<kj::Own<Attachment>>> createInstance(CreateRequest request,
                                                          ProgressSink& progress,
                                                          InventoryLog& log) override;
  kj::Promise<StopReport> stopInstance(PlaceRecord place, StopRequest request) override;
  kj::Promise<kj::Vector<Recovered>> recoverInstances(kj::Array<PlaceRecord> places) override;
  kj::Promise<CleanupReport> cleanUp(PlaceRecord place, CleanupScope scope, ProgressSink& progress,
                                     InventoryLog& log) override;
  kj::Promise<void> watch(RuntimeObserver&) override { return kj::NEVER_DONE; }
  kj::Promise<void> close() override;

private:
  class LocalAttachment;
  // The helper that serves all environments now.
  struct Helper {
    HelperEntry entry;
    kj::Maybe<kj::Own<Child>> child;             // When this daemon has started it,
    kj::Maybe<kj::Own<WatchedProcess>> process;  // else it is watched as what it is.

    bool running() const;
  };

  kj::AsyncIoContext& io;
  UvLoop& uv;
  Offload& offload;
  HelperFiles& files;
  Entropy& entropy;
  HelperBook& book;
  StandaloneOptions options;
  kj::Maybe<Helper> helper;
  kj::HashMap<kj::String, Problem> otherHelpers;  // That live: why they cannot be used.
  kj::Maybe<Problem> startFailure;                // Of the last start.
  PlaceQueue placeWork;
  AsyncLock helperWork;  // Whoever finds, starts or forgets helpers holds it.
  SingleFlight starting;

  kj::String environmentDirectory(kj::StringPtr environmentId) const;
  // Of each place, in their order.
  kj::Promise<kj::Array<HealthAxis>> lookAtWorkspaces(kj::ArrayPtr<const PlaceRecord> places);
  // The item of the environment's folder, once that stands, as it was noted before: INTENDED if
  // this call has completed it.
  kj::Promise<Result<InventoryItem>> ensurePlace(CreateRequest request, InventoryLog& log);
  // Writes down that the present helper serves the place, whose runs no other one can have.
  kj::Promise<Outcome> assignHelper(InventoryItem item, InventoryLog& log);
  kj::Promise<Outcome> ensureHelper();
  kj::Promise<void> startHelper();
  // Why the place of the folder `item` is not to be touched: another helper that lives may have
  // runs in it.
  kj::Maybe<Problem> heldByAnother(const InventoryItem& item) const;
  // What recovery says of one place after findHelpers().
  void answer(const PlaceRecord& place, const InventoryItem& folder, Recovered& result);
  // findHelpers(), once whoever is at helpers has done.
  kj::Promise<Outcome> refreshHelpers();
  // Under `helperWork`: takes the current helper that is written down for the present one if it
  // runs, and forgets those of which it is certain that they do not. A Problem when that cannot be
  // told of the current one.
  kj::Promise<Outcome> findHelpers();
  // Null when it was forgotten, or is the present one from now on.
  enum class Role { CURRENT, DRAINING };
  kj::Promise<Outcome> examine(HelperEntry entry, Role role);
  Problem outOfReach(const HelperEntry& entry, int64_t pid) const;
  kj::Promise<Outcome> forgetHelper(HelperEntry entry);
  kj::Promise<Outcome> awaitReapers(kj::String lifeline);
  kj::Promise<Result<kj::Maybe<kj::Own<WatchedProcess>>>> locate(kj::String endpoint,
                                                                 ProcessName name);
  kj::Promise<Outcome> launchHelper(kj::String executable);
  struct Launched {
    kj::Own<Child> process;
    kj::AutoCloseFd address;  // It says there where it listens.
  };
  Result<Launched> spawnHelper(kj::String executable, HelperEntry entry);
  kj::Promise<Outcome> awaitHelper(kj::Own<Child> process, kj::AutoCloseFd address,
                                   HelperEntry entry);
  kj::Own<Attachment> attach(kj::String environment, kj::String workspace);
};

}  // namespace capstan
