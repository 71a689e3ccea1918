// What a daemon takes over from those before it.
#include "core/supervisor.h"
#include "store/environment-table.h"
#include "store/inventory-table.h"
#include "store/run-table.h"
#include "store/session-table.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// Environments that are read in one go: the store's thread is free for others between.
constexpr size_t PAGE = 100;

struct StoredSession {
  SessionRecord session;
  kj::Maybe<RunRecord> run;  // The latest.
};
struct StoredEnvironment {
  EnvironmentRecord record;
  kj::Vector<InventoryItem> inventory;
  kj::Vector<StoredSession> sessions;
};
using Page = kj::Vector<StoredEnvironment>;

Result<Page> readPage(Connection& db, kj::StringPtr after, size_t mostSessions) {
  Page page;
  EnvironmentTable environments(db);
  InventoryTable inventory(db);
  SessionTable sessions(db);
  RunTable runs(db);
  for (auto& record: environments.list(after, PAGE)) {
    StoredEnvironment stored;
    stored.inventory = inventory.list(record.id, InventoryTable::Order::OLDEST_FIRST);
    for (auto& session: sessions.list(record.id, "", mostSessions)) {
      StoredSession each;
      for (auto& run: runs.list(session.id, 1))
        each.run = kj::mv(run);
      each.session = kj::mv(session);
      stored.sessions.add(kj::mv(each));
    }
    stored.record = kj::mv(record);
    page.add(kj::mv(stored));
  }
  return kj::mv(page);
}

}  // namespace

kj::Promise<Outcome> Supervisor::load() {
  kj::TreeMap<kj::String, kj::Vector<kj::Own<EnvironmentActor>>> unknown;  // By runtime.
  size_t count = 0;
  kj::String after;
  for (;;) {
    auto read = co_await services.store.read(
        [after = kj::str(after), most = services.limits.sessionsPerEnvironment](Connection& db) {
          return readPage(db, after, most);
        });
    if (read.is<Problem>()) co_return kj::mv(read.get<Problem>());
    auto& page = read.get<Page>();
    if (page.size() == 0) break;
    after = kj::str(page.back().record.id);
    for (auto& stored: page) {
      auto environment = kj::refcounted<EnvironmentActor>(services, links, kj::mv(stored.record),
                                                          kj::mv(stored.inventory));
      for (auto& session: stored.sessions) {
        KJ_IF_MAYBE (run, session.run) {
          environment->restore(session.session, *run);
        }
      }
      if (environment->beginRecovery()) {
        auto& list = unknown.findOrCreate(environment->runtime(), [&]() {
          return decltype(unknown)::Entry{kj::str(environment->runtime()), {}};
        });
        list.add(kj::addRef(*environment));
      }
      keep(kj::mv(environment));
      ++count;
    }
  }
  if (count > 0) KJ_LOG(INFO, "environments taken over", count);
  for (auto& entry: unknown)
    tasks.add(recover(kj::str(entry.key), kj::mv(entry.value)));
  for (auto& entry: byId) {
    KJ_IF_MAYBE (scope, entry.value->interruptedCleanup()) {
      KJ_LOG(INFO, "going on with a clean-up", entry.value->id(), entry.value->taskId());
      tasks.add(remove(kj::addRef(*entry.value), *scope).ignoreResult());
    }
  }
  co_return nullptr;
}

kj::Promise<void> Supervisor::recover(kj::String runtime,
                                      kj::Vector<kj::Own<EnvironmentActor>> lost) {
  kj::Vector<PlaceRecord> places(lost.size());
  for (auto& environment: lost)
    places.add(environment->place());
  auto asked = kj::heapArrayBuilder<RuntimeRegistry::RuntimePlaces>(1);
  asked.add(RuntimeRegistry::RuntimePlaces{kj::str(runtime), places.releaseAsArray()});
  auto answer = co_await services.runtimes.recoverAll(asked.finish());
  kj::HashMap<kj::StringPtr, Recovered*> byPlace;
  for (auto& each: answer.places)
    byPlace.upsert(each.environmentId, &each);
  for (auto& environment: lost) {
    auto kind = Recovered::Kind::UNKNOWN;
    kj::Maybe<Problem> why;
    KJ_IF_MAYBE (found, byPlace.find(environment->id())) {
      kind = (*found)->kind;
      why = kj::mv((*found)->why);
    } else {
      for (auto& failure: answer.failures)
        why = failure.problem.clone();
    }
    co_await environment->recovered(kind, kj::mv(why));
  }
}

}  // namespace capstan
