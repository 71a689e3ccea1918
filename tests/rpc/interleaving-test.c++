// Clients that leave half way, repetitions, and ends that meet beginnings.
#include "agent-link/link.h"
#include "core/environment-actor.h"
#include "support/daemon.h"

#include <unistd.h>

namespace capstan::test {

namespace {

kj::Own<EnvironmentActor> environmentOf(Daemon& daemon, kj::StringPtr task) {
  EnvironmentSpec spec;
  spec.taskId = kj::str(task);
  auto ensured = daemon.wait(daemon.core().ensure(kj::str("uid:4711"), kj::mv(spec)));
  REQUIRE(ensured.is<Supervisor::Ensured>());
  return kj::mv(ensured.get<Supervisor::Ensured>().environment);
}

LaunchSpec command(std::initializer_list<kj::StringPtr> words) {
  LaunchSpec spec;
  spec.command = KJ_MAP(word, words) { return kj::str(word); };
  return spec;
}

kj::Array<kj::byte> requestId(char c) {
  auto id = kj::heapArray<kj::byte>(REQUEST_ID_BYTES);
  memset(id.begin(), c, id.size());
  return id;
}

// Waits until the environment is up; its helper runs then.
void bringUp(Daemon& daemon, EnvironmentActor& environment) {
  REQUIRE(daemon.becomesTrue([&]() { return environment.state() == EnvironmentState::READY; }));
}

kj::Own<SessionActor> launched(Daemon& daemon, EnvironmentActor& environment, LaunchSpec spec) {
  auto result = daemon.wait(environment.launch(kj::mv(spec)));
  if (result.is<Problem>()) FAIL(kj::str(result.get<Problem>()).cStr());
  return kj::mv(result.get<kj::Own<SessionActor>>());
}

// The helper's entries that are not ended and acknowledged; needs a helper that is up.
size_t instances(Daemon& daemon) {
  auto links = daemon.core().helperLinks().live();
  REQUIRE(links.size() == 1);
  auto listed = daemon.wait(links[0]->list());
  return listed.get<kj::Array<InstanceReport>>().size();
}

}  // namespace

TEST_CASE("a launch with the same request id gives the same session") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto spec = command({"sleep", "1000"});
  spec.requestId = requestId('a');

  // Both at once, while the environment comes up, and one later.
  auto first = environment->launch(spec.clone());
  auto second = environment->launch(spec.clone());
  auto one = daemon.wait(kj::mv(first));
  auto two = daemon.wait(kj::mv(second));
  auto three = launched(daemon, *environment, spec.clone());
  auto& session = one.get<kj::Own<SessionActor>>();
  CHECK(two.get<kj::Own<SessionActor>>().get() == session.get());
  CHECK(three.get() == session.get());
  CHECK(environment->status().sessions.size() == 1);

  auto other = command({"sleep", "1"});
  other.requestId = requestId('a');
  auto refused = daemon.wait(environment->launch(kj::mv(other)));
  CHECK(refused.get<Problem>().code == ErrorCode::INVALID_ARGUMENT);
  CHECK(refused.get<Problem>().field == "spec.requestId");

  auto short_ = command({"true"});
  short_.requestId = kj::heapArray<kj::byte>(3);
  auto wrong = daemon.wait(environment->launch(kj::mv(short_)));
  CHECK(wrong.get<Problem>().field == "spec.requestId");

  auto next = command({"sleep", "1000"});
  next.requestId = requestId('b');
  CHECK(launched(daemon, *environment, kj::mv(next)).get() != session.get());
}

TEST_CASE("a failed launch is not remembered, and one caller's leaving cancels nobody else's") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto failing = command({"/no/such/program"});
  failing.requestId = requestId('a');
  CHECK(daemon.wait(environment->launch(failing.clone())).is<Problem>());
  auto spec = command({"true"});
  spec.requestId = requestId('a');
  launched(daemon, *environment, kj::mv(spec));

  auto shared = command({"sleep", "1000"});
  shared.requestId = requestId('b');
  auto leaves = environment->launch(shared.clone());
  auto stays = environment->launch(shared.clone());
  {
    auto gone = kj::mv(leaves);
  }
  CHECK(daemon.wait(kj::mv(stays)).is<kj::Own<SessionActor>>());
}

TEST_CASE("a launch that is dropped leaves no session and no instance") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  // Dropped at every stage of the way.
  for (int turns = 0; turns < 40; ++turns) {
    auto launching = environment->launch(command({"sleep", "1000"}));
    for (int i = 0; i < turns && !launching.poll(daemon.loop.waitScope); ++i) {
    }
  }
  auto done = [&]() {
    auto grace = 0 * kj::SECONDS;
    if (environment->status().sessions.size() == 0) return !environment->isBusy();
    daemon.wait(environment->stop(grace, StopMode::FORCED));
    return !environment->isBusy();
  };
  REQUIRE(daemon.becomesTrue(done));
  CHECK(instances(daemon) == environment->status().sessions.size());
}

TEST_CASE("an exec that is dropped on its way leaves no instance") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  for (int turns = 0; turns < 40; ++turns) {
    auto making = environment->exec(command({"sleep", "1000"}));
    for (int i = 0; i < turns && !making.poll(daemon.loop.waitScope); ++i) {
    }
  }
  REQUIRE(daemon.becomesTrue([&]() { return !environment->isBusy() && instances(daemon) == 0; }));
}

