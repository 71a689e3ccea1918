#include "conformance/agentctl/helper-process.h"

namespace capstan::test {

namespace {

using agentctl::CredentialKind;

kj::Array<kj::byte> rotate(IoLoop& loop, agentctl::Control::Client control, uint64_t id) {
  auto request = control.rotateCredentialRequest();
  request.setRotationId(id);
  auto answer = await(loop, request.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  return kj::heapArray<kj::byte>(answer.getToken());
}

rpc::ErrorCode confirm(IoLoop& loop, agentctl::Control::Client control, uint64_t id) {
  auto request = control.confirmCredentialRequest();
  request.setRotationId(id);
  return await(loop, request.send().dropPipeline()).getError().getCode();
}

}  // namespace

TEST_CASE("agentctl says where it listens and who it is") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  CHECK(helper.addressLine().startsWith("{\"address\":\"unix:/"));
  auto link = helper.connect();
  auto control = test::control(loop, *link, helper.nonce.asBytes());
  auto info = await(loop, control.infoRequest().send().dropPipeline());
  CHECK(info.getInfo().getServerId().size() == SERVER_ID_BYTES);
  CHECK(info.getInfo().getPid() == helper.pid());
  CHECK(info.getInfo().getStartTicks() > 0);
  CHECK(info.getInfo().getBootId().size() > 0);
  CHECK(info.getInfo().getCapabilities()[0] == "agent-survival.v1");
}

TEST_CASE("a wrong nonce and an impersonator learn nothing") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  auto wrong = "ffffffffffffffffffffffffffffffff"_kj.asBytes();
  {
    // The server's proof does not hold for a nonce it was not given, and ours is refused.
    auto link = helper.connect();
    auto begun = begin(loop, *link, wrong);
    CHECK_FALSE(begun.serverProved);
    auto request = begun.attempt.controlRequest();
    request.setProof(begun.proof);
    auto answer = await(loop, request.send().dropPipeline());
    CHECK(answer.getError().getCode() == rpc::ErrorCode::UNAUTHENTICATED);
    CHECK_FALSE(answer.hasControl());
  }
  {
    // One attempt is good for one proof, one connection for one attempt.
    auto link = helper.connect();
    auto begun = begin(loop, *link, helper.nonce.asBytes());
    CHECK(begun.serverProved);
    auto first = begun.attempt.bulkRequest();
    first.setProof(wrong);
    CHECK(await(loop, first.send().dropPipeline()).getError().getCode() ==
          rpc::ErrorCode::UNAUTHENTICATED);
    auto second = begun.attempt.bulkRequest();
    second.setProof(begun.proof);
    CHECK(await(loop, second.send().dropPipeline()).getError().getCode() ==
          rpc::ErrorCode::UNAUTHENTICATED);
    auto again = link->bootstrap().castAs<agentctl::Agentctl>().beginRequest();
    again.setChallenge(randomBytes(CHALLENGE_BYTES));
    CHECK(await(loop, again.send().dropPipeline()).getError().getCode() ==
          rpc::ErrorCode::WRONG_STATE);
  }
  {
    // A credential that does not exist is answered like any other.
    auto link = helper.connect();
    auto begun = begin(loop, *link, helper.nonce.asBytes(), CredentialKind::TOKEN, 5);
    CHECK_FALSE(begun.serverProved);
    auto request = begun.attempt.controlRequest();
    request.setProof(begun.proof);
    CHECK(await(loop, request.send().dropPipeline()).getError().getCode() ==
          rpc::ErrorCode::UNAUTHENTICATED);
  }
}

TEST_CASE("a connection that proves nothing is closed") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop, {"--handshake-limit-ms"_kj, "100"_kj});
  auto stranger = helper.connect();
  begin(loop, *stranger, helper.nonce.asBytes());
  auto link = helper.connect();
  auto control = test::control(loop, *link, helper.nonce.asBytes());
  await(loop, stranger->onDisconnect(), 5 * kj::SECONDS);
  await(loop, control.infoRequest().send().ignoreResult());  // Who proved himself stays.
}

