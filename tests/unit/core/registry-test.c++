// The registry of runtimes: looking them up, asking all of them.
#include "backends/fake/fake-backend.h"
#include "core/services.h"
#include "support/test.h"

namespace capstan::test {

namespace {

// Runtimes without anything behind them, each in a world of its own.
struct Runtime {
  FakeWorld world;
  FakeBackend backend;

  Runtime(Loop& loop, Entropy& entropy, FakeHelperLauncher& helpers, kj::StringPtr name)
      : backend(loop.timer, entropy, world, helpers, options(name)) {}
  static FakeOptions options(kj::StringPtr name) {
    FakeOptions result;
    result.name = kj::str(name);
    return result;
  }
  void fault(kj::StringPtr step, FakeFault::How how) {
    FakeFault fault;
    fault.how = how;
    world.controls.addFault(step, kj::mv(fault));
  }
};

struct World {
  LogWatch logs;
  Loop loop;
  SystemEntropy entropy;
  PipeHelperLauncher helpers;
  Runtime standalone{loop, entropy, helpers, "standalone"};
  Runtime docker{loop, entropy, helpers, "docker"};
  Runtime ssh{loop, entropy, helpers, "ssh"};
  RuntimeRegistry registry;

  kj::Vector<RuntimeRegistry::Checked> health() {
    auto all = registry.healthCheckAll();
    for (int i = 0; i < 100 && !all.poll(loop.waitScope); ++i)
      loop.advance(1 * kj::SECONDS);
    return all.wait(loop.waitScope);
  }
  RuntimeRegistry::AllRecovered recover(
      std::initializer_list<std::pair<kj::StringPtr, kj::StringPtr>> places) {
    kj::Vector<RuntimeRegistry::RuntimePlaces> asked;
    for (auto& [runtime, id]: places) {
      PlaceRecord place;
      place.environmentId = kj::str(id);
      auto one = kj::heapArrayBuilder<PlaceRecord>(1);
      one.add(kj::mv(place));
      asked.add(RuntimeRegistry::RuntimePlaces{kj::str(runtime), one.finish()});
    }
    return registry.recoverAll(asked.releaseAsArray()).wait(loop.waitScope);
  }
  bool hasLogged(kj::StringPtr part) {
    for (auto& line: logs.lines()) {
      if (std::string_view(line.cStr()).find(part.cStr()) != std::string_view::npos) return true;
    }
    return false;
  }
};

kj::String ids(const RuntimeRegistry::AllRecovered& all) {
  return kj::strArray(KJ_MAP(each, all.places) { return kj::str(each.environmentId); }, " ");
}

}  // namespace

TEST_CASE("a registered runtime is found by its name") {
  World world;
  world.registry.add(world.docker.backend);

  CHECK(world.registry.find("docker").get<Backend*>() == &world.docker.backend);
  CHECK(world.registry.find("docker", "local_docker").get<Backend*>() == &world.docker.backend);
  CHECK(world.registry.has("docker"));
}

TEST_CASE("a runtime that is not registered is an error in the founding words") {
  World world;
  world.registry.add(world.standalone.backend);

  auto absent = world.registry.find("docker").get<Problem>().clone();
  CHECK(absent.code == ErrorCode::RUNTIME_UNAVAILABLE);
  CHECK(absent.message == "runtime \"docker\" not registered");

  auto wanted = world.registry.find("docker", "local_docker").get<Problem>().clone();
  CHECK(wanted.code == ErrorCode::RUNTIME_UNAVAILABLE);
  CHECK(
      kj::str(wanted).startsWith("runtime \"docker\" not available for executor type "
                                 "\"local_docker\": runtime \"docker\" not registered"));
  CHECK(wanted.hint ==
        "Runtime 'docker' is not available. Enable it in configuration or change "
        "the task's executor.");
  CHECK(wanted.retry == RetryHint::AFTER_USER_ACTION);
  CHECK_FALSE(world.registry.has("docker"));
  // No silent fallback: what is there is not offered in its stead, whatever is asked for.
  for (auto name: {"", "Docker", "docke", "docker "})
    CHECK(world.registry.find(name).is<Problem>());
}

TEST_CASE("who waits for a runtime hears of every one that is added") {
  World world;
  auto first = world.registry.onAdd();
  auto second = world.registry.onAdd();
  CHECK_FALSE(first.poll(world.loop.waitScope));
  world.registry.add(world.docker.backend);
  CHECK(first.poll(world.loop.waitScope));
  CHECK(second.poll(world.loop.waitScope));
  auto next = world.registry.onAdd();
  CHECK_FALSE(next.poll(world.loop.waitScope));
}

TEST_CASE("the same name replaces the earlier runtime, and all are listed once") {
  World world;
  Runtime other(world.loop, world.entropy, world.helpers, "docker");
  world.registry.add(world.standalone.backend);
  world.registry.add(world.docker.backend);
  world.registry.add(other.backend);

  CHECK(world.registry.find("docker").get<Backend*>() == &other.backend);
  auto names = KJ_MAP(each, world.registry.list()) { return kj::str(each->name()); };
  CHECK(kj::strArray(names, " ") == "docker standalone");
}

TEST_CASE("every runtime is asked for its health, whatever becomes of the others") {
  World world;
  world.registry.add(world.standalone.backend);
  world.registry.add(world.docker.backend);
  world.registry.add(world.ssh.backend);
  world.docker.fault("health", FakeFault::How::THROWS);
  world.ssh.world.unhealthy = Problem(ErrorCode::UNREACHABLE, kj::str("no route"));

  auto all = world.health();

  REQUIRE(all.size() == 3);
  CHECK(all[0].runtime == "docker");
  CHECK_FALSE(all[0].health.healthy);
  CHECK(KJ_ASSERT_NONNULL(all[0].health.reason).code == ErrorCode::INTERNAL);
  CHECK(all[1].runtime == "ssh");
  CHECK(KJ_ASSERT_NONNULL(all[1].health.reason).message == "no route");
  CHECK(all[2].runtime == "standalone");
  CHECK(all[2].health.healthy);
  CHECK(all[2].health.reason == nullptr);
}

TEST_CASE("a runtime that does not answer is unhealthy after its own deadline") {
  World world;
  world.registry.add(world.standalone.backend);
  world.registry.add(world.docker.backend);
  world.docker.fault("health", FakeFault::How::HANGS);

  auto all = world.health();

  CHECK(KJ_ASSERT_NONNULL(all[0].health.reason).code == ErrorCode::TIMEOUT);
  CHECK(all[1].health.healthy);
}

TEST_CASE("recovery merges what all runtimes say, with one error a failed runtime") {
  World world;
  world.registry.add(world.standalone.backend);
  world.registry.add(world.docker.backend);
  world.registry.add(world.ssh.backend);
  world.docker.fault("recover.all", FakeFault::How::THROWS);

  auto all = world.recover(
      {{"standalone", "env-1"}, {"docker", "env-2"}, {"k9s", "env-3"}, {"ssh", "env-4"}});

  CHECK(ids(all) == "env-1 env-4");
  REQUIRE(all.failures.size() == 2);
  CHECK(all.failures[0].runtime == "k9s");
  CHECK(all.failures[0].problem.message == "runtime \"k9s\" not registered");
  CHECK(all.failures[1].runtime == "docker");
  CHECK(all.failures[1].problem.code == ErrorCode::INTERNAL);
  CHECK(world.hasLogged("could not recover its environments; names[i] = docker"));
}

TEST_CASE("recovery of nothing, and of nothing but failures, is an answer") {
  World world;
  CHECK(world.recover({}).places.size() == 0);
  auto all = world.recover({{"docker", "env-1"}, {"ssh", "env-2"}});
  CHECK(all.places.size() == 0);
  CHECK(all.failures.size() == 2);
}

TEST_CASE("one place that cannot be asked about does not hide the others of its runtime") {
  World world;
  world.registry.add(world.docker.backend);
  world.docker.fault("recover", FakeFault::How::THROWS);
  kj::Vector<PlaceRecord> places;
  for (auto id: {"env-1", "env-2"}) {
    PlaceRecord place;
    place.environmentId = kj::str(id);
    places.add(kj::mv(place));
  }
  auto asked = kj::heapArrayBuilder<RuntimeRegistry::RuntimePlaces>(1);
  asked.add(RuntimeRegistry::RuntimePlaces{kj::str("docker"), places.releaseAsArray()});

  auto all = world.registry.recoverAll(asked.finish()).wait(world.loop.waitScope);

  REQUIRE(ids(all) == "env-1 env-2");
  CHECK(all.places[0].kind == Recovered::Kind::UNKNOWN);
  CHECK(all.places[1].kind == Recovered::Kind::GONE);
  CHECK(all.failures.size() == 0);
}

}  // namespace capstan::test
