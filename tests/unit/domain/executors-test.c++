#include "domain/executors.h"

#include "support/test.h"

namespace capstan {

TEST_CASE("every executor type has its runtime") {
  struct Row {
    kj::StringPtr type;
    kj::StringPtr runtime;
  };
  for (auto row: {Row{"local_pc", "standalone"}, Row{"local", "standalone"},
                  Row{"local_docker", "docker"}, Row{"remote_docker", "docker"}, Row{"ssh", "ssh"},
                  Row{"k8s", "kubernetes"}, Row{"sprites", "sprites"}}) {
    INFO(row.type.cStr());
    CHECK(runtimeOf(row.type).get<kj::StringPtr>() == row.runtime);
  }
}

TEST_CASE("an unknown executor type never falls back to the host") {
  for (auto type: {"", "LOCAL_PC", "worktree", "docker", "local_pc "}) {
    auto refused = runtimeOf(type);
    REQUIRE(refused.is<Problem>());
    CHECK(refused.get<Problem>().code == ErrorCode::INVALID_ARGUMENT);
    CHECK(kj::str(refused.get<Problem>().hint) ==
          "known types: local_pc, local_docker, remote_docker, ssh, k8s, sprites");
  }
}

TEST_CASE("every runtime has an executor type, which has that runtime") {
  for (auto runtime: RUNTIMES) {
    INFO(runtime.cStr());
    auto type = executorTypeOf(runtime).get<kj::StringPtr>();
    CHECK(runtimeOf(type).get<kj::StringPtr>() == runtime);
  }
  CHECK(executorTypeOf("docker").get<kj::StringPtr>() == "local_docker");
  CHECK(executorTypeOf("standalone").get<kj::StringPtr>() == "local_pc");
}

TEST_CASE("an unknown runtime has no executor type") {
  for (auto runtime: {"", "local_pc", "fake", "Docker"}) {
    auto refused = executorTypeOf(runtime);
    REQUIRE(refused.is<Problem>());
    CHECK(refused.get<Problem>().code == ErrorCode::INVALID_ARGUMENT);
    CHECK(refused.get<Problem>().hint ==
          "known runtimes: standalone, docker, ssh, kubernetes, sprites");
  }
}

}  // namespace capstan
