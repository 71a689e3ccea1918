// A daemon that meets the helper of an earlier one, or loses sight of its own.
#include "records-fixture.h"

#include <csignal>

namespace capstan::test {

TEST_CASE("a session is taken back running, is stopped then, and its folder goes with a destroy") {
  Daemon daemon;
  int pid = 0;
  {
    auto environment = environmentOf(daemon, "t");
    auto session = launched(daemon, *environment, command({"sleep", "1000"}));
    pid = session->status().pid;
  }
  daemon.endOrderly();
  REQUIRE(kill(pid, 0) == 0);
  daemon.begin();
  // A stop that comes before it is known what runs waits for that, and then ends it.
  auto found = daemon.core().find(OWNER, "t");
  REQUIRE(found.is<kj::Own<EnvironmentActor>>());
  auto environment = kj::mv(found.get<kj::Own<EnvironmentActor>>());
  auto early = environment->launch(command({"true"}));
  auto stopped = daemon.wait(environment->stop(2 * kj::SECONDS, StopMode::FORCED));
  if (stopped != nullptr) FAIL(kj::str(KJ_ASSERT_NONNULL(stopped)).cStr());
  CHECK(kill(pid, 0) < 0);
  CHECK(daemon.wait(kj::mv(early)).is<Problem>());
  auto status = environment->status();
  REQUIRE(status.sessions.size() == 1);
  CHECK(status.sessions[0].state == SessionState::STOPPED);
  CHECK(status.state == EnvironmentState::STOPPED);
  auto folder = daemon.environmentFolder(environment->id());
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(access(folder.cStr(), F_OK) < 0);
}

TEST_CASE("a destroy right after a start ends what runs before it removes anything") {
  Daemon daemon;
  int pid = 0;
  {
    auto environment = environmentOf(daemon, "t");
    pid = launched(daemon, *environment, command({"sleep", "1000"}))->status().pid;
  }
  daemon.endOrderly();
  daemon.begin();
  auto found = daemon.core().find(OWNER, "t");
  auto environment = kj::mv(found.get<kj::Own<EnvironmentActor>>());
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(kill(pid, 0) < 0);
  CHECK(environment->isGone());
}

TEST_CASE("a helper that is killed ends its sessions as lost, and the next launch works") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto session = launched(daemon, *environment, command({"sleep", "1000"}));
  for (auto pid: daemon.helperPids())
    kill(pid, SIGKILL);
  auto ended = daemon.wait(session->wait());
  REQUIRE(ended.is<Problem>());
  CHECK(ended.get<Problem>().code == ErrorCode::INSTANCE_LOST);
  CHECK(session->state() == SessionState::LOST);
  REQUIRE(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::LOST; }));
  auto next = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(next->wait()).is<ExitStatus>());
}

TEST_CASE("a stop or destroy whose helper is killed under it comes to its end") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto deaf = launched(daemon, *environment,
                       command({"sh", "-c", "trap '' TERM; touch deaf; sleep 1000 & wait; wait"}));
  auto mark = kj::str(environment->status().workspace, "/deaf");
  REQUIRE(daemon.becomesTrue([&]() { return access(mark.cStr(), F_OK) == 0; }));
  auto helpers = daemon.helperPids();
  SECTION("stop") {
    auto stopping = environment->stop(20 * kj::SECONDS, StopMode::GRACEFUL);
    REQUIRE(
        daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::STOPPING; }));
    for (auto pid: helpers)
      kill(pid, SIGKILL);
    CHECK(daemon.wait(kj::mv(stopping)) == nullptr);
    CHECK(environment->state() == EnvironmentState::STOPPED);
  }
  SECTION("destroy") {
    auto cleaning = daemon.core().cleanUp(kj::addRef(*environment), CleanupScope::ALL);
    REQUIRE(
        daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::CLEANING; }));
    for (auto pid: helpers)
      kill(pid, SIGKILL);
    CHECK(daemon.wait(kj::mv(cleaning)).leftovers.size() == 0);
    CHECK(environment->isGone());
  }
  CHECK(deaf->state() == SessionState::LOST);
}

TEST_CASE(
    "a destroy while launches are on their way, and the daemon's end after it, come to an end") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  kj::Vector<kj::Promise<void>> launches;
  for (int i = 0; i < 8; ++i)
    launches.add(environment->launch(command({"true"})).ignoreResult());
  auto destroying = daemon.core().cleanUp(kj::addRef(*environment), CleanupScope::ALL);
  auto closing = daemon.core().close();
  CHECK(daemon.wait(kj::mv(destroying)).leftovers.size() == 0);
  daemon.wait(kj::mv(closing));
  daemon.wait(kj::joinPromises(launches.releaseAsArray()));
}

TEST_CASE("an exec that was not run may be asked for again with its request id") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto request = command({"true"});
  request.wait = false;
  request.requestId = kj::heapArray<kj::byte>(REQUEST_ID_BYTES);
  memset(request.requestId.begin(), 7, REQUEST_ID_BYTES);
  auto first = daemon.wait(environment->exec(request.clone()));
  if (first.is<Problem>()) CHECK(first.get<Problem>().code == ErrorCode::ENVIRONMENT_PREPARING);
  bringUp(daemon, *environment);
  if (first.is<Problem>()) {
    auto second = daemon.wait(environment->exec(request.clone()));
    if (second.is<Problem>()) FAIL(kj::str(second.get<Problem>()).cStr());
  }
  auto third = daemon.wait(environment->exec(request.clone()));
  REQUIRE(third.is<Problem>());
  CHECK(third.get<Problem>().code == ErrorCode::ALREADY_EXISTS);
}

}  // namespace capstan::test
