// What is durable when, and what a daemon knows of those before it.
#include "records-fixture.h"

#include <csignal>
#include <unistd.h>

namespace capstan::test {

// ---- in their order

TEST_CASE("an environment's row is there before ensure answers, and once for two callers") {
  Daemon daemon;
  Eye eye(daemon);
  CommitsHeld held(eye);
  auto first = daemon.core().ensure(kj::str(OWNER), task("t"));
  auto second = daemon.core().ensure(kj::str(OWNER), task("t"));
  for (int i = 0; i < 20; ++i)
    daemon.loop.timer.afterDelay(10 * kj::MILLISECONDS).wait(daemon.loop.waitScope);
  CHECK_FALSE(first.poll(daemon.loop.waitScope));
  CHECK_FALSE(second.poll(daemon.loop.waitScope));
  CHECK(daemon.core().list(OWNER, "", 10).size() == 0);
  held.release();
  auto one = daemon.wait(kj::mv(first));
  CHECK(eye.environments().size() > 0);
  auto two = daemon.wait(kj::mv(second));
  auto& made = one.get<Supervisor::Ensured>();
  auto& found = two.get<Supervisor::Ensured>();
  CHECK(made.made);
  CHECK_FALSE(found.made);
  CHECK(made.environment.get() == found.environment.get());
  CHECK(eye.rows("SELECT id FROM environment") == made.environment->id());
}

TEST_CASE("a run is noted before the helper is asked, and runs on the disk before it is told") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  auto marker = daemon.state / "began";
  auto launching = environment->launch(command({"sh", "-c", "echo > $0; exec sleep 1000", marker}));
  {
    CommitsHeld held(eye);
    for (int i = 0; i < 20; ++i) {
      daemon.loop.timer.afterDelay(10 * kj::MILLISECONDS).wait(daemon.loop.waitScope);
      REQUIRE_FALSE(launching.poll(daemon.loop.waitScope));
    }
    CHECK(instances(daemon) == 0);
    // Nobody is told of a session that a crash would make unknown.
    CHECK(environment->status().sessions.size() == 0);
  }
  REQUIRE(daemon.becomesTrue([&]() { return eye.runs() != ""; }));
  // By now the helper may have been asked; its answer is noted before ours is given.
  {
    CommitsHeld held(eye);
    bool before = eye.runs() == "starting";
    for (int i = 0; i < 30; ++i)
      daemon.loop.timer.afterDelay(10 * kj::MILLISECONDS).wait(daemon.loop.waitScope);
    if (before) {
      CHECK(access(marker.cStr(), F_OK) == 0);
      CHECK(eye.runs() == "starting");
      CHECK_FALSE(launching.poll(daemon.loop.waitScope));
    }
  }
  auto session = daemon.wait(kj::mv(launching));
  REQUIRE(session.is<kj::Own<SessionActor>>());
  CHECK(eye.runs() == "running");
  CHECK(eye.sessions() == "running");
  CHECK(eye.running() == "running");
  CHECK(session.get<kj::Own<SessionActor>>()->state() == SessionState::RUNNING);
}

TEST_CASE("a run's end is on the disk before anybody is told of it") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  auto pid = session->status().pid;
  auto waiting = session->wait();
  {
    CommitsHeld held(eye);
    KJ_SYSCALL(kill(pid, SIGKILL));
    for (int i = 0; i < 30; ++i)
      daemon.loop.timer.afterDelay(10 * kj::MILLISECONDS).wait(daemon.loop.waitScope);
    CHECK(kill(pid, 0) < 0);
    CHECK_FALSE(waiting.poll(daemon.loop.waitScope));
    CHECK(session->state() == SessionState::RUNNING);
  }
  auto exit = daemon.wait(kj::mv(waiting));
  CHECK(exit.get<ExitStatus>().signal == "KILL");
  CHECK(eye.runs() == "ended:exited");
  CHECK(eye.sessions() == "exited");
  CHECK(eye.running() == "completed");
}

TEST_CASE("a failed launch leaves no rows, a session that was never started is stopped") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  refused(daemon, *environment, command({"/no/such/program"}));
  CHECK(eye.sessions() == "");
  CHECK(eye.runs() == "");
  CHECK(eye.running() == "");

  auto spec = command({"sleep", "1000"});
  spec.start = false;
  auto session = launched(daemon, *environment, kj::mv(spec));
  CHECK(eye.runs() == "starting");
  CHECK(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);
  CHECK(eye.runs() == "ended:stopped");
  CHECK(eye.environments() == "stopped");
  checkAgreement(eye, *environment);
}

TEST_CASE("the rows of an environment go with it") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  launched(daemon, *environment, command({"sleep", "1000"}));
  launched(daemon, *environment, command({"true"}));
  CHECK(eye.inventory() == "directory");
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(eye.everything() == "||||");
}

// ---- over a restart

