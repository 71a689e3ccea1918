// Many tasks at once, again and again: each ends well, and nothing is left of any.
#include "store/database-connection.h"
#include "support/fake-runtimes.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace capstan::test {

namespace {

#if __has_feature(address_sanitizer)
constexpr bool SANITISED = true;
constexpr size_t TASKS = 30, CLIENTS = 6;
#else
constexpr bool SANITISED = false;
constexpr size_t TASKS = 100, CLIENTS = 20;
#endif
constexpr int ROUNDS = 5;

// Of tasks on the fake, where more need no more of the machine than processes.
size_t fakeTasks() {
  const char* wanted = std::getenv("CAPSTAN_TEST_TASKS");
  return wanted == nullptr ? TASKS : std::strtoul(wanted, nullptr, 10);
}

constexpr int CODES = 7;

// What one task came to; outlives the daemon.
struct Report {
  Collector::Seen seen;
  int code = -1;
  kj::Maybe<kj::String> failure;
};

void require(rpc::Error::Reader error) {
  if (error.getCode() == ErrorCode::NONE) return;
  kj::throwFatalException(KJ_EXCEPTION(FAILED, error.getMessage(), error.getCause()));
}

// Ensures, launches, reads all output and waits.
kj::Promise<void> runTask(rpc::Supervisor::Client supervisor, kj::StringPtr executor, size_t number,
                          Report& report) {
  auto ensure = supervisor.ensureRequest();
  ensure.initSpec().setTaskId(kj::str("task-", number));
  ensure.getSpec().setExecutorId(executor);
  auto ensured = co_await ensure.send();
  require(ensured.getError());
  auto launch = ensured.getEnvironment().launchRequest();
  setCommand(launch.initSpec(),
             {"sh", "-c", "echo out-$0; echo err-$0 >&2; pwd > where; exit $(($0 % $1))",
              kj::str(number), kj::str(CODES)});
  auto launched = co_await launch.send();
  require(launched.getError());
  auto run = launched.getRun();
  auto output = run.outputRequest();
  output.setFollow(true);
  output.setSink(kj::heap<Collector>(report.seen));
  auto reading = co_await output.send();
  require(reading.getError());
  auto ended = co_await run.waitRequest().send();
  require(ended.getError());
  report.code = ended.getExit().getCode();
}

kj::Promise<void> destroyTask(rpc::Supervisor::Client supervisor, size_t number) {
  auto open = supervisor.openRequest();
  open.setId(kj::str("task-", number));
  auto cleanup = open.send().getEnvironment().cleanupRequest();
  cleanup.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  auto done = co_await cleanup.send();
  require(done.getError());
}

size_t entries(kj::StringPtr folder) {
  size_t count = 0;
  for (auto& entry: std::filesystem::directory_iterator(folder.cStr())) {
    (void)entry;
    ++count;
  }
  return count;
}

int64_t rows(Daemon& daemon) {
  auto opened = Connection::open(daemon.databasePath(), {});
  auto query = opened.get<kj::Own<Connection>>()->query(
      "SELECT (SELECT count(*) FROM environment) + (SELECT count(*) FROM session) + "
      "(SELECT count(*) FROM run) + (SELECT count(*) FROM running_record) + "
      "(SELECT count(*) FROM inventory)");
  REQUIRE(query.next());
  return query.integer(0);
}

size_t residentPages() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident;
}

// `executor` outlives the daemon. `places` counts what there is of environments in their runtime.
void checkManyTasks(Daemon& daemon, kj::StringPtr executor, size_t tasks, int rowsEach,
                    kj::Function<size_t()> places) {
  kj::Vector<Report> reports;
  kj::Vector<kj::Own<ClientConnection>> clients;
  for (size_t i = 0; i < CLIENTS; ++i)
    clients.add(daemon.connect());
  auto clientOf = [&](size_t number) { return clients[number % CLIENTS]->supervisor(); };
  auto all = [&](kj::Vector<kj::Promise<void>> work) {
    auto limit = (60 + tasks) * kj::SECONDS;
    daemon.loop.timer.timeoutAfter(limit, kj::joinPromises(work.releaseAsArray()))
        .wait(daemon.loop.waitScope);
  };

  size_t descriptors = 0, afterSecond = 0, afterLast = 0;
  for (int round = 1; round <= ROUNDS; ++round) {
    reports.resize(0);
    reports.resize(tasks);
    kj::Vector<kj::Promise<void>> work;
    for (size_t i = 0; i < tasks; ++i) {
      auto running = runTask(clientOf(i), executor, i, reports[i]);
      work.add(running.catch_(
          [&reports, i](kj::Exception&& e) { reports[i].failure = kj::str(e.getDescription()); }));
    }
    all(kj::mv(work));
    REQUIRE(daemon.becomesTrue([&]() {
      for (auto& report: reports) {
        if (!report.seen.ended && report.failure == nullptr) return false;
      }
      return true;
    }));
    for (size_t i = 0; i < tasks; ++i) {
      INFO("round " << round << ", task " << i);
      KJ_IF_MAYBE (failure, reports[i].failure) {
        FAIL_CHECK(failure->cStr());
      }
      CHECK(reports[i].code == static_cast<int>(i % CODES));
      CHECK(reports[i].seen.out == kj::str("out-", i, "\n").cStr());
      CHECK(reports[i].seen.err == kj::str("err-", i, "\n").cStr());
      CHECK(reports[i].seen.ordered);
    }
    CHECK(places() == tasks);
    CHECK(rows(daemon) == rowsEach * static_cast<int64_t>(tasks));

    kj::Vector<kj::Promise<void>> ends;
    for (size_t i = 0; i < tasks; ++i)
      ends.add(destroyTask(clientOf(i), i));
    all(kj::mv(ends));
    CHECK(places() == 0);
    CHECK(rows(daemon) == 0);
    // The first round opens what is kept: the helper's link, the store's files.
    if (round == 1) descriptors = entries("/proc/self/fd");
    CHECK(daemon.becomesTrue([&]() { return entries("/proc/self/fd") <= descriptors; }));
    if (round == 2) afterSecond = residentPages();
    afterLast = residentPages();
  }
  auto measured =
      kj::str(tasks, " tasks: resident after round 2: ", afterSecond * 4, " KiB, after round ",
              ROUNDS, ": ", afterLast * 4, " KiB; descriptors: ", descriptors);
  INFO(measured.cStr());
  if (tasks > TASKS) WARN(measured.cStr());
  if (!SANITISED) CHECK(afterLast * 10 <= afterSecond * 11);
}

}  // namespace

TEST_CASE("many tasks at once all end well, each with its own output, and leave nothing") {
  Daemon daemon;
  auto folder = daemon.state / "environments";
  // Rows: environment, session, run, running record and one item of inventory.
  checkManyTasks(daemon, "exec-local-pc", TASKS, 5, [&]() { return entries(folder); });
}

TEST_CASE("many tasks at once on a runtime with places of its own leave nothing there") {
  DockerDaemon docker;
  checkManyTasks(docker.daemon, "exec-local-docker", fakeTasks(), 4 + kj::size(fake_kind::ALL),
                 [&]() {
                   size_t volumes = entries(docker.runtimes().folder.path());
                   CHECK(docker.world().things().size() == volumes * kj::size(fake_kind::ALL));
                   return volumes;
                 });
}

}  // namespace capstan::test