TEST_CASE("an exec whose start is cut off ends all the same") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  auto made = daemon.wait(environment->exec(command({"sleep", "1000"})));
  auto exec = kj::mv(made.get<kj::Own<ExecProcess>>());
  {
    auto starting = exec->process().start();
    starting.poll(daemon.loop.waitScope);
  }
  exec = nullptr;
  CHECK(daemon.becomesTrue([&]() { return instances(daemon) == 0; }));
}

TEST_CASE("a session's start goes on when its caller leaves") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto spec = command({"sleep", "1000"});
  spec.start = false;
  auto session = launched(daemon, *environment, kj::mv(spec));
  {
    auto starting = environment->startSession(kj::addRef(*session));
    starting.poll(daemon.loop.waitScope);
  }
  REQUIRE(daemon.becomesTrue([&]() { return session->state() == SessionState::RUNNING; }));
  CHECK(session->status().pid > 0);
}

TEST_CASE("a session that was stopped before its start is discarded with its instance") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto spec = command({"sleep", "1000"});
  spec.start = false;
  auto session = launched(daemon, *environment, kj::mv(spec));
  CHECK(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);
  CHECK(session->state() == SessionState::STOPPED);
  CHECK(daemon.wait(environment->startSession(kj::addRef(*session))) != nullptr);
  auto report = daemon.wait(daemon.core().cleanUp(kj::addRef(*environment), CleanupScope::ALL));
  CHECK(report.leftovers.size() == 0);
  CHECK(instances(daemon) == 0);
}

TEST_CASE("a stop in a bring-up cancels what came before it and nothing after it") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto before = environment->launch(command({"sleep", "1000"}));
  REQUIRE_FALSE(before.poll(daemon.loop.waitScope));
  REQUIRE(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);
  REQUIRE(environment->state() == EnvironmentState::STOPPED);
  auto after = environment->launch(command({"sleep", "1000"}));

  auto refused = daemon.wait(kj::mv(before));
  CHECK(refused.is<Problem>());
  CHECK(daemon.wait(kj::mv(after)).is<kj::Own<SessionActor>>());
  CHECK(environment->status().sessions.size() == 1);
}

TEST_CASE("a clean-up in a bring-up leaves no folder behind") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto launching = environment->launch(command({"sleep", "1000"}));
  auto exec = environment->exec(command({"sleep", "1000"}));
  auto report = daemon.wait(daemon.core().cleanUp(kj::addRef(*environment), CleanupScope::ALL));
  CHECK(report.leftovers.size() == 0);
  CHECK(environment->isGone());
  CHECK(daemon.wait(kj::mv(launching)).is<Problem>());
  CHECK(daemon.wait(kj::mv(exec)).is<Problem>());
  CHECK(access(daemon.environmentFolder(environment->id()).cStr(), F_OK) < 0);
}

TEST_CASE("an exec on its way does not survive a stop") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  auto making = environment->exec(command({"sleep", "1000"}));
  REQUIRE(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);
  CHECK(daemon.wait(kj::mv(making)).is<Problem>());
  CHECK(daemon.becomesTrue([&]() { return instances(daemon) == 0; }));
}

TEST_CASE("an exec whose client stays does not spoil later stops") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto made = daemon.wait(environment->exec(command({"sleep", "1000"})));
  auto& exec = made.get<kj::Own<ExecProcess>>();
  REQUIRE(daemon.wait(exec->process().start()) == nullptr);
  CHECK(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);
  CHECK(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);
}

TEST_CASE("a bring-up that outlasts the deadline is still preparing") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto spec = command({"true"});
  spec.deadline = 0 * kj::SECONDS;
  auto late = daemon.wait(environment->launch(kj::mv(spec)));
  REQUIRE(late.is<Problem>());
  CHECK(late.get<Problem>().code == ErrorCode::ENVIRONMENT_PREPARING);
  CHECK(late.get<Problem>().retry == RetryHint::SAME_REQUEST_LATER);
}

TEST_CASE("a daemon that ends takes nothing new") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  auto closing = daemon.core().close();
  auto refused = daemon.wait(environment->launch(command({"true"})));
  CHECK(refused.get<Problem>().code == ErrorCode::SHUTTING_DOWN);
  EnvironmentSpec spec;
  spec.taskId = kj::str("t2");
  auto ensured = daemon.wait(daemon.core().ensure(kj::str("uid:4711"), kj::mv(spec)));
  CHECK(ensured.get<Problem>().code == ErrorCode::SHUTTING_DOWN);
  daemon.wait(kj::mv(closing));
}

TEST_CASE("more runs than a stranger may have calls are all watched") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  bringUp(daemon, *environment);
  constexpr size_t RUNS = 280;  // Above RpcLimits::overloadAbove.
  kj::Vector<kj::Promise<void>> launches;
  size_t refused = 0;
  for (size_t i = 0; i < RUNS; ++i) {
    launches.add(environment->launch(command({"sleep", "1000"})).then([&](auto&& result) {
      if (result.template is<Problem>()) ++refused;
    }));
  }
  daemon.wait(kj::joinPromises(launches.releaseAsArray()));
  CHECK(refused == 0);
  auto status = daemon.wait(environment->statusWithReports());
  REQUIRE(status.sessions.size() == RUNS);
  size_t running = 0;
  for (auto& session: status.sessions)
    if (session.state == SessionState::RUNNING) ++running;
  CHECK(running == RUNS);
  CHECK(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::FORCED)) == nullptr);
}

}  // namespace capstan::test