TEST_CASE("a credential is rotated in two phases") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  auto first = helper.connect(), bystander = helper.connect();
  auto control = test::control(loop, *first, helper.nonce.asBytes());
  test::control(loop, *bystander, helper.nonce.asBytes());

  auto token = rotate(loop, control, 1);
  CHECK(token.size() == CREDENTIAL_BYTES);
  CHECK(equalInConstantTime(token, rotate(loop, control, 1)));  // A repeated request.
  {
    // Until it is confirmed both are valid.
    auto a = helper.connect(), b = helper.connect();
    test::control(loop, *a, token, CredentialKind::TOKEN);
    test::control(loop, *b, helper.nonce.asBytes());
  }
  CHECK(confirm(loop, control, 7) == rpc::ErrorCode::NOT_FOUND);
  CHECK(confirm(loop, control, 1) == rpc::ErrorCode::NONE);
  CHECK(confirm(loop, control, 1) == rpc::ErrorCode::NONE);
  await(loop, bystander->onDisconnect(), 5 * kj::SECONDS);
  await(loop, control.infoRequest().send().ignoreResult());  // "But this".
  {
    auto link = helper.connect();
    CHECK_FALSE(begin(loop, *link, helper.nonce.asBytes()).serverProved);
  }
  auto next = rotate(loop, control, 2);
  {
    // Two tokens: the id tells which one.
    auto a = helper.connect(), b = helper.connect(), c = helper.connect();
    test::control(loop, *a, token, CredentialKind::TOKEN, 1);
    test::control(loop, *b, next, CredentialKind::TOKEN, 2);
    test::control(loop, *c, token, CredentialKind::TOKEN);
  }
  auto old = control.rotateCredentialRequest();
  old.setRotationId(1);
  auto refused = await(loop, old.send().dropPipeline());
  CHECK(refused.getError().getCode() == rpc::ErrorCode::WRONG_STATE);
  CHECK(refused.getToken().size() == 0);
}

TEST_CASE("who has confirmed a token stays while another rotates it, until that is confirmed") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  auto first = helper.connect();
  auto control = test::control(loop, *first, helper.nonce.asBytes());
  auto token = rotate(loop, control, 1);
  CHECK(confirm(loop, control, 1) == rpc::ErrorCode::NONE);

  auto second = helper.connect();
  auto beside = test::control(loop, *second, token, CredentialKind::TOKEN);
  rotate(loop, beside, 2);
  await(loop, control.infoRequest().send().ignoreResult());
  CHECK(confirm(loop, beside, 2) == rpc::ErrorCode::NONE);
  await(loop, first->onDisconnect(), 5 * kj::SECONDS);
  await(loop, beside.infoRequest().send().ignoreResult());
}

TEST_CASE("an arm64 helper answers and runs a process") {
  LogWatch logs;
  const char* program = std::getenv("AGENTCTL_ARM64");
  if (program == nullptr) SKIP("no arm64 helper was built");
  if (std::system("command -v qemu-aarch64-static >/dev/null 2>&1") != 0) {
    SKIP("qemu-aarch64-static is not installed");
  }
  IoLoop loop;
  Helper helper(loop, nullptr, {"qemu-aarch64-static"_kj, program});
  auto link = helper.connect(), second = helper.connect();
  auto control = test::control(loop, *link, helper.nonce.asBytes());
  auto info = await(loop, control.infoRequest().send().dropPipeline());
  CHECK(info.getInfo().getPlatform() == "linux/arm64");
  auto instance = started(loop, control, {.script = "echo from $PLAIN"});
  auto bulk = test::bulk(loop, *second, helper.nonce.asBytes());
  auto attached = attach(loop, bulk, "x-1");
  drain(loop, attached);
  CHECK(attached.sink->out == "from plain value\n");
  auto exit = await(loop, instance.waitRequest().send().dropPipeline());
  CHECK(exit.getExit().getCode() == 0);
}

}  // namespace capstan::test
