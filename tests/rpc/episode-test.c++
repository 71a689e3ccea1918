// What is told of environments whose compute was lost or could not be reached: health, episodes and
// looks that only read.
#include "rpc/resume-fixture.h"
#include "support/fake-runtimes.h"

#include <csignal>
#include <cstdio>
#include <string>
#include <unistd.h>

namespace capstan::test {

namespace {

Limits impatient() {
  Limits limits;
  limits.deadlines.lossGrace = 200 * kj::MILLISECONDS;
  limits.deadlines.inspection = 1 * kj::SECONDS;
  return limits;
}

void killHelpers(Daemon& daemon) {
  for (auto pid: daemon.helperPids())
    kill(pid, SIGKILL);
}

// "outcome affected blockers goes-on|over", one an episode.
kj::String told(const EnvironmentActor& environment) {
  kj::Vector<kj::String> parts;
  auto status = environment.status();
  for (auto& each: status.episodes) {
    parts.add(kj::str(episodeOutcomeName(each.outcome), " ", each.affected.size(), " ",
                      each.blockers.size(), " ", each.endedAt == 0 ? "goes-on" : "over"));
  }
  return kj::strArray(parts, ", ");
}

// Executor, workspace, conversation.
kj::String healthOf(const EnvironmentActor& environment) {
  constexpr kj::StringPtr AXES[] = {"unknown"_kj, "available"_kj, "retained"_kj, "unavailable"_kj};
  constexpr kj::StringPtr TALKS[] = {"unknown"_kj, "restored"_kj, "fresh"_kj, "unavailable"_kj};
  auto health = environment.status().health;
  return kj::str(AXES[static_cast<size_t>(health.executor)], " ",
                 AXES[static_cast<size_t>(health.workspace)], " ",
                 TALKS[static_cast<size_t>(health.conversation)]);
}

void recheck(Daemon& daemon, EnvironmentActor& environment) {
  auto outcome = daemon.wait(daemon.core().recheck(kj::addRef(environment)));
  if (outcome != nullptr) FAIL(kj::str(KJ_ASSERT_NONNULL(outcome)).cStr());
}

kj::String rows(Eye& eye) {
  return eye.rows("SELECT outcome || ':' || (ended_ms > 0) FROM episode ORDER BY started_ms, id");
}

kj::Own<SessionActor> sleeper(Daemon& daemon, EnvironmentActor& environment) {
  return launched(daemon, environment, command({"sleep", "1000"}));
}

}  // namespace

TEST_CASE("episode: a helper that ends is one, with the sessions it took along") {
  Daemon daemon;
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  auto first = sleeper(daemon, *environment);
  auto second = sleeper(daemon, *environment);
  auto ended = launched(daemon, *environment, command({"true"}));
  CHECK(daemon.wait(ended->wait()).is<ExitStatus>());
  CHECK(told(*environment) == "");
  CHECK(healthOf(*environment) == "available retained fresh");
  killHelpers(daemon);
  REQUIRE(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::LOST; }));
  CHECK(told(*environment) == "terminated 2 0 goes-on");
  CHECK(rows(eye) == "terminated:0");
  CHECK(healthOf(*environment) == "unavailable retained unavailable");
  auto status = environment->status();
  CHECK(status.episodes[0].generation.size() > 0);
  for (auto& each: status.episodes[0].affected)
    CHECK((each == first->id() || each == second->id()));
  // To look again says nothing new, and starts nothing.
  recheck(daemon, *environment);
  CHECK(daemon.helperPids().size() == 0);
  CHECK(told(*environment) == "terminated 2 0 goes-on");
  // A daemon later it is the same one.
  first = nullptr;
  second = nullptr;
  ended = nullptr;
  environment = nullptr;
  daemon.restart();
  environment = recovered(daemon, "t");
  CHECK(told(*environment) == "terminated 2 0 goes-on");
  // The next compute ends it; it stays as history.
  auto third = sleeper(daemon, *environment);
  CHECK(told(*environment) == "terminated 2 0 over");
  CHECK(rows(eye) == "terminated:1");
  CHECK(healthOf(*environment) == "available retained unavailable");
  killHelpers(daemon);
  REQUIRE(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::LOST; }));
  CHECK(told(*environment) == "terminated 2 0 over, terminated 1 0 goes-on");
  CHECK(destroy(daemon, *environment).leftovers.size() == 0);
  CHECK(rows(eye) == "");
}

TEST_CASE("episode: what was planned is none") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto session = sleeper(daemon, *environment);
  CHECK(daemon.wait(environment->stop(1 * kj::SECONDS, StopMode::GRACEFUL)) == nullptr);
  session = nullptr;
  environment = nullptr;
  daemon.restart();
  environment = recovered(daemon, "t");
  session = sleeper(daemon, *environment);
  session = nullptr;
  environment = nullptr;
  daemon.restart();
  environment = recovered(daemon, "t");
  CHECK(told(*environment) == "");
  CHECK(environment->state() == EnvironmentState::READY);
  // The process that went on without a daemon has its conversation; the other was stopped.
  CHECK(healthOf(*environment) == "available retained unknown");
}

