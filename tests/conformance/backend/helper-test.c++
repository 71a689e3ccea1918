// The helper of a place, for runtimes in which it is a real one.

#include "conformance/backend/cases.h"
#include "conformance/backend/open-link.h"

#include <cstring>

namespace capstan::test {

TEST_CASE("the helper proves itself by the attachment's credential") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-link");
  auto attachment = environment.created();
  auto link = fixture->wait(openLink(fixture->timer(), *attachment));
  REQUIRE(link.is<kj::Own<AgentLink>>());
  auto instances = fixture->wait(link.get<kj::Own<AgentLink>>()->list());
  REQUIRE(instances.is<kj::Array<InstanceReport>>());
  CHECK(instances.get<kj::Array<InstanceReport>>().size() == 0);
}

TEST_CASE("the helper is reached again by the key of a link") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-token");
  auto attachment = environment.created();
  auto first = fixture->wait(openLink(fixture->timer(), *attachment));
  REQUIRE(first.is<kj::Own<AgentLink>>());
  auto key = first.get<kj::Own<AgentLink>>()->key();
  auto identity = kj::heapArray<kj::byte>(key.serverId);
  first = Problem();
  auto second = fixture->wait(openLink(fixture->timer(), *attachment, kj::mv(key)));
  KJ_IF_MAYBE (problem, second.tryGet<Problem>()) {
    FAIL(kj::str(*problem).cStr());
  }
  CHECK(second.get<kj::Own<AgentLink>>()->key().serverId.asPtr() == identity.asPtr());
}

TEST_CASE("a helper does not let in whoever lacks the credential") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-proof");
  auto attachment = environment.created();
  auto wrong = kj::heapArray<kj::byte>(32);
  memset(wrong.begin(), 7, wrong.size());
  auto link = fixture->wait(
      openLink(fixture->timer(), *attachment, Credential(Credential::Kind::NONCE, kj::mv(wrong))));
  REQUIRE(link.is<Problem>());
  CHECK(link.get<Problem>().code == ErrorCode::AUTH_FAILED);
}

TEST_CASE("processes run where the attachment says") {
  LogWatch logs;
  auto fixture = newBackendFixture();
  Environment environment(*fixture, "env-run");
  auto attachment = environment.created();
  auto opened = fixture->wait(openLink(fixture->timer(), *attachment));
  REQUIRE(opened.is<kj::Own<AgentLink>>());
  auto link = kj::mv(opened.get<kj::Own<AgentLink>>());
  InstanceSpec spec;
  spec.id = kj::str("r-1");
  spec.directory = attachment->runDirectory("r-1");
  auto made = fixture->wait(link->create(kj::mv(spec)));
  REQUIRE(made.is<kj::Own<AgentInstance>>());
  auto instance = kj::mv(made.get<kj::Own<AgentInstance>>());
  InstanceConfig config;
  config.command = kj::arr(kj::str("/bin/sh"), kj::str("-c"), kj::str("echo > file"));
  config.workingDirectory = kj::str(attachment->workspace());
  config.variables = KJ_MAP(each, attachment->inheritedVariables()) {
    return InstanceVariable{kj::str(each.key), kj::str(each.value)};
  };
  REQUIRE(fixture->wait(instance->configure(kj::mv(config))) == nullptr);
  REQUIRE(fixture->wait(instance->start()).is<int>());
  auto exit = fixture->wait(instance->wait());
  REQUIRE(exit.is<ExitStatus>());
  CHECK(exit.get<ExitStatus>().shellCode() == 0);
  CHECK(fixture->fileStands(*attachment));
}

}  // namespace capstan::test
