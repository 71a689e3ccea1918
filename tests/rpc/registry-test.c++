// Each task on the runtime of its own executor: the rules of selection, fallback, availability and
// recovery, with a fake as "docker" beside the real standalone runtime.
#include "domain/executors.h"
#include "rpc/records-fixture.h"
#include "support/fake-runtimes.h"

namespace capstan::test {

namespace {

constexpr kj::StringPtr NOT_AVAILABLE =
    "Runtime 'docker' is not available. Enable it in configuration or change the task's executor."_kj;

Limits quick() {
  Limits limits;
  limits.deadlines.stopGrace = 300 * kj::MILLISECONDS;
  return limits;
}

struct World {
  LogWatch logs;
  DockerDaemon docker{quick(), LocalHelpers::Sharing::ONE_EACH};
  Daemon& daemon = docker.daemon;
  kj::Own<ClientConnection> client = daemon.connect();

  void setDefault(kj::StringPtr tenant, kj::StringPtr executor) {
    auto request = client->admin().setDefaultExecutorRequest();
    request.setTenantId(tenant);
    request.setExecutorId(executor);
    REQUIRE(daemon.wait(request.send()).getError().getCode() == ErrorCode::NONE);
  }
  capnp::Response<rpc::Supervisor::EnsureResults> ensure(kj::StringPtr task,
                                                         kj::StringPtr executor = nullptr,
                                                         kj::StringPtr tenant = nullptr) {
    auto request = client->supervisor().ensureRequest();
    request.initSpec().setTaskId(task);
    request.getSpec().setExecutorId(executor);
    request.getSpec().setTenantId(tenant);
    return daemon.wait(request.send());
  }
  rpc::TaskEnvironment::Client environment(kj::StringPtr task, kj::StringPtr executor = nullptr,
                                           kj::StringPtr tenant = nullptr) {
    auto ensured = ensure(task, executor, tenant);
    REQUIRE(ensured.getError().getCode() == ErrorCode::NONE);
    return ensured.getEnvironment();
  }
  capnp::Response<rpc::TaskEnvironment::LaunchResults> launch(
      rpc::TaskEnvironment::Client environment, std::initializer_list<kj::StringPtr> words) {
    auto request = environment.launchRequest();
    setCommand(request.initSpec(), words);
    return daemon.wait(request.send());
  }
  rpc::Run::Client run(rpc::TaskEnvironment::Client environment,
                       std::initializer_list<kj::StringPtr> words) {
    auto launched = launch(environment, words);
    if (launched.getError().getCode() != ErrorCode::NONE) {
      FAIL(kj::str(launched.getError()).cStr());
    }
    return launched.getRun();
  }
  kj::String runtimeOfTask(kj::StringPtr task) {
    auto response = daemon.wait(environment(task).statusRequest().send());
    return kj::str(response.getStatus().getRuntime());
  }
  rpc::TaskEnvironment::Client open(kj::StringPtr task) {
    auto request = client->supervisor().openRequest();
    request.setId(task);
    return request.send().getEnvironment();
  }
  void settle(kj::StringPtr task, rpc::EnvironmentState state) {
    auto seen = state;
    bool settled = daemon.becomesTrue([&]() {
      seen = daemon.wait(open(task).statusRequest().send()).getStatus().getState();
      return seen == state;
    });
    INFO(task.cStr() << " is in state " << static_cast<int>(seen));
    REQUIRE(settled);
  }
  // The next daemon; without Docker when `enabled` is false. What ran in it has ended meanwhile.
  void restart(bool enabled) {
    client = nullptr;
    daemon.endOrderly();
    for (auto& thing: docker.world().things()) {
      if (thing->kind != fake_kind::COMPUTE) continue;
      docker.world().stop(KJ_ASSERT_NONNULL(docker.world().find(thing->kind, thing->name)));
    }
    docker.runtimes().names.clear();
    if (enabled) docker.runtimes().names.add(kj::str("docker"));
    daemon.begin();
    client = daemon.connect();
  }
};

int exitCode(World& world, rpc::Run::Client run) {
  return world.daemon.wait(run.waitRequest().send()).getExit().getCode();
}

}  // namespace

TEST_CASE("a task is launched by the type of its executor") {
  World world;
  auto here = world.environment("here", "exec-local-pc");
  auto there = world.environment("there", "exec-local-docker");

  auto nearby = world.run(here, {"sh", "-c", "pwd; exit 3"});
  auto inside = world.run(there, {"sh", "-c", "pwd; exit 4"});

  CHECK(exitCode(world, kj::mv(nearby)) == 3);
  CHECK(exitCode(world, kj::mv(inside)) == 4);
  auto local = world.daemon.wait(here.statusRequest().send());
  auto docker = world.daemon.wait(there.statusRequest().send());
  CHECK(local.getStatus().getRuntime() == "standalone");
  CHECK(local.getStatus().getExecutorType() == "local_pc");
  CHECK(docker.getStatus().getRuntime() == "docker");
  CHECK(docker.getStatus().getExecutorType() == "local_docker");
  CHECK(
      kj::str(docker.getStatus().getWorkspace()).startsWith(world.docker.runtimes().folder.path()));
  // Only the one that has to be there was made there.
  CHECK(world.docker.controls().count("create.compute") == 1);
}

TEST_CASE("every executor type is accepted with its alias, every other one refused") {
  World world;
  auto table = world.client->admin().executorsRequest().send().getTable();
  auto add = [&](kj::StringPtr type) {
    auto request = table.putRequest();
    auto row = request.initRow();
    row.setType(type);
    row.setName(kj::str("my ", type));
    return world.daemon.wait(request.send());
  };
  auto alias = add("local");
  CHECK(alias.getRow().getType() == "local_pc");
  for (auto type: {"worktree", "docker", "standalone", "LOCAL_PC"}) {
    INFO(type);
    auto refused = add(type);
    CHECK(refused.getError().getCode() == ErrorCode::INVALID_ARGUMENT);
    CHECK(kj::str(refused.getError().getHint()) ==
          "known types: local_pc, local_docker, remote_docker, ssh, k8s, sprites");
  }
}

TEST_CASE("a hosted service is known and not available") {
  World world;
  auto table = world.client->admin().executorsRequest().send().getTable();
  auto request = table.putRequest();
  auto row = request.initRow();
  row.setType("sprites");
  row.setName("clouds");
  REQUIRE(world.daemon.wait(request.send()).getError().getCode() == ErrorCode::NONE);

  auto refused = world.ensure("t-1", "clouds");

  CHECK(refused.getError().getCode() == ErrorCode::RUNTIME_UNAVAILABLE);
  CHECK(refused.getError().getMessage() ==
        "runtime \"sprites\" not available for executor type \"sprites\"");
  CHECK(refused.getError().getHint() ==
        "Runtime 'sprites' is not available. Enable it in configuration or change the task's "
        "executor.");
}

TEST_CASE("a creation that fails says so in the founding words") {
  World world;
  FakeFault fault;
  fault.problem = Problem(ErrorCode::IMAGE_PULL_FAILED, kj::str("no image here"));
  world.docker.controls().addFault("create.compute", kj::mv(fault));

  auto refused = world.launch(world.environment("t-1", "exec-local-docker"), {"true"});

  CHECK(refused.getError().getCode() == ErrorCode::IMAGE_PULL_FAILED);
  CHECK(kj::str(refused.getError().getMessage(), ": ", refused.getError().getCause()) ==
        "failed to create instance: no image here");
}

TEST_CASE("two tasks run at once on different runtimes while the default changes") {
  World world;
  world.setDefault("", "exec-local-docker");
  auto first = world.run(world.environment("t-1"), {"sh", "-c", "sleep 60; exit 1"});
  world.setDefault("", "exec-local-pc");
  auto second = world.run(world.environment("t-2"), {"sh", "-c", "sleep 60; exit 1"});

  CHECK(world.runtimeOfTask("t-1") == "docker");
  CHECK(world.runtimeOfTask("t-2") == "standalone");
  for (auto task: {"t-1", "t-2"}) {
    INFO(task);
    auto status = world.daemon.wait(world.open(task).statusRequest().send());
    auto sessions = status.getStatus().getSessions();
    REQUIRE(sessions.size() == 1);
    CHECK(sessions[0].getState() == rpc::SessionState::RUNNING);
  }
  CHECK(world.docker.controls().count("create.compute") == 1);
}

TEST_CASE("a task keeps its recorded runtime whatever the defaults become") {
  World world;
  world.setDefault("acme", "exec-local-docker");
  auto environment = world.environment("t-1", nullptr, "acme");
  CHECK(exitCode(world, world.run(environment, {"sh", "-c", "echo kept > file"})) == 0);

  world.setDefault("acme", "exec-local-pc");
  world.setDefault("", "exec-local-pc");
  auto again = world.environment("t-1", nullptr, "acme");
  CHECK(exitCode(world, world.run(again, {"cat", "file"})) == 0);
  CHECK(world.runtimeOfTask("t-1") == "docker");

  // Also by the next daemon, in the same place.
  world.restart(true);
  world.settle("t-1", rpc::EnvironmentState::STOPPED);
  CHECK(exitCode(world, world.run(world.environment("t-1", nullptr, "acme"), {"cat", "file"})) ==
        0);
  CHECK(world.runtimeOfTask("t-1") == "docker");
  CHECK(world.docker.controls().count("create.volume") == 1);
  // A new task of the tenant goes where the default says.
  world.environment("t-2", nullptr, "acme");
  CHECK(world.runtimeOfTask("t-2") == "standalone");
}

TEST_CASE("a task whose runtime is gone is listed, does not start, and comes back with it") {
  World world;
  auto environment = world.environment("t-1", "exec-local-docker");
  CHECK(exitCode(world, world.run(environment, {"sh", "-c", "echo kept > file"})) == 0);
  auto made = world.docker.world().things().size();

  world.restart(false);

  auto listed = world.daemon.wait(world.client->supervisor().listRequest().send());
  REQUIRE(listed.getPage().size() == 1);
  CHECK(listed.getPage()[0].getTaskId() == "t-1");
  CHECK(listed.getPage()[0].getRuntime() == "docker");
  world.settle("t-1", rpc::EnvironmentState::RECONNECTING);
  auto checkRefused = [&](rpc::Error::Reader error) {
    CHECK(error.getCode() == ErrorCode::RUNTIME_UNAVAILABLE);
    CHECK(kj::str(error.getMessage(), ": ", error.getCause()) ==
          "runtime \"docker\" not available for executor type \"local_docker\": "
          "runtime \"docker\" not registered");
    CHECK(error.getHint() == NOT_AVAILABLE);
  };
  checkRefused(world.launch(world.open("t-1"), {"true"}).getError());
  auto exec = world.open("t-1").execRequest();
  setCommand(exec.initSpec(), {"true"});
  checkRefused(world.daemon.wait(exec.send()).getError());
  auto status = world.daemon.wait(world.open("t-1").statusRequest().send());
  checkRefused(status.getStatus().getLastError());
  // No silent fallback, and nothing was touched.
  CHECK(world.runtimeOfTask("t-1") == "docker");
  CHECK(world.docker.world().things().size() == made);
  checkRefused(world.ensure("t-2", "exec-local-docker").getError());
  CHECK(exitCode(world, world.run(world.environment("t-3"), {"true"})) == 0);

  // Registered again, without any further start of the daemon.
  world.daemon.registry().add(world.docker.runtimes().addLate("docker"));
  world.settle("t-1", rpc::EnvironmentState::STOPPED);
  CHECK(exitCode(world, world.run(world.open("t-1"), {"cat", "file"})) == 0);
}

TEST_CASE("a stopped task says the same when its runtime is gone, and stays stopped") {
  World world;
  auto environment = world.environment("t-1", "exec-local-docker");
  world.settle("t-1", rpc::EnvironmentState::READY);
  CHECK(world.daemon.wait(environment.stopRequest().send()).getError().getCode() ==
        ErrorCode::NONE);
  world.restart(false);

  auto refused = world.launch(world.open("t-1"), {"true"});

  CHECK(refused.getError().getCode() == ErrorCode::RUNTIME_UNAVAILABLE);
  CHECK(refused.getError().getHint() == NOT_AVAILABLE);
  world.settle("t-1", rpc::EnvironmentState::STOPPED);
  auto destroy = world.open("t-1").cleanupRequest();
  destroy.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  auto report = world.daemon.wait(destroy.send());
  REQUIRE(report.getLeftovers().size() == 1);
  CHECK(kj::str(report.getLeftovers()[0])
            .startsWith("runtime \"docker\" not available for executor type "
                        "\"local_docker\": runtime \"docker\" not registered"));
}

// ---- recovery

TEST_CASE("one runtime that cannot be asked delays no other") {
  World world;
  world.environment("t-1", "exec-local-docker");
  world.environment("t-2", "exec-local-pc");
  for (auto task: {"t-1", "t-2"})
    world.settle(task, rpc::EnvironmentState::READY);
  FakeFault fault;
  fault.how = FakeFault::How::THROWS;
  world.docker.controls().addFault("recover.all", kj::mv(fault));

  world.restart(true);

  REQUIRE(world.daemon.becomesTrue([&]() {
    return world.launch(world.open("t-2"), {"true"}).getError().getCode() == ErrorCode::NONE;
  }));
  // The next time it answers.
  world.settle("t-1", rpc::EnvironmentState::STOPPED);
}

TEST_CASE("a runtime that mixes up what it recovers is not believed") {
  World world;
  kj::Vector<kj::String> places;
  for (auto task: {"t-1", "t-2"}) {
    auto environment = world.environment(task, "exec-local-docker");
    world.run(environment, {"sleep", "60"});
    world.settle(task, rpc::EnvironmentState::READY);
    auto status = world.daemon.wait(environment.statusRequest().send());
    places.add(kj::str(status.getStatus().getWorkspace()));
  }
  world.docker.world().lies.recoversWithTheWrongOne = true;
  world.client = nullptr;
  world.daemon.endOrderly();
  world.daemon.begin();
  world.client = world.daemon.connect();

  for (auto task: {"t-1", "t-2"})
    world.settle(task, rpc::EnvironmentState::RECONNECTING);

  size_t i = 0;
  for (auto task: {"t-1", "t-2"}) {
    INFO(task);
    auto status = world.daemon.wait(world.open(task).statusRequest().send());
    CHECK(status.getStatus().getWorkspace() == places[i++]);
    CHECK(status.getStatus().getLastError().getCode() == ErrorCode::OWNERSHIP_MISMATCH);
    // Nothing is called lost, and nothing is put into the other one's files.
    REQUIRE(status.getStatus().getSessions().size() == 1);
    CHECK(status.getStatus().getSessions()[0].getState() == rpc::SessionState::RECOVERING);
    auto refused = world.launch(world.open(task), {"true"});
    CHECK(refused.getError().getCode() == ErrorCode::UNREACHABLE);
  }
}

// ---- health

namespace {

capnp::Response<rpc::Supervisor::RuntimesResults> runtimes(World& world) {
  return world.daemon.wait(world.client->supervisor().runtimesRequest().send());
}

rpc::RuntimeStatus::Reader named(rpc::Supervisor::RuntimesResults::Reader all, kj::StringPtr name) {
  for (auto each: all.getRuntimes()) {
    if (each.getRuntime() == name) return each;
  }
  FAIL(name.cStr());
  return {};
}

}  // namespace

TEST_CASE("every runtime is listed, with what is known of it") {
  World world;
  auto all = runtimes(world);
  REQUIRE(all.getRuntimes().size() == kj::size(RUNTIMES));
  auto docker = named(all, "docker");
  CHECK(docker.getAvailable());
  CHECK(docker.getHealthy());
  CHECK(docker.getVersion() == "fake-1");
  CHECK(docker.getCheckedAt() > 0);
  auto sprites = named(all, "sprites");
  CHECK_FALSE(sprites.getAvailable());
  CHECK_FALSE(sprites.getHealthy());
  CHECK(sprites.getReason().getCode() == ErrorCode::RUNTIME_UNAVAILABLE);
}

TEST_CASE("health is a real check, kept for a while, and never on the way of a start") {
  World world;
  // Neither a start of the daemon nor of a task asks for it.
  CHECK(exitCode(world, world.run(world.environment("t-1", "exec-local-docker"), {"true"})) == 0);
  CHECK(world.docker.controls().count("health") == 0);

  runtimes(world);
  world.docker.world().unhealthy = Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("out of order"));
  auto kept = runtimes(world);
  CHECK(named(kept, "docker").getHealthy());
  CHECK(world.docker.controls().count("health") == 1);
}

