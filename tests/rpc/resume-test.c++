// How a session goes on (D10): with the run it has, with a new one in the helper that is there, or
// with a new helper in the place that was kept.
#include "rpc/resume-fixture.h"
#include "rpc/run-output.h"
#include "support/fake-runtimes.h"

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdlib>
#include <string>

namespace capstan::test {

namespace {

LaunchSpec says(kj::StringPtr script) { return command({"sh", "-c", script}); }

kj::Own<SessionActor> sessionOf(Daemon& daemon, EnvironmentActor& environment) {
  auto status = environment.status();
  REQUIRE(status.sessions.size() == 1);
  auto found = environment.findSession(status.sessions[0].id);
  return kj::mv(found.get<kj::Own<SessionActor>>());
}

void killHelpers(Daemon& daemon) {
  for (auto pid: daemon.helperPids())
    kill(pid, SIGKILL);
}

void saves(Daemon& daemon, EnvironmentActor& environment, SessionActor& session,
           kj::StringPtr token) {
  SavedProgress progress{kj::str(session.runId()), kj::str(token), kj::str("m-7"),
                         kj::str("{\"used\":5}")};
  auto outcome = daemon.wait(environment.saveProgress(kj::addRef(session), kj::mv(progress)));
  if (outcome != nullptr) FAIL(kj::str(KJ_ASSERT_NONNULL(outcome)).cStr());
}

}  // namespace

TEST_CASE("resume: a run that is alive is the answer, and nothing is started") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  auto pid = session->status().pid;
  auto run = resumed(daemon, *environment, *session);
  CHECK(run.get() == &session->run());
  CHECK(session->status().pid == pid);
  CHECK(eye.runs() == "running");
  // Also after the daemon's end.
  session = nullptr;
  run = nullptr;
  environment = nullptr;
  daemon.restart();
  auto found = daemon.core().find(OWNER, "t");
  environment = kj::mv(found.get<kj::Own<EnvironmentActor>>());
  session = sessionOf(daemon, *environment);
  run = resumed(daemon, *environment, *session);
  CHECK(session->status().pid == pid);
  CHECK(eye.runs() == "running");
}

TEST_CASE("resume: a process that is gone becomes a new run in the same helper") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, says("echo once >> log; wc -l < log; exit 3"));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  auto helpers = daemon.helperPids();
  auto first = kj::addRef(session->run());
  auto second = resumed(daemon, *environment, *session);
  CHECK(second->id() != first->id());
  CHECK(&session->run() == second.get());
  CHECK(daemon.wait(second->wait()).is<ExitStatus>());
  CHECK(session->state() == SessionState::EXITED);
  CHECK(daemon.helperPids()[0] == helpers[0]);
  CHECK(eye.runs() == "ended:exited ended:exited");
  CHECK(eye.sessions() == "exited");
  // Each run has an output of its own, which stays.
  CHECK(outputOf(daemon, *first) == "1\n");
  CHECK(outputOf(daemon, *second) == "2\n");
  checkAgreement(eye, *environment);

  // Also for the next daemon.
  auto firstId = kj::str(first->id()), secondId = kj::str(second->id());
  session = nullptr;
  first = nullptr;
  second = nullptr;
  environment = nullptr;
  daemon.restart();
  environment = recovered(daemon, "t");
  session = sessionOf(daemon, *environment);
  CHECK(session->runId() == secondId);
  CHECK(outputOf(daemon, *KJ_ASSERT_NONNULL(session->findRun(firstId))) == "1\n");
  CHECK(outputOf(daemon, *KJ_ASSERT_NONNULL(session->findRun(secondId))) == "2\n");
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(eye.everything() == "||||");
}

TEST_CASE("resume: a helper that is gone is replaced in the place that was kept") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, says("echo x >> log; wc -l < log; sleep 1000"));
  auto file = kj::str(environment->status().workspace, "/log");
  REQUIRE(daemon.becomesTrue([&]() { return access(file.cStr(), F_OK) == 0; }));
  killHelpers(daemon);
  REQUIRE(daemon.becomesTrue([&]() { return session->state() == SessionState::LOST; }));
  auto run = resumed(daemon, *environment, *session);
  CHECK(session->state() == SessionState::RUNNING);
  CHECK(eye.runs() == "ended:lost running");
  CHECK(eye.sessions() == "running");
  CHECK(says(daemon, *run, "2\n"));
}

