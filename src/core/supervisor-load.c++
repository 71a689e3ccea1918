// What a daemon takes over from those before it.
#include "base/backoff.h"
#include "core/supervisor.h"
#include "store/environment-table.h"
#include "store/episode-table.h"
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
  kj::Vector<RunRecord> runs;  // Oldest first.
};
struct StoredEnvironment {
  EnvironmentRecord record;
  kj::Vector<InventoryItem> inventory;
  kj::Vector<EpisodeRecord> episodes;
  kj::Vector<StoredSession> sessions;
};
using Page = kj::Vector<StoredEnvironment>;

// All sessions, whatever the limit for new ones is now.
constexpr size_t EVERY_SESSION = 1'000'000;
constexpr size_t EVERY_RUN = 1'000'000;

Result<Page> readPage(Connection& db, kj::StringPtr after) {
  Page page;
  EnvironmentTable environments(db);
  EpisodeTable episodes(db);
  InventoryTable inventory(db);
  SessionTable sessions(db);
  RunTable runs(db);
  for (auto& record: environments.list(after, PAGE)) {
    StoredEnvironment stored;
    stored.inventory = inventory.list(record.id, InventoryTable::Order::OLDEST_FIRST);
    stored.episodes = episodes.list(record.id);
    for (auto& session: sessions.list(record.id, "", EVERY_SESSION)) {
      StoredSession each;
      each.runs = runs.list(session.id, EVERY_RUN);
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
        [after = kj::str(after)](Connection& db) { return readPage(db, after); });
    if (read.is<Problem>()) co_return kj::mv(read.get<Problem>());
    auto& page = read.get<Page>();
    if (page.size() == 0) break;
    after = kj::str(page.back().record.id);
    for (auto& stored: page) {
      auto environment = kj::refcounted<EnvironmentActor>(services, links, kj::mv(stored.record),
                                                          kj::mv(stored.inventory),
                                                          kj::mv(stored.episodes));
      for (auto& session: stored.sessions) {
        if (session.runs.size() > 0) environment->restore(session.session, session.runs);
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
  tasks.add(expireLogsHourly());
  co_return nullptr;
}

namespace {

// What the helpers say of their instances, by environment; each is asked once.
class HelperReports {
public:
  // Of one environment; asks the helper when it has not been asked yet.
  kj::Promise<Result<kj::Array<InstanceReport>>> of(AgentLink& link, kj::String environmentId) {
    if (known.find(&link) == nullptr) {
      auto listed = co_await link.list();
      if (listed.is<Problem>()) co_return kj::mv(listed.get<Problem>());
      links.add(kj::addRef(link));
      auto& all = known.insert(&link, {}).value;
      for (auto& report: listed.get<kj::Array<InstanceReport>>()) {
        auto key = kj::str(report.environmentId);
        all.findOrCreate(key, [&]() { return ByEnvironment::Entry{kj::mv(key), {}}; })
            .add(kj::mv(report));
      }
    }
    auto& all = KJ_ASSERT_NONNULL(known.find(&link));
    KJ_IF_MAYBE (reports, all.find(environmentId)) {
      auto result = reports->releaseAsArray();
      all.erase(environmentId);
      co_return kj::mv(result);
    }
    co_return kj::Array<InstanceReport>();
  }

  // Those of environments that `isKnown` does not know.
  struct Stray {
    kj::Own<AgentLink> link;
    kj::String id;
  };
  kj::Vector<Stray> strays(kj::Function<bool(kj::StringPtr)> isKnown) {
    kj::Vector<Stray> result;
    for (auto& helper: known) {
      for (auto& entry: helper.value) {
        if (isKnown(entry.key)) continue;
        for (auto& report: entry.value)
          result.add(Stray{kj::addRef(*helper.key), kj::mv(report.id)});
      }
    }
    return result;
  }

private:
  using ByEnvironment = kj::HashMap<kj::String, kj::Vector<InstanceReport>>;
  kj::HashMap<AgentLink*, ByEnvironment> known;
  kj::Vector<kj::Own<AgentLink>> links;  // Of `known`: no other is made at their address.
};

// Ends an instance that nobody wants, and deletes its log.
kj::Promise<Outcome> endInstance(kj::Own<AgentLink> link, kj::String id) {
  auto found = co_await link->find(kj::str(id));
  if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
  auto instance = kj::mv(found.get<kj::Own<AgentInstance>>());
  auto stopped = co_await instance->stop(0 * kj::SECONDS, StopMode::FORCED);
  if (stopped.is<Problem>()) co_return kj::mv(stopped.get<Problem>());
  co_return co_await link->remove(kj::mv(id));
}

kj::Promise<Outcome> takeBack(HelperLinks& links, kj::Own<EnvironmentActor> environment,
                              kj::Own<Attachment> attachment, HelperReports& reports) {
  auto opened = co_await links.get(*attachment);
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  auto link = kj::mv(opened.get<kj::Own<AgentLink>>());
  auto listed = co_await reports.of(*link, kj::str(environment->id()));
  if (listed.is<Problem>()) co_return kj::mv(listed.get<Problem>());
  co_return co_await environment->takeBack(kj::mv(attachment), kj::mv(link),
                                           kj::mv(listed.get<kj::Array<InstanceReport>>()));
}

// What a runtime says of an environment, when that can be believed: else it cannot be told.
Recovered believed(Recovered answer, const EnvironmentActor& environment) {
  auto doubt = [&](kj::StringPtr why) {
    answer.kind = Recovered::Kind::UNKNOWN;
    answer.attachment = nullptr;
    answer.why = Problem(ErrorCode::OWNERSHIP_MISMATCH, kj::str("the runtime's answer is not used"))
                     .because(kj::str(why))
                     .retryable(RetryHint::SAME_REQUEST_LATER);
  };
  KJ_IF_MAYBE (attachment, answer.attachment) {
    // Two mixed up would make a session's processes look lost, and put new ones into another
    // task's files.
    auto known = environment.workspace();
    if (answer.kind != Recovered::Kind::ATTACHED) {
      doubt("it cannot be reached, and here is a way to it");
    } else if (known.size() > 0 && (*attachment)->workspace() != known) {
      doubt("it leads to another workspace");
    }
  } else if (answer.kind == Recovered::Kind::ATTACHED) {
    doubt("it can be reached, and there is no way to it");
  }
  return answer;
}

Recovered answerFor(RuntimeRegistry::AllRecovered& all, size_t place,
                    const EnvironmentActor& environment) {
  auto answers = all.places.asPtr();
  auto isOf = [&](const Recovered& each) { return each.environmentId == environment.id(); };
  // Answers come in the order of the places, from a runtime that keeps to it.
  if (place < answers.size() && isOf(answers[place])) {
    return believed(kj::mv(answers[place]), environment);
  }
  for (auto& each: answers) {
    if (isOf(each)) return believed(kj::mv(each), environment);
  }
  Recovered none;
  none.why = Problem(ErrorCode::INTERNAL, kj::str("the runtime gave no answer for it"))
                 .retryable(RetryHint::SAME_REQUEST_LATER);
  for (auto& failure: all.failures)
    none.why = failure.problem.clone();
  return none;
}

}  // namespace

void Supervisor::noteLost(EnvironmentActor& lost) {
  auto& noted = lostNow.findOrCreate(lost.runtime(), [&]() {
    tasks.add(recoverNoted(kj::str(lost.runtime())));
    return decltype(lostNow)::Entry{kj::str(lost.runtime()), {}};
  });
  noted.add(kj::addRef(lost));
}

kj::Promise<void> Supervisor::recoverNoted(kj::String runtime) {
  // When all who watch the same link have been told.
  co_await kj::evalLast([]() {});
  auto noted = kj::mv(KJ_ASSERT_NONNULL(lostNow.find(runtime)));
  lostNow.erase(runtime);
  co_await recover(kj::mv(runtime), kj::mv(noted));
}

kj::Promise<void> Supervisor::recover(kj::String runtime,
                                      kj::Vector<kj::Own<EnvironmentActor>> lost) {
  Backoff backoff(services.entropy, {.first = 1 * kj::SECONDS});
  for (;;) {
    lost = co_await recoverOnce(kj::str(runtime), kj::mv(lost));
    if (lost.size() == 0) co_return;
    // They can be told of later: nothing is replaced until then.
    if (services.runtimes.has(runtime)) {
      co_await services.timer.afterDelay(backoff.next(services.timer.now()));
    }
    while (!services.runtimes.has(runtime))
      co_await services.runtimes.onAdd();
  }
}

kj::Promise<kj::Vector<kj::Own<EnvironmentActor>>> Supervisor::recoverOnce(
    kj::String runtime, kj::Vector<kj::Own<EnvironmentActor>> lost) {
  kj::Vector<PlaceRecord> places(lost.size());
  for (auto& environment: lost)
    places.add(environment->place());
  auto asked = kj::heapArrayBuilder<RuntimeRegistry::RuntimePlaces>(1);
  asked.add(RuntimeRegistry::RuntimePlaces{kj::mv(runtime), places.releaseAsArray()});
  auto answer = co_await services.runtimes.recoverAll(asked.finish());
  HelperReports reports;
  kj::Vector<kj::Own<EnvironmentActor>> unknown;
  for (size_t i = 0; i < lost.size(); ++i) {
    auto& environment = lost[i];
    if (environment->isGone()) continue;  // Removed meanwhile.
    auto state = answerFor(answer, i, *environment);
    environment->sawWorkspace(state.workspace);
    Outcome outcome;
    KJ_IF_MAYBE (attachment, state.attachment) {
      // A failure of any kind is this one's only.
      outcome = co_await takeBack(links, kj::addRef(*environment), kj::mv(*attachment), reports)
                    .catch_([](kj::Exception&& e) -> Outcome { return asProblem(e); });
    }
    KJ_IF_MAYBE (problem, outcome) {
      state.kind = Recovered::Kind::UNKNOWN;
      state.why = kj::mv(*problem);
    }
    if (state.kind == Recovered::Kind::GONE) {
      // Nobody waits for ever for what went wrong here.
      KJ_IF_MAYBE (problem,
                   co_await environment->abandoned()
                       .then([]() -> Outcome { return nullptr; })
                       .catch_([](kj::Exception&& e) -> Outcome { return asProblem(e); })) {
        state.kind = Recovered::Kind::UNKNOWN;
        state.why = kj::mv(*problem);
      }
    }
    if (state.kind == Recovered::Kind::UNKNOWN) {
      co_await environment->unreachable(kj::mv(state.why));
      unknown.add(kj::mv(environment));
      continue;
    }
    KJ_IF_MAYBE (scope, environment->interruptedCleanup()) {
      KJ_LOG(INFO, "going on with a clean-up", environment->id(), environment->taskId());
      tasks.add(remove(kj::mv(environment), *scope).ignoreResult());
    }
  }
  for (auto& stray: reports.strays([&](kj::StringPtr id) { return byId.find(id) != nullptr; })) {
    KJ_LOG(WARNING, "an instance of no environment is ended", stray.id);
    KJ_IF_MAYBE (problem, co_await endInstance(kj::mv(stray.link), kj::mv(stray.id))) {
      KJ_LOG(WARNING, "it could not be ended", *problem);
    }
  }
  co_return kj::mv(unknown);
}

}  // namespace capstan