TEST_CASE("a runtime that is not healthy is an answer, and work goes on where it can") {
  World world;
  world.docker.world().unhealthy = Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("out of order"));
  auto all = runtimes(world);
  CHECK_FALSE(named(all, "docker").getHealthy());
  CHECK(named(all, "docker").getAvailable());
  CHECK(named(all, "docker").getReason().getMessage() == "out of order");
  CHECK(named(all, "standalone").getHealthy());
  CHECK(exitCode(world, world.run(world.environment("t-1", "exec-local-docker"), {"true"})) == 0);
}

TEST_CASE("checks that fail or hang hide no other, and callers share one") {
  LogWatch logs;
  auto limits = quick();
  limits.deadlines.health = 200 * kj::MILLISECONDS;
  DockerDaemon docker(limits);
  auto& daemon = docker.daemon;
  auto client = daemon.connect();
  FakeFault fault;
  fault.how = FakeFault::How::THROWS;
  daemon.registry().add(docker.runtimes().addLate("ssh"));
  docker.controls().addFault("health", kj::mv(fault));
  fault = FakeFault();
  fault.how = FakeFault::How::HANGS;
  docker.controls().addFault("health", kj::mv(fault));

  // The first caller leaves: the check goes on for the other one.
  {
    auto left = client->supervisor().runtimesRequest().send();
  }
  auto one = client->supervisor().runtimesRequest().send();
  auto two = client->supervisor().runtimesRequest().send();
  auto all = daemon.wait(kj::mv(one));
  auto same = daemon.wait(kj::mv(two));

  CHECK(docker.controls().count("health") == 2);  // One each.
  CHECK(named(all, "docker").getReason().getCode() == ErrorCode::INTERNAL);
  CHECK(named(all, "ssh").getReason().getCode() == ErrorCode::TIMEOUT);
  CHECK(named(all, "standalone").getHealthy());
  CHECK(named(same, "ssh").getReason().getCode() == ErrorCode::TIMEOUT);
}

}  // namespace capstan::test
