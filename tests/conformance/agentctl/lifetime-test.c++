#include "conformance/agentctl/helper-process.h"

#include <kj/async-io.h>

#include <csignal>
#include <unistd.h>

namespace capstan::test {

TEST_CASE("ephemeral instances end after their owner is gone, others stay") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop, {"--ephemeral-grace-ms"_kj, "200"_kj});
  {
    auto link = helper.connect();
    auto control = test::control(loop, *link, helper.nonce.asBytes());
    started(loop, control, {.id = "x-1", .script = "exec sleep 987.471", .ephemeral = true});
    started(loop, control, {.id = "r-1", .script = "exec sleep 987.472"});
  }
  CHECK(processesWith("987.471") == 1);
  CHECK(becomesTrue(loop, []() { return processesWith("987.471") == 0; }));
  CHECK(processesWith("987.472") == 1);
  auto link = helper.connect();
  auto control = test::control(loop, *link, helper.nonce.asBytes());
  auto list = await(loop, control.listRequest().send().dropPipeline());
  REQUIRE(list.getInstances().size() == 1);
  CHECK(list.getInstances()[0].getId() == "r-1");
}

TEST_CASE("an owner that comes back in time keeps its ephemeral instances") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop, {"--ephemeral-grace-ms"_kj, "1500"_kj});
  {
    auto link = helper.connect();
    auto control = test::control(loop, *link, helper.nonce.asBytes());
    started(loop, control, {.script = "exec sleep 987.481", .ephemeral = true});
  }
  auto link = helper.connect();
  auto control = test::control(loop, *link, helper.nonce.asBytes());
  loop.timer.afterDelay(2 * kj::SECONDS).wait(loop.waitScope);
  CHECK(processesWith("987.481") == 1);
}

TEST_CASE("without an owner for the whole period everything ends") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop, {"--unowned-period"_kj, "1"_kj});
  {
    auto link = helper.connect();
    auto control = test::control(loop, *link, helper.nonce.asBytes());
    started(loop, control, {.script = "exec sleep 987.491"});
  }
  CHECK(helper.ends());
  CHECK(processesWith("987.491") == 0);
}

TEST_CASE("a draining helper takes nothing new and ends after its last instance") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  auto link = helper.connect();
  auto control = test::control(loop, *link, helper.nonce.asBytes());
  auto instance = started(loop, control, {.script = "exec sleep 987.501"});
  await(loop, control.drainRequest().send().ignoreResult());
  auto create = control.createRequest();
  create.initSpec().setId("x-2");
  CHECK(await(loop, create.send().dropPipeline()).getError().getCode() ==
        rpc::ErrorCode::SHUTTING_DOWN);
  auto stop = instance.stopRequest();
  stop.setForce(true);
  await(loop, stop.send().ignoreResult());
  await(loop, instance.waitRequest().send().ignoreResult());
  CHECK_FALSE(helper.ends(500 * kj::MILLISECONDS));  // Nobody has taken the outcome yet.
  auto acknowledge = control.acknowledgeRequest();
  acknowledge.setId("x-1");
  await(loop, acknowledge.send().ignoreResult());
  CHECK(helper.ends());
}

TEST_CASE("shutdown ends all instances, then the helper; so does TERM") {
  LogWatch logs;
  IoLoop loop;
  for (bool byCall: {true, false}) {
    Helper helper(loop);
    auto link = helper.connect();
    auto control = test::control(loop, *link, helper.nonce.asBytes());
    started(loop, control,
            {.script = "trap '' TERM; while :; do sleep 987.511; done", .stopGraceMs = 200});
    if (byCall) {
      auto request = control.shutdownRequest();
      request.setGraceMs(100);
      CHECK_FALSE(await(loop, request.send().dropPipeline()).hasError());
    } else {
      helper.kill(SIGHUP);  // Ignored.
      helper.kill(SIGTERM);
    }
    CHECK(helper.ends());
    CHECK(processesWith("987.511") == 0);
    CHECK(access(kj::str(helper.directory(), "/s").cStr(), F_OK) != 0);
  }
}

TEST_CASE("ids are unique and well formed") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  auto link = helper.connect();
  auto control = test::control(loop, *link, helper.nonce.asBytes());
  configured(loop, control, {.id = "x-1", .script = "true"});
  auto again = control.createRequest();
  again.initSpec().setId("x-1");
  CHECK(await(loop, again.send().dropPipeline()).getError().getCode() ==
        rpc::ErrorCode::ALREADY_EXISTS);
  for (kj::StringPtr bad: {""_kj, "../x"_kj, "a b"_kj, ".x"_kj}) {
    auto request = control.createRequest();
    request.initSpec().setId(bad);
    CHECK(await(loop, request.send().dropPipeline()).getError().getCode() ==
          rpc::ErrorCode::INVALID_ARGUMENT);
  }
}

namespace {

// Keeps what is written into it.
class Sink final: public rpc::ByteStream::Server {
public:
  Sink(std::string& text, bool& ended): text(text), ended(ended) {}
  kj::Promise<void> write(WriteContext context) override {
    auto chars = context.getParams().getBytes().asChars();
    text.append(chars.begin(), chars.size());
    return kj::READY_NOW;
  }
  kj::Promise<void> end(EndContext) override {
    ended = true;
    return kj::READY_NOW;
  }

private:
  std::string& text;
  bool& ended;
};

}  // namespace

TEST_CASE("dial reaches what listens beside the helper") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  auto& network = loop.io.provider->getNetwork();
  auto listener = await(loop, network.parseAddress("127.0.0.1:0"))->listen();
  auto link = helper.connect();
  auto bulk = test::bulk(loop, *link, helper.nonce.asBytes());
  std::string text;
  bool ended = false;
  auto request = bulk.dialRequest();
  request.initTarget().setPort(static_cast<uint16_t>(listener->getPort()));
  request.setDown(kj::heap<Sink>(text, ended));
  auto accepted = listener->accept();
  auto answer = await(loop, request.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  auto peer = await(loop, kj::mv(accepted));
  auto up = answer.getUp();
  auto write = up.writeRequest();
  write.setBytes("hello"_kj.asBytes());
  await(loop, write.send());
  char buffer[5];
  await(loop, peer->read(buffer, 5));
  CHECK(std::string(buffer, 5) == "hello");
  await(loop, peer->write("back", 4));
  peer->shutdownWrite();
  REQUIRE(becomesTrue(loop, [&]() { return ended; }));
  CHECK(text == "back");

  listener = nullptr;
  auto refused = bulk.dialRequest();
  auto place = refused.initTarget().initHostPort();
  place.setHost("127.0.0.1");
  place.setPort2(1);
  refused.setDown(kj::heap<Sink>(text, ended));
  auto error = await(loop, refused.send().dropPipeline());
  CHECK(error.getError().getCode() == rpc::ErrorCode::UNREACHABLE);
  CHECK(error.getError().getUpstreamCode() == "ECONNREFUSED");
  auto named = bulk.dialRequest();
  named.initTarget().initHostPort().setHost("example.org");
  named.getTarget().getHostPort().setPort2(80);
  named.setDown(kj::heap<Sink>(text, ended));
  CHECK(await(loop, named.send().dropPipeline()).getError().getCode() ==
        rpc::ErrorCode::UNSUPPORTED);
}

}  // namespace capstan::test
