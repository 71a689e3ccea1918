// A store that takes no writes: told, without a difference between memory and disk afterwards.
#include "records-fixture.h"

#include <csignal>
#include <unistd.h>

namespace capstan::test {

TEST_CASE("ensure says that the store fails, makes nothing, and works again afterwards") {
  Daemon daemon;
  Eye eye(daemon);
  setReadOnly(daemon, true);
  auto ensured = daemon.wait(daemon.core().ensure(kj::str(OWNER), task("t")));
  REQUIRE(ensured.is<Problem>());
  CHECK(kj::str(ensured.get<Problem>()).startsWith("cannot write the state store"));
  CHECK(daemon.core().list(OWNER, "", 10).size() == 0);
  CHECK(eye.everything() == "||||");
  setReadOnly(daemon, false);
  launched(daemon, *environmentOf(daemon, "t"), command({"true"}));
}

TEST_CASE("a launch that cannot be noted starts nothing") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  setReadOnly(daemon, true);
  auto problem = refused(daemon, *environment, command({"sleep", "1000"}));
  CHECK(kj::str(problem).startsWith("cannot write the state store"));
  CHECK(instances(daemon) == 0);
  CHECK(environment->status().sessions.size() == 0);
  setReadOnly(daemon, false);
  checkAgreement(eye, *environment);
  CHECK(eye.runs() == "");
  launched(daemon, *environment, command({"true"}));
}

TEST_CASE("a launch whose start cannot be noted is ended again") {
  LogWatch log;
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto spec = command({"sleep", "1000"});
  spec.start = false;
  auto session = launched(daemon, *environment, kj::mv(spec));
  log.expect("cannot write down how a run ended");
  setReadOnly(daemon, true);
  auto started = daemon.wait(environment->startSession(kj::addRef(*session)));
  REQUIRE(started != nullptr);
  CHECK(kj::str(KJ_ASSERT_NONNULL(started)).startsWith("cannot write the state store"));
  CHECK(instances(daemon) == 0);
  CHECK(session->state() == SessionState::FAILED);
  CHECK(eye.runs() == "starting");
  setReadOnly(daemon, false);
  CHECK(daemon.becomesTrue([&]() { return eye.runs() == "ended:failed"; }));
  checkAgreement(eye, *environment);
}

TEST_CASE("a run's end is told although it cannot be written down, and is written down later") {
  LogWatch log;
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  auto waiting = session->wait();
  log.expect("cannot write down how a run ended");
  setReadOnly(daemon, true);
  KJ_SYSCALL(kill(session->status().pid, SIGKILL));
  CHECK(daemon.wait(kj::mv(waiting)).get<ExitStatus>().signal == "KILL");
  CHECK(session->state() == SessionState::EXITED);
  CHECK(eye.runs() == "running");
  SECTION("while this daemon lives") {
    setReadOnly(daemon, false);
    CHECK(daemon.becomesTrue([&]() { return eye.runs() == "ended:exited"; }));
    checkAgreement(eye, *environment);
  }
  SECTION("or the next one notes that nobody saw it") {
    session = nullptr;
    environment = nullptr;
    daemon.endAsIfKilled();
    daemon.begin();
    environment = recovered(daemon, "t");
    CHECK(daemon.becomesTrue([&]() { return eye.runs() == "ended:lost"; }));
    CHECK(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::STOPPED; }));
    checkAgreement(eye, *environment);
  }
}

TEST_CASE("a stop ends the processes although it cannot be written down, and says so") {
  LogWatch log;
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  auto pid = session->status().pid;
  log.expect("cannot write down how a run ended");
  log.expect("cannot write down how an environment stands");
  setReadOnly(daemon, true);
  auto outcome = daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::FORCED));
  REQUIRE(outcome != nullptr);
  CHECK(kj::str(KJ_ASSERT_NONNULL(outcome)).startsWith("cannot write the state store"));
  CHECK(kill(pid, 0) < 0);
  setReadOnly(daemon, false);
  CHECK(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::FORCED)) == nullptr);
  CHECK(daemon.becomesTrue([&]() { return eye.runs() == "ended:stopped"; }));
  CHECK(eye.environments() == "stopped");
  checkAgreement(eye, *environment);
}

TEST_CASE("a destroy that cannot be noted removes nothing, and works later") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  auto folder = daemon.environmentFolder(environment->id());
  setReadOnly(daemon, true);
  auto report = destroy(daemon, *environment);
  REQUIRE(report.leftovers.size() == 1);
  CHECK(report.leftovers[0].startsWith(
      "everything: the clean-up could not be noted: cannot write the "
      "state store"));
  CHECK_FALSE(environment->isGone());
  CHECK(access(folder.cStr(), F_OK) == 0);
  CHECK(eye.environments() == "ready");
  setReadOnly(daemon, false);
  SECTION("by the same daemon") {}
  SECTION("by the next one") {
    environment = nullptr;
    daemon.endAsIfKilled();
    daemon.begin();
    environment = recovered(daemon, "t");
  }
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(access(folder.cStr(), F_OK) < 0);
  CHECK(eye.everything() == "||||");
}

TEST_CASE("a destroy whose store fails half way is finished by the next daemon") {
  LogWatch log;
  Daemon daemon;
  Eye eye(daemon);
  kj::String folder;
  {
    auto environment = environmentOf(daemon, "t");
    launched(daemon, *environment,
             command({"sh", "-c", "trap '' TERM; touch deaf; sleep 1000 & wait; wait"}));
    folder = daemon.environmentFolder(environment->id());
    auto deaf = kj::str(folder, "/workspace/deaf");
    REQUIRE(daemon.becomesTrue([&]() { return access(deaf.cStr(), F_OK) == 0; }));
    // Its note is written while it waits for the process to end; nothing is from there on.
    auto cleaning = daemon.core().cleanUp(kj::addRef(*environment), CleanupScope::ALL);
    REQUIRE(daemon.becomesTrue([&]() { return eye.environments() == "cleaning"; }));
    log.expect("cannot write down how a run ended");
    log.expect("cannot write down how a clean-up ended");
    setReadOnly(daemon, true);
    auto report = daemon.wait(kj::mv(cleaning));
    CHECK(report.leftovers.size() > 0);
    CHECK_FALSE(environment->isGone());
  }
  daemon.endAsIfKilled();
  CHECK(eye.environments() == "cleaning");
  daemon.begin();
  CHECK(daemon.becomesTrue([&]() { return eye.everything() == "||||"; }));
  CHECK(access(folder.cStr(), F_OK) < 0);
}

}  // namespace capstan::test