TEST_CASE("resume: after a daemon that was killed with its helper") {
  Daemon daemon;
  Eye eye(daemon);
  {
    auto environment = environmentOf(daemon, "t");
    auto session = launched(daemon, *environment, says("echo x >> log; wc -l < log; sleep 1000"));
    auto file = kj::str(environment->status().workspace, "/log");
    REQUIRE(daemon.becomesTrue([&]() { return access(file.cStr(), F_OK) == 0; }));
  }
  daemon.endAsIfKilled();
  daemon.begin();
  auto found = daemon.core().find(OWNER, "t");
  auto environment = kj::mv(found.get<kj::Own<EnvironmentActor>>());
  auto session = sessionOf(daemon, *environment);
  // It waits until it is known what became of the run.
  auto run = resumed(daemon, *environment, *session);
  CHECK(eye.runs() == "ended:lost running");
  CHECK(says(daemon, *run, "2\n"));
}

TEST_CASE("resume: a workspace that is gone is told, and nothing takes its place") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  auto folder = daemon.environmentFolder(environment->id());
  bool withHelper = GENERATE(true, false);
  if (!withHelper) {
    killHelpers(daemon);
    REQUIRE(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::LOST; }));
  }
  REQUIRE(std::system(kj::str("mv ", folder, " ", folder, "-away").cStr()) == 0);
  CHECK(notResumed(daemon, *environment, *session).code == ErrorCode::WORKSPACE_LOST);
  CHECK(access(folder.cStr(), F_OK) < 0);
  CHECK(eye.runs() == "ended:exited");
  CHECK(session->state() == SessionState::EXITED);
  REQUIRE(std::system(kj::str("mv ", folder, "-away ", folder).cStr()) == 0);
  resumed(daemon, *environment, *session);
  CHECK(eye.sessions() != "starting");
}

TEST_CASE("resume: while it cannot be told what runs, nothing is replaced") {
  DockerDaemon docker(Limits(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  Eye eye(daemon);
  auto environment = onDocker(daemon);
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  auto pid = session->status().pid;
  docker.world().setReachable(environment->id(), false);
  docker.world().cut(environment->id());
  REQUIRE(
      daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::RECONNECTING; }));
  auto problem = notResumed(daemon, *environment, *session);
  CHECK(problem.code == ErrorCode::UNREACHABLE);
  CHECK(problem.retry == RetryHint::SAME_REQUEST_LATER);
  CHECK(eye.runs() == "running");
  docker.world().setReachable(environment->id(), true);
  REQUIRE(daemon.becomesTrue([&]() { return session->state() == SessionState::RUNNING; }));
  resumed(daemon, *environment, *session);
  CHECK(session->status().pid == pid);
}

TEST_CASE("resume: it waits while the loss of what could not be reached is written down") {
  DockerDaemon docker(Limits(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  auto environment = onDocker(daemon);
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  docker.world().setReachable(environment->id(), false);
  docker.world().cut(environment->id());
  REQUIRE(
      daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::RECONNECTING; }));
  docker.world().setReachable(environment->id(), true);
  docker.world().loseCompute(environment->id());
  while (environment->state() == EnvironmentState::RECONNECTING) {
    if (daemon.loop.waitScope.poll(1) > 0) continue;
    daemon.loop.timer.afterDelay(1 * kj::MILLISECONDS).wait(daemon.loop.waitScope);
  }
  CHECK(environment->state() == EnvironmentState::RECOVERING);
  resumed(daemon, *environment, *session);
  CHECK(session->state() == SessionState::RUNNING);
}

