#include "store-fixture.h"
#include "store/control-server-table.h"
#include "store/episode-table.h"
#include "store/inventory-table.h"
#include "store/profile-table.h"
#include "store/run-table.h"
#include "store/running-record-table.h"
#include "store/setting-table.h"

#include <cstdlib>

namespace capstan {

using test::fine;
using test::get;
using test::problemOf;

namespace {

struct Tables {
  test::TempDir temp;
  kj::Own<Connection> connection = test::openTables(temp / "capstan.db");
  Connection& db = *connection;
  EnvironmentTable environments{db};
  SessionTable sessions{db};
  RunTable runs{db};
  RunningRecordTable running{db};

  // One environment "env-1" with session "s-1".
  void begin() {
    fine(environments.add(test::environment("env-1", "task-1")));
    fine(sessions.add(test::session("s-1", "env-1")));
  }
};

RunRecord run(kj::StringPtr id, kj::StringPtr sessionId) {
  RunRecord record;
  record.id = kj::str(id);
  record.sessionId = kj::str(sessionId);
  record.spec.command = kj::arr(kj::str("agent"), kj::str("--fast"));
  Variable variable;
  variable.key = kj::str("API_KEY");
  variable.secret = kj::str("api-key");
  variable.origin = Origin::EXECUTOR_PROFILE;
  record.spec.variables = kj::heapArray<Variable>(1);
  record.spec.variables[0] = kj::mv(variable);
  record.spec.terminal = Terminal{120, 40, kj::str("xterm")};
  record.spec.pauseWhenFull = true;
  record.createdAt = 3000;
  return record;
}

RunOutcome exited(int code) {
  RunOutcome outcome;
  outcome.kind = RunOutcome::Kind::EXITED;
  ExitStatus exit;
  exit.kind = ExitStatus::Kind::CODE;
  exit.code = code;
  outcome.exit = kj::mv(exit);
  outcome.at = 5000;
  return outcome;
}

}  // namespace

TEST_CASE("settings are written by version") {
  Tables t;
  SettingTable settings(t.db);
  CHECK(get(settings.put("k", "1", 0)) == 1);
  CHECK(problemOf(settings.put("k", "2", 0)).code == ErrorCode::ALREADY_EXISTS);
  CHECK(get(settings.put("k", "2", 1)) == 2);
  auto stale = problemOf(settings.put("k", "3", 1));
  CHECK(stale.code == ErrorCode::WRONG_STATE);
  CHECK(stale.retry == RetryHint::AFTER_REFRESH);
  CHECK(problemOf(settings.put("none", "3", 1)).code == ErrorCode::NOT_FOUND);
  CHECK(settings.remove("k", 1) != nullptr);
  fine(settings.remove("k", 2));
  CHECK(settings.find("k") == nullptr);
}

TEST_CASE("a text keeps every octet, also zero") {
  Tables t;
  SettingTable settings(t.db);
  auto odd = kj::heapString("a\0b\n\xc3\xa4", 6);
  get(settings.put("odd", odd, 0));
  CHECK(KJ_ASSERT_NONNULL(settings.find("odd")).value == odd);
}

TEST_CASE("executors keep their configuration, their version and their place") {
  Tables t;
  ExecutorTable executors(t.db);
  ExecutorRecord record;
  record.id = kj::str("x-1");
  record.name = kj::str("build host");
  record.type = kj::str("ssh");
  record.config = kj::heapArray<Label>(1);
  record.config[0] = Label{kj::str("ssh_host"), kj::str("build")};
  record.createdAt = record.updatedAt = 10;
  CHECK(get(executors.put(record)) == 1);
  CHECK(KJ_ASSERT_NONNULL(executors.findByName("build host")).config[0].value == "build");
  CHECK(problemOf(executors.put(record)).code == ErrorCode::ALREADY_EXISTS);
  record.version = 1;
  record.status = ExecutorStatus::DISABLED;
  CHECK(get(executors.put(record)) == 2);
  CHECK(problemOf(executors.put(record)).retry == RetryHint::AFTER_REFRESH);
  CHECK(executors.list("", 100).size() == 3);
  CHECK(executors.list("exec-local-docker", 1)[0].id == "exec-local-pc");

  record.version = 0;
  record.id = kj::str("x-2");
  CHECK(problemOf(executors.put(record)).field == "name");
  fine(executors.remove("x-1", 2, 20));
  CHECK(executors.findByName("build host") == nullptr);
  CHECK(KJ_ASSERT_NONNULL(executors.find("x-1")).deletedAt == 20);
  CHECK(get(executors.put(record)) == 1);  // The name is free again.
}

TEST_CASE("system executors can be disabled, not removed or turned into others") {
  Tables t;
  ExecutorTable executors(t.db);
  auto local = KJ_ASSERT_NONNULL(executors.find("exec-local-pc"));
  CHECK(problemOf(executors.remove(local.id, local.version, 1)).code == ErrorCode::DENIED);
  local.status = ExecutorStatus::DISABLED;
  local.version = get(executors.put(local));
  local.type = kj::str("ssh");
  CHECK(problemOf(executors.put(local)).code == ErrorCode::DENIED);
}

TEST_CASE("profiles belong to an executor and hold it") {
  Tables t;
  ProfileTable profiles(t.db);
  ExecutorTable executors(t.db);
  ExecutorRecord host;
  host.id = kj::str("x-1");
  host.name = kj::str("host");
  host.type = kj::str("ssh");
  get(executors.put(host));
  ProfileRecord record;
  record.id = kj::str("p-1");
  record.executorId = kj::str("x-1");
  record.name = kj::str("fast");
  record.prepareScript = kj::str("make\n");
  record.variables = kj::heapArray<Variable>(1);
  record.variables[0].key = kj::str("KEY");
  record.variables[0].secret = kj::str("api-key");
  CHECK(get(profiles.put(record)) == 1);
  auto found = KJ_ASSERT_NONNULL(profiles.findByName("x-1", "fast"));
  CHECK(found.variables[0].secret == "api-key");
  CHECK(found.prepareScript == "make\n");
  CHECK(problemOf(executors.remove("x-1", 1, 5)).code == ErrorCode::WRONG_STATE);
  record.version = 1;
  record.executorId = kj::str("exec-local-pc");
  CHECK(problemOf(profiles.put(record)).code == ErrorCode::WRONG_STATE);
  record.executorId = kj::str("x-none");
  CHECK(problemOf(profiles.put(record)).code == ErrorCode::NOT_FOUND);
  CHECK(problemOf(profiles.remove("p-1", 9)).retry == RetryHint::AFTER_REFRESH);
  fine(profiles.remove("p-1", 1));
  fine(executors.remove("x-1", 1, 5));
}

TEST_CASE("a workspace of clones is kept with every field") {
  Tables t;
  auto record = test::environment("env-1", "task-1");
  auto& workspace = record.spec.workspace;
  workspace.kind = WorkspaceSpec::Kind::REPOSITORIES;
  workspace.repositories =
      kj::arr(Repository{kj::str("a"), kj::str("https://git.example/a"), kj::str("main")},
              Repository{kj::str("b"), kj::str("git@git.example:b"), kj::String()});
  workspace.sourceRoots = kj::arr(kj::str("/srv/a"));
  workspace.reuseRequired = true;
  fine(t.environments.add(record));
  auto row = KJ_ASSERT_NONNULL(t.environments.find("env-1"));
  auto& found = row.spec.workspace;
  CHECK(found.isSamePlace(workspace));
  CHECK(found.repositories[0].ref == "main");
  CHECK(found.reuseRequired);
}

TEST_CASE("an owner's task has one environment, found by id, task and request") {
  Tables t;
  auto record = test::environment("env-1", "task-1");
  record.requestId = kj::heapArray<kj::byte>({1, 2, 3});
  record.spec.workspace = WorkspaceSpec::ofDirectory(kj::str("/srv/work"));
  fine(t.environments.add(record));
  CHECK(problemOf(t.environments.add(test::environment("env-2", "task-1"))).code ==
        ErrorCode::ALREADY_EXISTS);
  auto other = test::environment("env-2", "task-1");
  other.owner = kj::str("uid:2");
  fine(t.environments.add(other));

  auto found = KJ_ASSERT_NONNULL(t.environments.findByTask("uid:1", "task-1"));
  CHECK(found.id == "env-1");
  CHECK(found.spec.title == "a title");
  CHECK(found.spec.labels[0].key == "team");
  CHECK(found.spec.workspace.isSamePlace(record.spec.workspace));
  CHECK_FALSE(found.spec.workspace.reuseRequired);
  CHECK(t.environments.findByRequest("uid:1", record.requestId, 1000) != nullptr);
  CHECK(t.environments.findByRequest("uid:1", record.requestId, 1001) == nullptr);
  CHECK(t.environments.findByRequest("uid:2", record.requestId, 0) == nullptr);
  auto later = test::environment("env-3", "task-3");
  later.requestId = kj::heapArray<kj::byte>({1, 2, 3});  // A day later.
  fine(t.environments.add(later));
  CHECK(KJ_ASSERT_NONNULL(t.environments.findByRequest("uid:1", record.requestId, 0)).id ==
        "env-3");
  CHECK(t.environments.list("env-1", 1)[0].id == "env-2");
}

TEST_CASE("a change of an environment touches only what it names") {
  Tables t;
  t.begin();
  kj::Maybe<Problem> error = Problem(ErrorCode::PREPARE_FAILED, kj::str("it failed"));
  EnvironmentTable::Change change;
  change.state = EnvironmentState::FAILED;
  change.lastError = error;
  change.at = 7;
  CHECK(get(t.environments.change("env-1", kj::mv(change))) == 2);
  EnvironmentTable::Change place;
  place.workspace = "/w"_kj;
  CHECK(get(t.environments.change("env-1", kj::mv(place), 2)) == 3);
  auto found = KJ_ASSERT_NONNULL(t.environments.find("env-1"));
  CHECK(found.state == EnvironmentState::FAILED);
  CHECK(found.workspace == "/w");
  CHECK(KJ_ASSERT_NONNULL(found.lastError).code == ErrorCode::PREPARE_FAILED);
  EnvironmentTable::Change stale;
  CHECK(problemOf(t.environments.change("env-1", kj::mv(stale), 2)).retry ==
        RetryHint::AFTER_REFRESH);
}

TEST_CASE("every state of environments, sessions and records comes back as it was") {
  Tables t;
  t.begin();
  for (int i = 0; i <= static_cast<int>(EnvironmentState::CLEANING); ++i) {
    EnvironmentTable::Change change;
    change.state = static_cast<EnvironmentState>(i);
    get(t.environments.change("env-1", kj::mv(change)));
    CHECK(KJ_ASSERT_NONNULL(t.environments.find("env-1")).state ==
          static_cast<EnvironmentState>(i));
  }
  for (int i = 0; i <= static_cast<int>(SessionState::RECONNECTING); ++i) {
    SessionTable::Change change;
    change.state = static_cast<SessionState>(i);
    change.conversationState = "WAITING_FOR_INPUT"_kj;
    get(t.sessions.change("s-1", kj::mv(change)));
    CHECK(KJ_ASSERT_NONNULL(t.sessions.find("s-1")).state == static_cast<SessionState>(i));
  }
  RunningRecord record;
  record.sessionId = kj::str("s-1");
  for (int i = 0; i <= static_cast<int>(RunningStatus::PREPARED); ++i) {
    record.status = static_cast<RunningStatus>(i);
    get(t.running.put(record));
    CHECK(KJ_ASSERT_NONNULL(t.running.find("s-1")).status == static_cast<RunningStatus>(i));
  }
}

TEST_CASE("a session has one run that has not ended, and its outcome is applied once") {
  Tables t;
  t.begin();
  fine(t.runs.add(run("r-1", "s-1")));
  auto second = problemOf(t.runs.add(run("r-2", "s-1")));
  CHECK(second.code == ErrorCode::WRONG_STATE);
  CHECK(test::contains(second.cause, "r-1"));
  CHECK(t.runs.listLive("", 10).size() == 1);
  fine(t.runs.setRunning("r-1", 4000));
  CHECK(problemOf(t.runs.setRunning("r-1", 4000)).code == ErrorCode::WRONG_STATE);

  CHECK(get(t.runs.end("r-1", exited(3))) == RunTable::Applied::NOW);
  CHECK(get(t.runs.end("r-1", exited(0))) == RunTable::Applied::BEFORE);
  CHECK(problemOf(t.runs.end("r-9", exited(0))).code == ErrorCode::NOT_FOUND);

  auto ended = KJ_ASSERT_NONNULL(t.runs.find("r-1"));
  CHECK(KJ_ASSERT_NONNULL(KJ_ASSERT_NONNULL(ended.outcome).exit).code == 3);
  CHECK(ended.runningAt == 4000);
  CHECK(ended.spec.command[1] == "--fast");
  CHECK(ended.spec.variables[0].secret == "api-key");
  CHECK(KJ_ASSERT_NONNULL(ended.spec.terminal).rows == 40);
  CHECK(ended.spec.pauseWhenFull);
  CHECK(t.runs.findLive("s-1") == nullptr);
  fine(t.runs.add(run("r-2", "s-1")));
  CHECK(t.runs.list("s-1", 1)[0].id == "r-2");
  CHECK(t.runs.list("s-1", 10)[0].id == "r-1");
  CHECK(t.runs.listEnded(5001, 10).size() == 1);
  CHECK(t.runs.listEnded(5000, 10).size() == 0);
}

TEST_CASE("a launch that is asked for again is found by its request") {
  Tables t;
  t.begin();
  auto record = run("r-1", "s-1");
  record.requestId = kj::heapArray<kj::byte>({9, 9});
  fine(t.runs.add(record));
  CHECK(KJ_ASSERT_NONNULL(t.runs.findByRequest("env-1", record.requestId, 3000)).id == "r-1");
  CHECK(t.runs.findByRequest("env-1", record.requestId, 3001) == nullptr);
  CHECK(t.runs.findByRequest("env-2", record.requestId, 0) == nullptr);
}

TEST_CASE("lifecycle and conversation write the running record without harm to each other") {
  Tables t;
  t.begin();
  RunningRecord record;
  record.id = kj::str("rr-1");
  record.sessionId = kj::str("s-1");
  record.runtime = kj::str("standalone");
  record.agentExecutionId = kj::str("r-1");
  record.localPid = 77;
  record.metadata = kj::str("{\"is_remote\":false,\"base_branches\":{\"\":\"main\"}}");
  CHECK(get(t.running.put(record)) == 1);
  fine(t.running.saveProgress("s-1", "r-1", "resume-me", "m-5", "{\"tokens\":12}"));

  record.status = RunningStatus::RUNNING;  // Knows nothing of the progress.
  CHECK(get(t.running.put(record)) == 3);
  auto found = KJ_ASSERT_NONNULL(t.running.find("s-1"));
  CHECK(found.resumeToken == "resume-me");
  CHECK(found.lastMessageUuid == "m-5");
  CHECK(found.metadata == record.metadata);

  record.agentExecutionId = kj::str("r-2");
  get(t.running.put(record));
  auto stale = problemOf(t.running.saveProgress("s-1", "r-1", "old", "", ""));
  CHECK(stale.code == ErrorCode::WRONG_STATE);
  CHECK(test::contains(stale.cause, "execution rotated"));
  record.version = 1;
  CHECK(problemOf(t.running.put(record)).retry == RetryHint::AFTER_REFRESH);
  record.version = 0;
  record.metadata = kj::str("{no json");
  CHECK(problemOf(t.running.put(record)).field == "metadata");
  CHECK(problemOf(t.running.saveProgress("s-1", "r-2", "", "", "{")).field == "context");
}

TEST_CASE("a restart repairs a record that can be resumed and keeps any other") {
  Tables t;
  t.begin();
  RunningRecord record;
  record.sessionId = kj::str("s-1");
  record.status = RunningStatus::RUNNING;
  record.localPid = 77;
  get(t.running.put(record));
  CHECK_FALSE(get(t.running.repair("s-1", 9)));
  CHECK(KJ_ASSERT_NONNULL(t.running.find("s-1")).localPid == 77);
  fine(t.running.saveProgress("s-1", "", "resume-me", "", ""));
  CHECK(get(t.running.repair("s-1", 9)));
  auto repaired = KJ_ASSERT_NONNULL(t.running.find("s-1"));
  CHECK(repaired.status == RunningStatus::STOPPED);
  CHECK(repaired.localPid == 0);
  CHECK(repaired.resumeToken == "resume-me");
  CHECK(t.running.list("standalone", "", 10).size() == 0);
  CHECK(t.running.list("", "", 10).size() == 1);
}

TEST_CASE("the inventory keeps the order of the steps and holds the environment's row") {
  Tables t;
  t.begin();
  InventoryTable inventory(t.db);
  InventoryItem item;
  item.environmentId = kj::str("env-1");
  item.runtime = kj::str("standalone");
  item.step = kj::str("inv.standalone.directory");
  item.kind = kj::str("directory");
  item.name = kj::str("/w");
  CHECK(get(inventory.intend(item, 1)) == 1);
  item.name = kj::str("/w/sub");
  CHECK(get(inventory.intend(item, 2)) == 2);
  Label detail[] = {Label{kj::str("device"), kj::str("8:1")}};
  fine(inventory.confirm("env-1", 1, "inode 7", detail, 3));
  fine(inventory.confirm("env-1", 1, "inode 7", detail, 4));
  auto foreign = problemOf(inventory.confirm("env-1", 1, "inode 8", nullptr, 5));
  CHECK(foreign.code == ErrorCode::OWNERSHIP_MISMATCH);

  auto newest = inventory.list("env-1", InventoryTable::Order::NEWEST_FIRST);
  REQUIRE(newest.size() == 2);
  CHECK(newest[0].state == InventoryItem::State::INTENDED);
  CHECK(newest[1].identity == "inode 7");
  CHECK(newest[1].details[0].value == "8:1");

  CHECK(problemOf(t.environments.remove("env-1")).code == ErrorCode::WRONG_STATE);
  fine(inventory.remove("env-1", 2));
  CHECK(inventory.remove("env-1", 2) != nullptr);
  fine(inventory.remove("env-1", 1));
  fine(t.environments.remove("env-1"));
  CHECK(t.sessions.find("s-1") == nullptr);  // Goes with it.
}

TEST_CASE("one control server is current and any number drain") {
  Tables t;
  ControlServerTable servers(t.db);
  ControlServerRecord record;
  record.endpoint = kj::str("/run/a");
  record.capabilities = kj::arr(kj::str("copy"), kj::str("dial"));
  for (auto id: {"a"_kj, "b"_kj, "c"_kj}) {
    record.id = kj::str(id);
    fine(servers.add(record));
  }
  CHECK(problemOf(servers.add(record)).code == ErrorCode::ALREADY_EXISTS);
  CHECK(KJ_ASSERT_NONNULL(servers.current()).id == "c");
  CHECK(KJ_ASSERT_NONNULL(servers.find("a")).state == ControlServerRecord::State::DRAINING);
  CHECK(servers.list("", 10).size() == 3);
  CHECK(servers.list("", 10)[0].capabilities[1] == "dial");
  fine(servers.drain("c"));
  CHECK(servers.current() == nullptr);
  fine(servers.remove("a"));
  CHECK(problemOf(servers.drain("a")).code == ErrorCode::NOT_FOUND);
}

TEST_CASE("rows without what they belong to are refused by name") {
  Tables t;
  CHECK(problemOf(t.sessions.add(test::session("s-1", "env-9"))).message ==
        "no environment 'env-9'");
  CHECK(problemOf(t.runs.add(run("r-1", "s-9"))).code == ErrorCode::NOT_FOUND);
  RunningRecord record;
  record.sessionId = kj::str("s-9");
  CHECK(problemOf(t.running.put(record)).code == ErrorCode::NOT_FOUND);
}

TEST_CASE("episodes: one goes on, the last ones stay") {
  Tables t;
  t.begin();
  EpisodeTable episodes(t.db);
  EpisodeRecord one;
  one.id = kj::str("ep-1");
  one.environmentId = kj::str("env-2");
  CHECK(problemOf(episodes.put(one)).code == ErrorCode::NOT_FOUND);
  one.environmentId = kj::str("env-1");
  one.generation = kj::str("g");
  one.cause = Problem(ErrorCode::UNREACHABLE, kj::str("no answer")).from("ssh", kj::str("E1"));
  one.blockers.add(Problem(ErrorCode::TIMEOUT, kj::str("too late")));
  one.startedAt = 1000;
  fine(episodes.put(one));
  auto other = one.clone();
  other.id = kj::str("ep-2");
  CHECK(problemOf(episodes.put(other)).code == ErrorCode::WRONG_STATE);
  one.outcome = EpisodeOutcome::TERMINATED;
  one.affected.add(kj::str("s-1"));
  one.endedAt = 1500;
  fine(episodes.put(one));
  auto listed = episodes.list("env-1");
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].outcome == EpisodeOutcome::TERMINATED);
  CHECK(listed[0].generation == "g");
  CHECK(listed[0].cause.code == ErrorCode::UNREACHABLE);
  CHECK(listed[0].cause.source == "ssh");
  REQUIRE(listed[0].blockers.size() == 1);
  CHECK(listed[0].blockers[0].message == "too late");
  CHECK(listed[0].affected[0] == "s-1");
  CHECK(listed[0].endedAt == 1500);
  // Beyond the bound the oldest go, whatever the clock says of the one that goes on.
  for (int i = 0; i < 30; ++i) {
    auto next = one.clone();
    next.id = kj::str("ep-", 100 + i);
    next.startedAt = 2000 + i;
    next.endedAt = 3000 + i;
    fine(episodes.put(next));
  }
  other.startedAt = 1;
  fine(episodes.put(other));
  listed = episodes.list("env-1");
  REQUIRE(listed.size() == EPISODES_KEPT);
  CHECK(listed[0].id == "ep-115");
  CHECK(listed.back().id == "ep-2");
  fine(t.environments.remove("env-1"));
  CHECK(episodes.list("env-1").size() == 0);
}

}  // namespace capstan
