#pragma once

#include "core/environment-actor.h"

namespace capstan {

// All environments of this daemon, by owner and task. Owns them.
class Supervisor final: private kj::TaskSet::ErrorHandler {
public:
  explicit Supervisor(Services& services);
  ~Supervisor() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Supervisor);

  // Reads what is durable, once, before anybody is served; a Problem when that cannot be read. What
  // became of the environments meanwhile is then found out in the background, runtime by runtime:
  // until it is known they are `recovering`. Goes on with clean-ups that were interrupted.
  kj::Promise<Outcome> load();

  struct Ensured {
    kj::Own<EnvironmentActor> environment;
    bool made;
  };
  // The environment of (owner, task), made if there is none: durable when this resolves, its
  // bring-up goes on in the background. A spec that asks for another executor or workspace than it
  // has: executorMismatch or wrongState, naming both and the cures. Dropping the promise does not
  // end the making.
  kj::Promise<Result<Ensured>> ensure(kj::String owner, EnvironmentSpec spec);

  // By id, task id or unambiguous prefix of either, among the owner's own. Another owner's is
  // notFound.
  Result<kj::Own<EnvironmentActor>> find(kj::StringPtr owner, kj::StringPtr name);
  // By exact id, whoever owns it.
  Result<kj::Own<EnvironmentActor>> findById(kj::StringPtr id);

  // The owner's environments after id `after`, ordered by id, at most `limit`.
  kj::Vector<kj::Own<EnvironmentActor>> list(kj::StringPtr owner, kj::StringPtr after,
                                             size_t limit);

  // Changes of all of the owner's environments, new and removed ones included, by their ids.
  ChangeHub& changesOf(kj::StringPtr owner);
  // Resolves when this daemon has ended what ends with it: it tells nothing more.
  kj::Promise<void> onClosed() { return closed.addBranch(); }
  const Limits& limits() const { return services.limits; }

  // Cleans up and, when nothing was left, forgets the environment. Runs to its end although the
  // caller goes away.
  kj::Promise<CleanupReport> cleanUp(kj::Own<EnvironmentActor> environment, CleanupScope scope);

  // EnvironmentActor::recheck(), of several environments at most RECHECKS at once.
  kj::Promise<Outcome> recheck(kj::Own<EnvironmentActor> environment);
  static constexpr size_t RECHECKS = 8;

  // So long a health answer is shown before another check is made.
  static constexpr kj::Duration HEALTH_AGE = 10 * kj::SECONDS;
  // Every runtime of Capstan with its last known health; asks those whose answer is older than
  // HEALTH_AGE. That a runtime is not healthy, cannot be asked or does not answer is told of
  // it and keeps nobody else from being told of. Never rejects; nothing else waits for a check.
  kj::Promise<kj::Vector<RuntimeStatus>> runtimes();

  // The links to the helpers that serve the environments.
  HelperLinks& helperLinks() { return links; }

  // Deletes the logs of runs that ended longer ago than limits.deadlines.outputKept, now; load()
  // has it done every hour.
  kj::Promise<void> expireLogs();

  // Whether any environment has a process that may still run.
  bool isBusy() const;
  // Takes nothing new, ends execs and what was about to begin, and leaves running what runs: the
  // next daemon takes it back. A helper that holds nothing is ended.
  kj::Promise<void> close();

private:
  // An environment whose row is being written, and all who want it.
  struct Making;
  struct HealthEntry {
    RuntimeStatus status;
    kj::TimePoint checked = kj::origin<kj::TimePoint>();
    SingleFlight checking;
  };

  Services& services;
  HelperLinks links;
  AsyncLock rechecks[RECHECKS];
  size_t nextRecheck = 0;
  kj::TreeMap<kj::String, kj::Own<EnvironmentActor>> byId;
  kj::TreeMap<kj::String, EnvironmentActor*> byTask;  // Key: owner, line break, task id.
  kj::HashMap<kj::String, kj::Own<Making>> making;    // Likewise by task.
  kj::HashMap<kj::String, kj::Vector<kj::Own<EnvironmentActor>>> lostNow;  // By runtime.
  kj::HashMap<kj::String, kj::Own<HealthEntry>> health;
  kj::HashMap<kj::String, kj::Own<ChangeHub>> hubs;  // By owner.
  bool closing = false;
  kj::Own<kj::PromiseFulfiller<void>> closedFulfiller;
  kj::ForkedPromise<void> closed = nullptr;
  kj::TaskSet tasks;

  static kj::String taskKey(kj::StringPtr owner, kj::StringPtr taskId);
  void keep(kj::Own<EnvironmentActor> environment);
  // All environments of one helper are lost in one moment, and are asked for together.
  void noteLost(EnvironmentActor& lost);
  kj::Promise<void> recoverNoted(kj::String runtime);
  // Until nothing is unknown of any of them.
  kj::Promise<void> recover(kj::String runtime, kj::Vector<kj::Own<EnvironmentActor>> lost);
  // Those of which it cannot be told.
  kj::Promise<kj::Vector<kj::Own<EnvironmentActor>>> recoverOnce(
      kj::String runtime, kj::Vector<kj::Own<EnvironmentActor>> lost);
  Result<kj::Own<EnvironmentActor>> plan(kj::StringPtr owner, EnvironmentSpec spec);
  kj::Promise<void> make(kj::Own<Making> work);
  Outcome compare(EnvironmentActor& present, const EnvironmentSpec& asked);
  kj::Promise<void> check(Backend& backend, HealthEntry& entry);
  kj::Promise<CleanupReport> remove(kj::Own<EnvironmentActor> environment, CleanupScope scope);
  kj::Promise<void> expireLogsHourly();
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