TEST_CASE("episode: the loss of both the daemon and its helper is told of by the next daemon") {
  Daemon daemon;
  Eye eye(daemon);
  {
    auto environment = environmentOf(daemon, "t");
    sleeper(daemon, *environment);
    auto idle = environmentOf(daemon, "u");
    bringUp(daemon, *idle);
  }
  daemon.endAsIfKilled();
  daemon.begin();
  auto environment = recovered(daemon, "t");
  CHECK(told(*environment) == "terminated 1 0 goes-on");
  CHECK(healthOf(*environment) == "unavailable retained unavailable");
  // Where nothing ran nothing was lost.
  CHECK(told(*recovered(daemon, "u")) == "");
  // Two more restarts make no second one of it.
  environment = nullptr;
  daemon.restart();
  daemon.restart();
  environment = recovered(daemon, "t");
  CHECK(told(*environment) == "terminated 1 0 goes-on");
  CHECK(rows(eye) == "terminated:0");
}

TEST_CASE(
    "episode: a workspace that is gone is seen, also by a look, and seen again when it is back") {
  Daemon daemon;
  auto environment = environmentOf(daemon, "t");
  auto session = sleeper(daemon, *environment);
  auto workspace = kj::str(environment->status().workspace);
  auto aside = kj::str(workspace, "-aside");
  REQUIRE(rename(workspace.cStr(), aside.cStr()) == 0);
  recheck(daemon, *environment);
  CHECK(healthOf(*environment) == "available unavailable fresh");
  CHECK(told(*environment) == "missing 0 0 goes-on");
  CHECK(access(workspace.cStr(), F_OK) != 0);
  // Nothing private in what is kept.
  auto status = environment->status();
  CHECK(status.episodes[0].cause.code == ErrorCode::WORKSPACE_LOST);
  for (auto& each: status.episodes)
    CHECK(std::string(each.cause.message.cStr()).find(workspace.cStr()) == std::string::npos);
  CHECK(daemon.wait(session->stop(0 * kj::SECONDS, StopMode::FORCED)) == nullptr);
  CHECK(notResumed(daemon, *environment, *session).code == ErrorCode::WORKSPACE_LOST);
  CHECK(healthOf(*environment) == "available unavailable fresh");
  REQUIRE(rename(aside.cStr(), workspace.cStr()) == 0);
  recheck(daemon, *environment);
  CHECK(told(*environment) == "missing 0 0 over");
  CHECK(healthOf(*environment) == "available retained fresh");
}

TEST_CASE(
    "episode: out of reach for a moment is none; for longer it is unknown until it is known") {
  DockerDaemon docker(impatient(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  Eye eye(daemon);
  auto environment = onDocker(daemon);
  auto session = sleeper(daemon, *environment);
  auto id = kj::str(environment->id());
  docker.world().setReachable(id, false);
  REQUIRE(daemon.becomesTrue([&]() { return told(*environment).size() > 0; }));
  CHECK(told(*environment).startsWith("unknown 0 "));
  // Its volume can be seen, whatever is with its helper.
  CHECK(healthOf(*environment) == "unknown retained fresh");
  recheck(daemon, *environment);
  CHECK(told(*environment).endsWith("goes-on"));
  CHECK(session->isLive());
  docker.world().setReachable(id, true);
  REQUIRE(daemon.becomesTrue([&]() { return environment->state() == EnvironmentState::READY; }));
  CHECK(told(*environment).startsWith("healthy 0 "));
  CHECK(told(*environment).endsWith("over"));
  CHECK(rows(eye) == "healthy:1");
  CHECK(healthOf(*environment) == "available retained restored");
}

TEST_CASE("episode: a look that cannot tell says unknown, and ends in time") {
  DockerDaemon docker(impatient(), LocalHelpers::Sharing::ONE_EACH);
  auto& daemon = docker.daemon;
  auto environment = onDocker(daemon);
  auto session = sleeper(daemon, *environment);
  FakeFault fault;
  fault.how = FakeFault::How::REFUSES;
  fault.problem = Problem(ErrorCode::RUNTIME_UNAVAILABLE,
                          kj::str("dial /var/run/x.sock TOKEN=hunter2: refused"));
  docker.controls().addFault("recover.all", kj::mv(fault));
  recheck(daemon, *environment);
  CHECK(told(*environment) == "unknown 0 0 goes-on");
  auto status = environment->status();
  CHECK(status.episodes[0].cause.message == "dial <path> TOKEN=<hidden> refused");
  CHECK(environment->state() == EnvironmentState::READY);
  CHECK(session->isLive());
  recheck(daemon, *environment);
  CHECK(told(*environment) == "healthy 0 0 over");
  FakeFault hangs;
  hangs.how = FakeFault::How::HANGS;
  docker.controls().addFault("recover.all", kj::mv(hangs));
  recheck(daemon, *environment);
  CHECK(told(*environment) == "healthy 0 0 over, unknown 0 0 goes-on");
  CHECK(environment->status().episodes[1].cause.code == ErrorCode::TIMEOUT);
}

TEST_CASE("episode: the store takes no writes: it is told of when it does again") {
  Daemon daemon(impatient());
  Eye eye(daemon);
  auto environment = environmentOf(daemon, "t");
  sleeper(daemon, *environment);
  auto workspace = kj::str(environment->status().workspace);
  auto aside = kj::str(workspace, "-aside");
  REQUIRE(rename(workspace.cStr(), aside.cStr()) == 0);
  setReadOnly(daemon, true);
  recheck(daemon, *environment);
  CHECK(told(*environment) == "");
  CHECK(rows(eye) == "");
  setReadOnly(daemon, false);
  REQUIRE(daemon.becomesTrue([&]() { return told(*environment).size() > 0; }));
  CHECK(rows(eye) == "missing:0");
  REQUIRE(rename(aside.cStr(), workspace.cStr()) == 0);
}

}  // namespace capstan::test