TEST_CASE("a request id is remembered over a restart for a day, and no longer") {
  Daemon daemon;
  auto spec = command({"true"});
  spec.requestId = requestId('a');
  kj::String first;
  {
    auto environment = environmentOf(daemon, "t");
    auto session = launched(daemon, *environment, spec.clone());
    daemon.wait(session->wait());
    first = kj::str(session->id());
  }
  daemon.clock.by = 23 * kj::HOURS;
  daemon.restart();
  {
    auto environment = recovered(daemon, "t");
    CHECK(launched(daemon, *environment, spec.clone())->id() == first);
    auto other = command({"false"});
    other.requestId = requestId('a');
    auto problem = refused(daemon, *environment, kj::mv(other));
    CHECK(problem.code == ErrorCode::INVALID_ARGUMENT);
    CHECK(problem.field == "spec.requestId");
    CHECK(environment->status().sessions.size() == 1);
  }
  daemon.clock.by = 25 * kj::HOURS;
  daemon.restart();
  auto environment = recovered(daemon, "t");
  CHECK(launched(daemon, *environment, spec.clone())->id() != first);
  CHECK(environment->status().sessions.size() == 2);
}

TEST_CASE("a daemon that is killed leaves records from which the next one knows what was lost") {
  Daemon daemon;
  kj::String sessionId, environmentId;
  {
    auto environment = environmentOf(daemon, "t");
    sessionId = kj::str(launched(daemon, *environment, command({"sleep", "1000"}))->id());
    environmentId = kj::str(environment->id());
  }
  daemon.endAsIfKilled();
  Eye eye(daemon);
  CHECK(eye.environments() == "ready");
  CHECK(eye.runs() == "running");

  daemon.begin();
  auto environment = recovered(daemon, "t");
  CHECK(environment->id() == environmentId);
  REQUIRE(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::STOPPED; }));
  auto found = environment->findSession(sessionId);
  auto session = kj::mv(found.get<kj::Own<SessionActor>>());
  CHECK(session->state() == SessionState::LOST);
  CHECK(daemon.wait(session->wait()).get<Problem>().code == ErrorCode::INSTANCE_LOST);
  CHECK(eye.runs() == "ended:lost");
  checkAgreement(eye, *environment);

  // The place is used again.
  auto next = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(next->wait()).is<ExitStatus>());
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(eye.everything() == "||||");
}

TEST_CASE("a clean-up that was cut off is finished by the next daemon") {
  Daemon daemon;
  kj::String folder;
  {
    auto environment = environmentOf(daemon, "t");
    launched(daemon, *environment, command({"true"}));
    folder = daemon.environmentFolder(environment->id());
  }
  REQUIRE(access(folder.cStr(), F_OK) == 0);
  auto scope = "all"_kj;
  bool stays = false;
  SECTION("all") {}
  SECTION("compute only") {
    scope = "compute"_kj;
    stays = true;
  }
  daemon.endAsIfKilled();
  Eye eye(daemon);
  eye.change(kj::str("UPDATE environment SET state = 'cleaning', cleanup_scope = '", scope, "'"));
  daemon.begin();
  if (stays) {
    REQUIRE(daemon.becomesTrue(
        [&]() { return eye.rows("SELECT cleanup_scope FROM environment") == ""; }));
    CHECK(eye.environments() == "stopped");
    CHECK(eye.sessions() == "");
    CHECK(access(folder.cStr(), F_OK) == 0);
    auto environment = recovered(daemon, "t");
    REQUIRE(
        daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::STOPPED; }));
    launched(daemon, *environment, command({"true"}));
  } else {
    REQUIRE(daemon.becomesTrue([&]() { return eye.everything() == "||||"; }));
    CHECK(access(folder.cStr(), F_OK) < 0);
    CHECK(daemon.becomesTrue([&]() { return daemon.core().list(OWNER, "", 1).size() == 0; }));
  }
}

TEST_CASE("an environment whose runtime is not there any more is listed and kept") {
  Daemon daemon;
  {
    auto environment = environmentOf(daemon, "t");
    daemon.wait(launched(daemon, *environment, command({"true"}))->wait());
  }
  daemon.endOrderly();
  Eye eye(daemon);
  eye.change("UPDATE environment SET runtime = 'docker', executor_type = 'local_docker'");
  daemon.begin();
  auto environment = recovered(daemon, "t");
  CHECK(environment->status().runtime == "docker");

  auto problem = refused(daemon, *environment, command({"true"}));
  CHECK(problem.code == ErrorCode::RUNTIME_UNAVAILABLE);
  CHECK(problem.message == "runtime \"docker\" not available for executor type \"local_docker\"");
  CHECK(problem.hint ==
        "Runtime 'docker' is not available. Enable it in configuration or change the task's "
        "executor.");

  // What was made there cannot be removed from here, so nothing is forgotten.
  auto report = destroy(daemon, *environment);
  REQUIRE(report.leftovers.size() == 1);
  CHECK_FALSE(environment->isGone());
  CHECK(eye.inventory() == "directory");
  checkAgreement(eye, *environment);

  environment = nullptr;
  daemon.endOrderly();
  eye.change("DELETE FROM inventory");
  daemon.begin();
  environment = recovered(daemon, "t");
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(eye.everything() == "||||");
}

}  // namespace capstan::test
