// Sessions that are resumed while something else happens to them.
#include "rpc/resume-fixture.h"
#include "support/fake-runtimes.h"

namespace capstan::test {

TEST_CASE("resume: a call that is dropped at any wait leaves a session that can be resumed") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  for (int turns = 0; turns < 40; ++turns) {
    CHECK(daemon.wait(environment->stopSession(kj::addRef(*session), 0 * kj::SECONDS,
                                               StopMode::FORCED)) == nullptr);
    {
      auto resuming = environment->resume(kj::addRef(*session), again());
      for (int i = 0; i < turns && !resuming.poll(daemon.loop.waitScope); ++i) {
      }
    }
    // What it began ends, or runs; both may be resumed.
    resumed(daemon, *environment, *session);
    CHECK(session->state() == SessionState::RUNNING);
  }
  CHECK(instances(daemon) >= 1);
  CHECK(eye.rows("SELECT id FROM run WHERE state <> 'ended'") == session->runId());
}

TEST_CASE("resume: a stop that comes meanwhile has the last word") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  for (int turns = 0; turns < 30; ++turns) {
    auto grace = 0 * kj::SECONDS;
    CHECK(daemon.wait(environment->stopSession(kj::addRef(*session), grace, StopMode::FORCED)) ==
          nullptr);
    auto resuming = environment->resume(kj::addRef(*session), again());
    for (int i = 0; i < turns && !resuming.poll(daemon.loop.waitScope); ++i) {
    }
    auto stopping = environment->stopSession(kj::addRef(*session), grace, StopMode::FORCED);
    daemon.wait(resuming.ignoreResult());
    CHECK(daemon.wait(kj::mv(stopping)) == nullptr);
    CHECK_FALSE(session->isLive());
  }
}

TEST_CASE("resume: a clean-up that comes meanwhile leaves nothing") {
  Daemon daemon;
  Eye eye(daemon);
  for (int turns = 0; turns < 12; ++turns) {
    auto environment = environmentOf(daemon, "t");
    auto session = launched(daemon, *environment, command({"true"}));
    CHECK(daemon.wait(session->wait()).is<ExitStatus>());
    auto resuming = environment->resume(kj::addRef(*session), again());
    for (int i = 0; i < 3 * turns && !resuming.poll(daemon.loop.waitScope); ++i) {
    }
    CHECK(kj::strArray(destroy(daemon, *environment).leftovers, "; ") == "");
    daemon.wait(resuming.ignoreResult());
    CHECK(eye.everything() == "||||");
    CHECK(notResumed(daemon, *environment, *session).code == ErrorCode::NOT_FOUND);
  }
}

TEST_CASE("resume: a link that breaks at any wait leaves nobody waiting") {
  DockerDaemon docker(Limits(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  Eye eye(daemon);
  auto environment = onDocker(daemon);
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  for (int turns = 0; turns < 60; ++turns) {
    INFO("after " << turns << " turns");
    auto stop = [&]() {
      return daemon.wait(
          environment->stopSession(kj::addRef(*session), 0 * kj::SECONDS, StopMode::FORCED));
    };
    CHECK(daemon.becomesTrue([&]() { return stop() == nullptr; }));
    auto resuming = environment->resume(kj::addRef(*session), again());
    for (int i = 0; i < turns && !resuming.poll(daemon.loop.waitScope); ++i) {
    }
    docker.world().cut(environment->id());
    daemon.wait(kj::mv(resuming)).is<Problem>();
    REQUIRE(
        daemon.becomesTrue([&]() { return environment->state() != EnvironmentState::RECOVERING; }));
  }
  resumed(daemon, *environment, *session);
  CHECK(eye.rows("SELECT id FROM run WHERE state <> 'ended'") == session->runId());
  CHECK(kj::strArray(destroy(daemon, *environment).leftovers, "; ") == "");
}

TEST_CASE("resume: a stop while the place is looked at leaves no compute running") {
  DockerDaemon docker(Limits(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  auto environment = onDocker(daemon);
  auto session = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  auto runs = [&]() {
    return KJ_ASSERT_NONNULL(docker.world().thingOf(environment->id(), fake_kind::COMPUTE)).running;
  };
  docker.controls().setDelay("resume", 300 * kj::MILLISECONDS);
  auto resuming = environment->resume(kj::addRef(*session), again());
  REQUIRE(daemon.becomesTrue([&]() {
    resuming.poll(daemon.loop.waitScope);
    return docker.controls().count("resume") == 1;
  }));
  CHECK(daemon.wait(environment->stop(0 * kj::SECONDS, StopMode::FORCED)) == nullptr);
  CHECK_FALSE(runs());
  auto result = daemon.wait(kj::mv(resuming));
  REQUIRE(result.is<Problem>());
  CHECK(result.get<Problem>().code == ErrorCode::CANCELLED);
  CHECK(environment->state() == EnvironmentState::STOPPED);
  CHECK_FALSE(runs());
}

TEST_CASE("resume: a look at the place that never ends holds up no removal") {
  DockerDaemon docker(Limits(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  auto environment = onDocker(daemon);
  auto session = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  FakeFault fault;
  fault.how = FakeFault::How::HANGS;
  docker.controls().addFault("resume", kj::mv(fault));
  auto resuming = environment->resume(kj::addRef(*session), again());
  REQUIRE(daemon.becomesTrue([&]() {
    resuming.poll(daemon.loop.waitScope);
    return docker.controls().count("resume") == 1;
  }));
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  auto result = daemon.wait(kj::mv(resuming));
  REQUIRE(result.is<Problem>());
}

TEST_CASE("resume: a request that failed fails again, and another one works") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  auto wrong = asked('a');
  wrong.resumeCommand = kj::arr(kj::str("no-such-program"));
  auto first = notResumed(daemon, *environment, *session, wrong.clone());
  auto second = notResumed(daemon, *environment, *session, kj::mv(wrong));
  CHECK(second.code == first.code);
  CHECK(second.message == first.message);
  CHECK(second.retry == RetryHint::NEVER);
  CHECK(eye.runs() == "ended:exited ended:failed");
  auto right = asked('b');
  right.resumeCommand = kj::arr(kj::str("true"));
  auto run = resumed(daemon, *environment, *session, kj::mv(right));
  CHECK(daemon.wait(run->wait()).is<ExitStatus>());
}

TEST_CASE("resume: who asks while another is being started gets what becomes of it") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(session->wait()).is<ExitStatus>());
  for (int turns = 0; turns < 40; ++turns) {
    LaunchSpec wrong;
    wrong.resumeCommand = kj::arr(kj::str("no-such-program"));
    auto one = environment->resume(kj::addRef(*session), kj::mv(wrong));
    for (int i = 0; i < turns && !one.poll(daemon.loop.waitScope); ++i) {
    }
    auto two = environment->resume(kj::addRef(*session), again());
    CHECK(daemon.wait(kj::mv(one)).is<Problem>());
    CHECK(daemon.wait(kj::mv(two)).is<Problem>());
  }
}

}  // namespace capstan::test
