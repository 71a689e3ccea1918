// Events: what watchers are told, and that none of them costs anybody else anything.
#include "rpc/watch.h"
#include "core/environment-actor.h"
#include "support/daemon.h"

#include <unistd.h>

namespace capstan::test {

namespace {

using Watcher = rpc::Watcher<rpc::EnvironmentStatus>;
using Change = Watcher::Change;

// What one watcher was told, in short words. Outlives the daemon of a case.
struct Told {
  std::string kinds;  // R(eset), U(psert), -(removed), S(ynced), one letter an event.
  kj::Vector<uint64_t> seqs;
  kj::HashMap<kj::String, kj::String> states;  // By task: the environment's, then its sessions'.
  kj::HashMap<kj::String, kj::String> tasks;   // By id.
  kj::Maybe<ErrorCode> closed;
  bool gone = false;  // The daemon has let go of the watcher.
};

kj::StringPtr stateWord(uint16_t state) {
  constexpr kj::StringPtr WORDS[] = {"starting"_kj, "running"_kj, "exited"_kj, "stopped"_kj,
                                     "failed"_kj,   "lost"_kj,    "other"_kj};
  return WORDS[kj::min(state, kj::size(WORDS) - 1)];
}

class TestWatcher final: public Watcher::Server {
public:
  // Events are not answered before `hold` resolves.
  explicit TestWatcher(Told& told, kj::Maybe<kj::Promise<void>> hold = nullptr): told(told) {
    KJ_IF_MAYBE (promise, hold) {
      this->hold = promise->fork();
    }
  }
  ~TestWatcher() noexcept(false) { told.gone = true; }

protected:
  kj::Promise<void> event(EventContext context) override {
    auto change = context.getParams().getChange();
    told.seqs.add(context.getParams().getSeq());
    switch (change.which()) {
      case Change::RESET:
        told.kinds += 'R';
        break;
      case Change::UPSERT: {
        told.kinds += 'U';
        auto status = change.getUpsert();
        kj::Vector<kj::String> words;
        words.add(kj::str(static_cast<uint16_t>(status.getState())));
        for (auto session: status.getSessions())
          words.add(kj::str(stateWord(static_cast<uint16_t>(session.getState()))));
        told.states.upsert(kj::str(status.getTaskId()), kj::strArray(words, " "),
                           [](auto& old, auto&& now) { old = kj::mv(now); });
        told.tasks.upsert(kj::str(status.getId()), kj::str(status.getTaskId()),
                          [](auto&, auto&&) {});
        break;
      }
      case Change::REMOVE:
        told.kinds += '-';
        KJ_IF_MAYBE (task, told.tasks.find(change.getRemove())) {
          told.states.erase(*task);
        }
        break;
      case Change::SYNCED:
        told.kinds += 'S';
        break;
    }
    KJ_IF_MAYBE (fork, hold) {
      return fork->addBranch();
    }
    return kj::READY_NOW;
  }
  kj::Promise<void> closed(ClosedContext context) override {
    told.closed = context.getParams().getError().getCode();
    return kj::READY_NOW;
  }

private:
  Told& told;
  kj::Maybe<kj::ForkedPromise<void>> hold;
};

constexpr kj::StringPtr READY = "1"_kj;

rpc::TaskEnvironment::Client ensure(Daemon& daemon, ClientConnection& client, kj::StringPtr task) {
  auto request = client.supervisor().ensureRequest();
  request.initSpec().setTaskId(task);
  auto response = daemon.wait(request.send());
  REQUIRE(response.getError().getCode() == ErrorCode::NONE);
  return response.getEnvironment();
}

rpc::Subscription::Client watch(Daemon& daemon, rpc::TaskEnvironment::Client environment,
                                Watcher::Client watcher) {
  auto request = environment.watchRequest();
  request.setWatcher(kj::mv(watcher));
  return daemon.wait(request.send()).getSubscription();
}

rpc::Subscription::Client watchAll(Daemon& daemon, ClientConnection& client,
                                   Watcher::Client watcher) {
  auto request = client.supervisor().watchRequest();
  request.setWatcher(kj::mv(watcher));
  return daemon.wait(request.send()).getSubscription();
}

void runToEnd(Daemon& daemon, rpc::TaskEnvironment::Client environment,
              std::initializer_list<kj::StringPtr> words) {
  auto launch = environment.launchRequest();
  setCommand(launch.initSpec(), words);
  auto response = daemon.wait(launch.send());
  REQUIRE(response.getError().getCode() == ErrorCode::NONE);
  daemon.wait(response.getRun().waitRequest().send());
}

void destroy(Daemon& daemon, rpc::TaskEnvironment::Client environment) {
  auto request = environment.cleanupRequest();
  request.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  CHECK(daemon.wait(request.send()).getError().getCode() == ErrorCode::NONE);
}

bool shows(Told& told, kj::StringPtr task, kj::StringPtr states) {
  KJ_IF_MAYBE (seen, told.states.find(task)) {
    return *seen == states;
  }
  return false;
}

bool grows(kj::ArrayPtr<const uint64_t> seqs) {
  for (size_t i = 1; i < seqs.size(); ++i) {
    if (seqs[i] < seqs[i - 1]) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a watcher gets what there is, then every change up to the removal") {
  Told told;
  Told late;
  Daemon daemon;
  auto client = daemon.connect();
  auto environment = ensure(daemon, *client, "t");
  auto subscription = watch(daemon, environment, kj::heap<TestWatcher>(told));
  REQUIRE(daemon.becomesTrue([&]() { return shows(told, "t", READY); }));
  CHECK(told.kinds.substr(0, 3) == "RUS");

  auto launch = environment.launchRequest();
  setCommand(launch.initSpec(), {"sleep", "1000"});
  auto run = daemon.wait(launch.send()).getRun();
  CHECK(daemon.becomesTrue([&]() { return shows(told, "t", "1 running"); }));
  auto signal = run.signalRequest();
  signal.setName("KILL");
  daemon.wait(signal.send());
  CHECK(daemon.becomesTrue([&]() { return shows(told, "t", "1 exited"); }));
  CHECK(daemon.wait(environment.stopRequest().send()).getError().getCode() == ErrorCode::NONE);
  CHECK(daemon.becomesTrue([&]() { return shows(told, "t", "3 exited"); }));
  auto seq = daemon.wait(environment.statusRequest().send()).getStatus().getSeq();
  CHECK(told.seqs.back() == seq);
  CHECK(told.closed == nullptr);

  destroy(daemon, environment);
  REQUIRE(daemon.becomesTrue([&]() { return told.closed != nullptr; }));
  CHECK(KJ_ASSERT_NONNULL(told.closed) == ErrorCode::NOT_FOUND);
  CHECK(told.kinds.back() == '-');
  CHECK(grows(told.seqs));
  auto stats = daemon.wait(subscription.statsRequest().send());
  CHECK(stats.getDelivered() == told.kinds.size());

  // What is gone can be watched no more, and says so in the same way.
  auto lateSubscription = watch(daemon, environment, kj::heap<TestWatcher>(late));
  REQUIRE(daemon.becomesTrue([&]() { return late.closed != nullptr; }));
  CHECK(late.kinds == "R-S");
}

TEST_CASE("a principal's watcher sees environments come, change and go, and only its own") {
  Told told;
  Daemon daemon;
  auto client = daemon.connect();
  ensure(daemon, *client, "old");
  EnvironmentSpec spec;
  spec.taskId = kj::str("foreign");
  daemon.wait(daemon.core().ensure(kj::str("uid:4711"), kj::mv(spec)));

  auto subscription = watchAll(daemon, *client, kj::heap<TestWatcher>(told));
  REQUIRE(daemon.becomesTrue([&]() { return shows(told, "old", READY); }));
  auto made = ensure(daemon, *client, "new");
  runToEnd(daemon, made, {"true"});
  CHECK(daemon.becomesTrue([&]() { return shows(told, "new", "1 exited"); }));
  destroy(daemon, made);
  CHECK(daemon.becomesTrue([&]() { return told.states.find("new"_kj) == nullptr; }));
  CHECK(told.kinds.substr(0, 3) == "RUS");
  CHECK(told.kinds.back() == '-');
  CHECK(told.states.find("foreign"_kj) == nullptr);
  CHECK(told.states.size() == 1);
  CHECK(grows(told.seqs));
  CHECK(told.closed == nullptr);
}

TEST_CASE("a watcher is told that the daemon ends, and one that hangs delays no end") {
  Told one, all, hanging;
  Daemon daemon;
  auto client = daemon.connect();
  auto environment = ensure(daemon, *client, "t");
  auto launch = environment.launchRequest();
  setCommand(launch.initSpec(), {"sleep", "1000"});
  daemon.wait(launch.send());
  auto never = kj::newPromiseAndFulfiller<void>();
  auto first = watch(daemon, environment, kj::heap<TestWatcher>(one));
  auto second = watchAll(daemon, *client, kj::heap<TestWatcher>(all));
  auto third = watch(daemon, environment, kj::heap<TestWatcher>(hanging, kj::mv(never.promise)));

  daemon.endOrderly();

  for (auto* told: {&one, &all}) {
    REQUIRE(told->closed != nullptr);
    CHECK(KJ_ASSERT_NONNULL(told->closed) == ErrorCode::SHUTTING_DOWN);
  }
}

TEST_CASE("a subscription that is dropped ends, and makes room for another one") {
  Limits limits;
  limits.watchers = 3;
  Told told[3];
  Told refused;
  Told elsewhere;
  Daemon daemon(limits);
  auto client = daemon.connect();
  auto environment = ensure(daemon, *client, "t");
  kj::Vector<rpc::Subscription::Client> subscriptions;
  for (auto& each: told)
    subscriptions.add(watch(daemon, environment, kj::heap<TestWatcher>(each)));
  auto refusal = kj::runCatchingExceptions(
      [&]() { watchAll(daemon, *client, kj::heap<TestWatcher>(refused)); });
  CHECK(kj::str(KJ_REQUIRE_NONNULL(refusal).getDescription())
            .startsWith("remote exception: one connection has at most 3 watchers"));
  CHECK(refused.kinds == "");
  // The bound is each connection's own.
  auto other = daemon.connect();
  auto otherSubscription = watchAll(daemon, *other, kj::heap<TestWatcher>(elsewhere));

  CHECK_FALSE(told[2].gone);
  subscriptions.removeLast();
  CHECK(daemon.becomesTrue([&]() { return told[2].gone; }));
  auto before = told[2].kinds;
  auto next = watchAll(daemon, *client, kj::heap<TestWatcher>(refused));
  runToEnd(daemon, environment, {"true"});
  CHECK(daemon.becomesTrue([&]() { return shows(refused, "t", "1 exited"); }));
  CHECK(told[2].kinds == before);
}

TEST_CASE("a watch without a watcher is refused") {
  Daemon daemon;
  auto client = daemon.connect();
  auto environment = ensure(daemon, *client, "t");
  auto failure =
      kj::runCatchingExceptions([&]() { daemon.wait(environment.watchRequest().send()); });
  CHECK(failure != nullptr);
}

TEST_CASE("two hundred watchers, one of which never answers, delay nobody") {
  constexpr size_t WATCHERS = 199;
  kj::Vector<Told> told(WATCHERS);
  Told hanging;
  Daemon daemon;
  auto client = daemon.connect();
  auto stuck = daemon.connect();
  auto environment = ensure(daemon, *client, "t");
  kj::Vector<rpc::Subscription::Client> subscriptions;
  for (size_t i = 0; i < WATCHERS; ++i)
    told.add();
  for (auto& each: told)
    subscriptions.add(watch(daemon, environment, kj::heap<TestWatcher>(each)));
  auto release = kj::newPromiseAndFulfiller<void>();
  auto request = stuck->supervisor().openRequest();
  request.setId("t");
  auto same = daemon.wait(request.send()).getEnvironment();
  auto stuckSubscription =
      watch(daemon, same, kj::heap<TestWatcher>(hanging, kj::mv(release.promise)));

  // Far more events than its window takes: each status is large.
  auto found = daemon.core().find(kj::str("uid:", geteuid()), "t");
  auto& actor = *found.get<kj::Own<EnvironmentActor>>();
  auto large = kj::heapArray<char>(60'000);
  memset(large.begin(), 'x', large.size());
  runToEnd(daemon, environment, {"true", kj::heapString(large)});
  constexpr size_t CHANGES = 60;
  for (size_t i = 0; i < CHANGES; ++i) {
    actor.changes().changed();
    auto seq = actor.changes().seq();
    auto allTold = [&]() {
      for (auto& each: told) {
        if (each.seqs.back() < seq) return false;
      }
      return true;
    };
    REQUIRE(daemon.becomesTrue(allTold));
  }
  auto stats = daemon.wait(stuckSubscription.statsRequest().send());
  // A window of 1 MiB, and one more event that waits for room in it.
  CHECK(stats.getDelivered() < 30);
  CHECK(stats.getCoalesced() > CHANGES - 30);
  for (auto& each: told)
    CHECK(grows(each.seqs));

  release.fulfiller->fulfill();
  auto last = actor.changes().seq();
  CHECK(daemon.becomesTrue([&]() { return hanging.seqs.back() == last; }));
  CHECK(hanging.kinds.size() < 35);
}

TEST_CASE("a queue holds each id once, in turn, and begins anew when it is far behind") {
  kj::EventLoop loop;
  kj::WaitScope waitScope(loop);
  WatchQueue queue;
  CHECK(queue.takeAnew());
  CHECK_FALSE(queue.takeAnew());
  auto more = queue.onMore();
  CHECK_FALSE(more.poll(waitScope));
  for (auto id: {"b", "a", "b", "c"})
    queue.add(id);
  CHECK(more.poll(waitScope));
  CHECK(queue.coalesced() == 1);
  CHECK(KJ_ASSERT_NONNULL(queue.take()) == "a");
  queue.add("a");  // It has its next turn after the others.
  CHECK(KJ_ASSERT_NONNULL(queue.take()) == "b");
  CHECK(KJ_ASSERT_NONNULL(queue.take()) == "c");
  CHECK(KJ_ASSERT_NONNULL(queue.take()) == "a");
  CHECK(queue.take() == nullptr);

  for (int i = 0; i < 5000; ++i)
    queue.add(kj::str("id", i));
  CHECK(queue.isAnew());
  CHECK(queue.take() == nullptr);
  CHECK(queue.onMore().poll(waitScope));
}

namespace {

// Reports a great many steps, then fails.
class ChattyBackend final: public Backend {
public:
  explicit ChattyBackend(kj::Timer& timer): timer(timer) {}
  size_t reports = 0;
  kj::Duration took = 0 * kj::SECONDS;

  kj::StringPtr name() const override { return "standalone"_kj; }
  Traits traits() const override { return Traits(); }
  kj::Promise<Health> healthCheck() override { return Health(); }
  kj::Promise<Result<kj::Own<Attachment>>> createInstance(CreateRequest, ProgressSink& progress,
                                                          InventoryLog&) override {
    auto begun = timer.now();
    for (int i = 0; i < 40; ++i) {
      for (int k = 0; k < 25; ++k) {
        PrepareStep step;
        step.name = kj::str("step");
        step.output = kj::str(++reports);
        progress.report(step, 0, 1);
      }
      co_await timer.afterDelay(10 * kj::MILLISECONDS);
    }
    took = timer.now() - begun;
    co_return Problem(ErrorCode::PREPARE_FAILED, kj::str("no more to say"));
  }
  kj::Promise<StopReport> stopInstance(PlaceRecord, StopRequest) override { return StopReport(); }
  kj::Promise<kj::Vector<Recovered>> recoverInstances(kj::Array<PlaceRecord>) override {
    return kj::Vector<Recovered>();
  }
  kj::Promise<CleanupReport> cleanUp(PlaceRecord, CleanupScope, ProgressSink&,
                                     InventoryLog&) override {
    return CleanupReport();
  }
  kj::Promise<void> watch(RuntimeObserver&) override { return kj::NEVER_DONE; }
  kj::Promise<void> close() override { return kj::READY_NOW; }

private:
  kj::Timer& timer;
};

}  // namespace

TEST_CASE("live steps are told at most ten times a second, and the last one is told") {
  Daemon daemon;
  ChattyBackend backend(daemon.loop.timer);
  daemon.registry().add(backend);
  EnvironmentSpec spec;
  spec.taskId = kj::str("t");
  auto ensured = daemon.wait(daemon.core().ensure(kj::str("uid:1"), kj::mv(spec)));
  auto environment = kj::mv(ensured.get<Supervisor::Ensured>().environment);
  auto before = environment->changes().seq();
  REQUIRE(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::FAILED; }));
  auto told = environment->changes().seq() - before;
  CHECK(backend.reports == 1000);
  CHECK(told >= 3);
  CHECK(told <= static_cast<uint64_t>(backend.took / (100 * kj::MILLISECONDS)) + 4);
  CHECK(environment->status().lastSteps[0].output == "1000");
}

}  // namespace capstan::test