TEST_CASE("resume: compute that is gone is made again around the files; lost files are not") {
  DockerDaemon docker(Limits(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  auto environment = onDocker(daemon);
  auto session = launched(daemon, *environment, says("echo x >> log; wc -l < log"));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  docker.world().loseCompute(environment->id());
  REQUIRE(daemon.becomesTrue([&]() { return environment->state() != EnvironmentState::READY; }));
  CHECK(docker.controls().count("resume") == 0);
  auto run = resumed(daemon, *environment, *session);
  CHECK(outputOf(daemon, *run) == "2\n");
  CHECK(docker.controls().count("resume") == 1);  // By the runtime's own way.
  docker.world().loseCompute(environment->id());
  docker.world().vanish(fake_kind::VOLUME, FakeWorld::nameOf(environment->id(), fake_kind::VOLUME));
  auto volumes = docker.controls().count("create.volume");
  CHECK(notResumed(daemon, *environment, *session).code == ErrorCode::WORKSPACE_LOST);
  CHECK(docker.controls().count("create.volume") == volumes);
}

TEST_CASE("resume: a place that never was is made, though its folder has to be there") {
  DockerDaemon docker(Limits(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  TempDir folder;
  docker.world().addDirectory(folder.path());
  auto spec = task("t");
  spec.executor = kj::str("exec-local-docker");
  spec.workspace.kind = WorkspaceSpec::Kind::DIRECTORY;
  spec.workspace.directory = kj::str(folder.path());
  spec.workspace.reuseRequired = true;
  auto ensured = daemon.wait(daemon.core().ensure(kj::str(OWNER), kj::mv(spec)));
  if (ensured.is<Problem>()) FAIL(kj::str(ensured.get<Problem>()).cStr());
  auto environment = kj::mv(ensured.get<Supervisor::Ensured>().environment);
  bringUp(daemon, *environment);
  CHECK(docker.controls().count("resume") == 0);
}

TEST_CASE("resume: two clients at once get the same run, and a request id finds it again") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, says("exit 0"));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  auto one = environment->resume(kj::addRef(*session), asked('a'));
  auto two = environment->resume(kj::addRef(*session), asked('b'));
  auto first = daemon.wait(kj::mv(one));
  auto second = daemon.wait(kj::mv(two));
  auto& run = first.get<kj::Own<RunActor>>();
  CHECK(run.get() == second.get<kj::Own<RunActor>>().get());
  CHECK(daemon.wait(run->wait()).is<ExitStatus>());
  CHECK(resumed(daemon, *environment, *session, asked('a')).get() == run.get());
  CHECK(eye.runs() == "ended:exited ended:exited");
  auto third = resumed(daemon, *environment, *session, asked('c'));
  CHECK(third.get() != run.get());
  CHECK(daemon.wait(third->wait()).is<ExitStatus>());
  auto id = kj::str(run->id());
  run = nullptr;
  third = nullptr;
  first = Problem();
  second = Problem();
  session = nullptr;
  environment = nullptr;
  daemon.restart();
  environment = recovered(daemon, "t");
  session = sessionOf(daemon, *environment);
  CHECK(resumed(daemon, *environment, *session, asked('a'))->id() == id);
}

TEST_CASE(
    "resume: what was given once counts again, and its secrets are the present ones (AC-45)") {
  Daemon daemon;
  auto set = [&](kj::StringPtr value) {
    auto done = daemon.wait(
        daemon.secrets().set(kj::str("k"), SecretBytes(kj::heapArray<kj::byte>(value.asBytes()))));
    REQUIRE_FALSE(done.is<Problem>());
  };
  set("first");
  auto environment = environmentOf(daemon, "t");
  SecretVault::Binding binding{kj::str(environment->id()), kj::String()};
  CHECK(daemon.wait(daemon.secrets().allow(kj::str("k"), kj::mv(binding))) == nullptr);
  auto spec = says("echo $A $B $(basename $PWD)");
  spec.workingDirectory = kj::str("..");
  auto variables = kj::heapArrayBuilder<Variable>(2);
  variables.add();
  variables[0].key = kj::str("A");
  variables[0].literal = kj::str("a");
  variables[0].origin = Origin::MANAGED_RUNTIME;
  variables.add();
  variables[1].key = kj::str("B");
  variables[1].secret = kj::str("k");
  variables[1].origin = Origin::MANAGED_RUNTIME;
  spec.variables = variables.finish();
  auto session = launched(daemon, *environment, kj::mv(spec));
  CHECK(outputOf(daemon, session->run()) ==
        std::string("a first ") + environment->id().cStr() + "\n");
  set("second");
  auto run = resumed(daemon, *environment, *session);
  CHECK(outputOf(daemon, *run) == std::string("a second ") + environment->id().cStr() + "\n");
  CHECK(daemon.wait(daemon.secrets().remove(kj::str("k"))) == nullptr);
  auto missing = notResumed(daemon, *environment, *session);
  CHECK(session->state() == SessionState::FAILED);
  // Not that a helper was lost.
  auto none = session->run().process();
  REQUIRE(none.is<Problem>());
  CHECK(none.get<Problem>().code == ErrorCode::WRONG_STATE);
  CHECK(none.get<Problem>().cause == kj::str(missing));
}

TEST_CASE("resume: a resume command replaces the command, and is kept for the next time") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto spec = says("echo command");
  auto words = [](kj::StringPtr text) {
    return kj::arr(kj::str("sh"), kj::str("-c"), kj::str("echo ", text));
  };
  spec.resumeCommand = words("again");
  auto session = launched(daemon, *environment, kj::mv(spec));
  CHECK(outputOf(daemon, session->run()) == "command\n");
  CHECK(outputOf(daemon, *resumed(daemon, *environment, *session)) == "again\n");
  LaunchSpec other;
  other.resumeCommand = words("other");
  CHECK(outputOf(daemon, *resumed(daemon, *environment, *session, kj::mv(other))) == "other\n");
  CHECK(outputOf(daemon, *resumed(daemon, *environment, *session)) == "other\n");
  CHECK(session->status().command[2] == "echo other");

  auto wrong = command({"true"});
  CHECK(notResumed(daemon, *environment, *session, kj::mv(wrong)).field == "spec.command");
  LaunchSpec empty;
  empty.resumeCommand = kj::arr(kj::str(""));
  CHECK(notResumed(daemon, *environment, *session, kj::mv(empty)).field == "spec.resumeCommand");
}

TEST_CASE("resume: what cannot be started is a failed run, and the next try works") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  LaunchSpec wrong;
  wrong.resumeCommand = kj::arr(kj::str("/no/such/program"));
  CHECK(notResumed(daemon, *environment, *session, kj::mv(wrong)).code == ErrorCode::NOT_FOUND);
  CHECK(session->state() == SessionState::FAILED);
  CHECK(eye.runs() == "ended:exited ended:failed");
  LaunchSpec right;
  right.resumeCommand = kj::arr(kj::str("true"));
  resumed(daemon, *environment, *session, kj::mv(right));
  checkAgreement(eye, *environment);
}

