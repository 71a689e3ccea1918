#pragma once
// Executors, profiles and default executors: durable in the store, in memory for look-ups.

#include "base/async.h"
#include "base/entropy.h"
#include "domain/catalog-changes.h"
#include "store/database.h"

#include <kj/list.h>
#include <kj/time.h>

namespace capstan {

enum class CatalogRow { EXECUTOR, PROFILE };

// Hears of changes after they are durable and in memory. Must not change the catalog from there.
class CatalogListener {
public:
  // The row with that id was saved or, when it is not among rows() any more, removed.
  virtual void changed(CatalogRow kind, kj::StringPtr id) = 0;

  kj::ListLink<CatalogListener> link;
};

// The catalog of one daemon. Store, clock and entropy outlive it, and it outlives its callers'
// promises. Look-ups are synchronous and see what is durable; saves run one after another in the
// order of the calls, go to the store first and change memory after the commit. Dropping a save's
// promise leaves the save to happen.
class Catalog final: private kj::TaskSet::ErrorHandler {
public:
  static kj::Promise<Result<kj::Own<Catalog>>> load(Database& store, const kj::Clock& clock,
                                                    Entropy& entropy, Limits limits);
  ~Catalog() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Catalog);

  const CatalogRows& rows() const { return held; }
  // Which executor a task gets; see CatalogRows::choose().
  Result<Chosen> choose(const Choice& choice, const CatalogScope& scope = {}) const {
    return held.choose(choice, scope);
  }

  // The row as it was committed. Problems beside those of applied(): alreadyExists for a taken
  // name, notFound, resourceExhausted when the catalog is full, and those of the store.
  kj::Promise<Result<ExecutorRecord>> save(ExecutorChange change);
  kj::Promise<Result<ProfileRecord>> save(ProfileChange change);
  // wrongState, naming it, while a profile, an environment or a default uses it; denied for a
  // system row. `ifVersion` as in a change.
  kj::Promise<Outcome> removeExecutor(kj::String id, uint64_t ifVersion);
  // wrongState, naming it, while an environment uses it.
  kj::Promise<Outcome> removeProfile(kj::String id, uint64_t ifVersion);
  // Of a tenant; an empty tenant = of everybody; an empty executor id clears it.
  kj::Promise<Outcome> setDefaultExecutor(kj::String tenant, kj::String executorId);

  // A listener is taken out again before it goes.
  void add(CatalogListener& listener) { listeners.add(listener); }
  void remove(CatalogListener& listener) { listeners.remove(listener); }
  // Counts the changes since the start.
  uint64_t seq() const { return changes; }

private:
  struct Private {};

public:
  // For load() only.
  Catalog(Private, Database& store, const kj::Clock& clock, Entropy& entropy, Limits limits);

private:
  Database& store;
  const kj::Clock& clock;
  Entropy& entropy;
  Limits limits;
  CatalogRows held;
  uint64_t changes = 0;
  kj::List<CatalogListener, &CatalogListener::link> listeners;
  AsyncLock saving;
  kj::TaskSet tasks;

  UnixMs now() const { return (clock.now() - kj::UNIX_EPOCH) / kj::MILLISECONDS; }
  template <typename T>
  kj::Promise<T> inTurn(kj::Function<kj::Promise<T>()> work);
  kj::Promise<Result<ExecutorRecord>> saveNow(ExecutorChange change);
  kj::Promise<Result<ProfileRecord>> saveNow(ProfileChange change);
  kj::Promise<Outcome> removeExecutorNow(kj::String id, uint64_t ifVersion);
  kj::Promise<Outcome> removeProfileNow(kj::String id, uint64_t ifVersion);
  kj::Promise<Outcome> setDefaultNow(kj::String tenant, kj::String executorId);
  void tell(CatalogRow kind, kj::StringPtr id);
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