TEST_CASE("resume: without a store nothing begins") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  setReadOnly(daemon, true);
  notResumed(daemon, *environment, *session);
  CHECK(session->state() == SessionState::EXITED);
  setReadOnly(daemon, false);
  CHECK(eye.runs() == "ended:exited");
  resumed(daemon, *environment, *session);
}

TEST_CASE("a resume token goes to the next run, sealed until then, for the latest run only") {
  constexpr kj::StringPtr TOKEN = "tok-PLANTED-4711"_kj;
  Daemon daemon;
  LogWatch logs;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, says("echo \"[$CAPSTAN_RESUME_TOKEN]\""));
  CHECK(outputOf(daemon, session->run()) == "[]\n");
  saves(daemon, *environment, *session, TOKEN);
  auto firstRun = kj::str(session->runId());
  auto leaks = [&]() {
    auto search =
        kj::str("grep -rlaF ", TOKEN, " ", daemon.state.path(), " | grep -v /runs/ | grep -q .");
    return std::system(search.cStr()) == 0;
  };
  CHECK_FALSE(leaks());
  CHECK(eye.rows("SELECT last_message_uuid || context FROM running_record") == "m-7{\"used\":5}");
  auto expected = std::string("[") + TOKEN.cStr() + "]\n";
  CHECK(outputOf(daemon, *resumed(daemon, *environment, *session)) == expected);
  CHECK(eye.rows("SELECT last_message_uuid FROM running_record") == "m-7");
  // An earlier run's word does not count any more.
  SavedProgress stale{kj::str(firstRun), kj::str("stale"), kj::String(), kj::String()};
  auto refused = daemon.wait(environment->saveProgress(kj::addRef(*session), kj::mv(stale)));
  CHECK(KJ_ASSERT_NONNULL(refused).code == ErrorCode::WRONG_STATE);
  SavedProgress bad{kj::str(session->runId()), kj::String(), kj::String(), kj::str("{")};
  refused = daemon.wait(environment->saveProgress(kj::addRef(*session), kj::mv(bad)));
  CHECK(KJ_ASSERT_NONNULL(refused).code == ErrorCode::INVALID_ARGUMENT);
  CHECK(outputOf(daemon, *resumed(daemon, *environment, *session)) == expected);
  // A new key opens it too.
  CHECK(daemon.wait(daemon.secrets().rotate()).is<uint64_t>());
  CHECK(outputOf(daemon, *resumed(daemon, *environment, *session)) == expected);
  // None any more.
  saves(daemon, *environment, *session, "");
  CHECK(eye.rows("SELECT id FROM secret WHERE id LIKE 'resume-%'") == "");
  CHECK(outputOf(daemon, *resumed(daemon, *environment, *session)) == "[]\n");
  saves(daemon, *environment, *session, TOKEN);
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(eye.rows("SELECT id FROM secret WHERE id LIKE 'resume-%'") == "");
  CHECK_FALSE(leaks());
}

}  // namespace capstan::test
