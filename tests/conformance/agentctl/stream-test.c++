#include "conformance/agentctl/helper-process.h"

#include <kj/encoding.h>

namespace capstan::test {

namespace {

struct Ready {
  Ready(IoLoop& loop, Helper& helper)
      : controlLink(helper.connect()),
        bulkLink(helper.connect()),
        control(test::control(loop, *controlLink, helper.nonce.asBytes())),
        bulk(test::bulk(loop, *bulkLink, helper.nonce.asBytes())) {}
  kj::Own<RpcConnection> controlLink, bulkLink;
  agentctl::Control::Client control;
  agentctl::Bulk::Client bulk;
};

rpc::ByteStream::Client stdinOf(IoLoop& loop, agentctl::Bulk::Client bulk, kj::StringPtr id,
                                bool takeOver = false) {
  auto request = bulk.stdinRequest();
  request.setId(id);
  request.setTakeOver(takeOver);
  auto answer = await(loop, request.send().dropPipeline());
  REQUIRE_FALSE(answer.hasError());
  return answer.getStdin();
}

}  // namespace

TEST_CASE("64 MiB of output pass unchanged") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto spool = kj::str(helper.directory(), "/session");
  // Pausing keeps the log from dropping what a slow reader has not seen.
  started(loop, ready.control,
          {.script = "openssl enc -aes-128-ctr -nosalt -K 00112233445566778899aabbccddeeff "
                     "-iv 00000000000000000000000000000000 < /dev/zero 2>/dev/null | "
                     "head -c 67108864",
           .directory = spool,
           .pauseWhenFull = true});
  auto attached = attach(loop, ready.bulk, "x-1", true, false, false);
  drain(loop, attached, 120 * kj::SECONDS);
  CHECK(attached.sink->bytes == 64u << 20);
  CHECK(attached.sink->gaps == 0);
  // The same octets, summed where they are made.
  kj::String expected;
  {
    auto again = started(loop, ready.control,
                         {.id = "x-2",
                          .script = "openssl enc -aes-128-ctr -nosalt -K "
                                    "00112233445566778899aabbccddeeff -iv "
                                    "00000000000000000000000000000000 < /dev/zero 2>/dev/null | "
                                    "head -c 67108864 | sha256sum | cut -d' ' -f1"});
    auto sum = attach(loop, ready.bulk, "x-2");
    drain(loop, sum);
    expected = kj::str(sum.sink->out.c_str());
  }
  CHECK(kj::str(kj::encodeHex(attached.sink->hash.finish()), '\n') == expected);
}

TEST_CASE("stdin arrives in order and ends") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  started(loop, ready.control, {.script = "sha256sum | cut -d' ' -f1; echo done"});
  auto input = stdinOf(loop, ready.bulk, "x-1");
  Sha256 hash;
  for (int i = 0; i < 64; ++i) {
    auto request = input.writeRequest();
    auto bytes = request.initBytes(rpc::MAX_CHUNK_BYTES);
    for (size_t k = 0; k < bytes.size(); ++k) {
      bytes[k] = static_cast<kj::byte>(k * 31 + static_cast<size_t>(i));
    }
    hash.update(bytes);
    await(loop, request.send());
  }
  await(loop, input.endRequest().send().ignoreResult());
  auto attached = attach(loop, ready.bulk, "x-1");
  drain(loop, attached);
  CHECK(attached.sink->out == kj::str(kj::encodeHex(hash.finish()), "\ndone\n").cStr());
}

TEST_CASE("one writer at a time, unless taken over") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance = started(loop, ready.control, {.script = "cat"});
  kj::Maybe<rpc::ByteStream::Client> first = stdinOf(loop, ready.bulk, "x-1");
  auto request = ready.bulk.stdinRequest();
  request.setId("x-1");
  CHECK(await(loop, request.send().dropPipeline()).getError().getCode() ==
        rpc::ErrorCode::WRONG_STATE);
  auto second = stdinOf(loop, ready.bulk, "x-1", true);
  auto late = KJ_ASSERT_NONNULL(first).writeRequest();
  late.setBytes("lost"_kj.asBytes());
  CHECK_THROWS_AS(([&]() {
                    await(loop, late.send());
                    await(loop, KJ_ASSERT_NONNULL(first).endRequest().send().ignoreResult());
                  }()),
                  kj::Exception);
  first = nullptr;
  auto write = second.writeRequest();
  write.setBytes("kept\n"_kj.asBytes());
  await(loop, write.send());
  await(loop, second.endRequest().send().ignoreResult());
  auto attached = attach(loop, ready.bulk, "x-1");
  drain(loop, attached);
  CHECK(attached.sink->out == "kept\n");
}

TEST_CASE("the end of a terminal's input is its end-of-file character") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance = started(loop, ready.control,
                          {.script = "stty -echo; echo up; cat; echo over", .terminal = true});
  auto attached = attach(loop, ready.bulk, "x-1");
  REQUIRE(becomesTrue(loop, [&]() { return attached.sink->out == "up\r\n"; }));
  auto input = stdinOf(loop, ready.bulk, "x-1");
  auto write = input.writeRequest();
  write.setBytes("half a line"_kj.asBytes());
  await(loop, write.send());
  await(loop, input.endRequest().send().ignoreResult());
  drain(loop, attached);
  CHECK(attached.sink->out == "up\r\nhalf a lineover\r\n");
}

TEST_CASE("a process that reads nothing is killed while writes are held") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance = started(loop, ready.control, {.script = "exec sleep 987.461"});
  auto input = stdinOf(loop, ready.bulk, "x-1");
  kj::Vector<kj::Promise<void>> held;
  for (int i = 0; i < 16; ++i) {
    auto request = input.writeRequest();
    request.initBytes(rpc::MAX_CHUNK_BYTES);
    held.add(request.send().catch_([](kj::Exception&&) {}).eagerlyEvaluate(nullptr));
  }
  loop.timer.afterDelay(100 * kj::MILLISECONDS).wait(loop.waitScope);
  auto signal = instance.signalRequest();
  signal.setName("KILL");
  auto before = loop.timer.now();
  CHECK_FALSE(await(loop, signal.send().dropPipeline(), 2 * kj::SECONDS).hasError());
  auto exit = await(loop, instance.waitRequest().send().dropPipeline(), 2 * kj::SECONDS);
  CHECK(exit.getExit().getSignal() == "KILL");
  CHECK(loop.timer.now() - before < 1 * kj::SECONDS);
}

// What a sanitiser keeps beside the helper's own memory.
#if __has_feature(address_sanitizer)
constexpr size_t SANITISER_KIB = 48 * 1024;
#else
constexpr size_t SANITISER_KIB = 0;
#endif

TEST_CASE("a reader that stops does not make the helper grow") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  CHECK(residentKiB(helper.pid()) < 4 * 1024 + SANITISER_KIB);
  auto instance =
      started(loop, ready.control, {.script = "head -c 50000000 /dev/zero; echo end >&2"});
  auto attached = attach(loop, ready.bulk, "x-1", true, true, false);
  CHECK(await(loop, instance.waitRequest().send().dropPipeline()).getExit().getCode() == 0);
  auto info = await(loop, instance.infoRequest().send().dropPipeline());
  CHECK(info.getInfo().getOutputEnd() == 50'000'004);
  CHECK(info.getInfo().getOutputBegin() > 49'000'000);
  CHECK(residentKiB(helper.pid()) < 8 * 1024 + SANITISER_KIB);
  // Somebody else reads on, and is told of what is gone.
  auto other = attach(loop, ready.bulk, "x-1", false);
  drain(loop, other);
  CHECK(other.sink->gaps == info.getInfo().getOutputBegin());
  CHECK(other.sink->err == "end\n");
}

TEST_CASE("output comes back from its spool after the process's end") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto session = kj::str(helper.directory(), "/session");
  auto instance =
      started(loop, ready.control, {.script = "seq 1 400000; echo last >&2", .directory = session});
  await(loop, instance.waitRequest().send().ignoreResult());
  auto acknowledge = ready.control.acknowledgeRequest();
  acknowledge.setId("x-1");
  await(loop, acknowledge.send().ignoreResult());
  auto attached = attach(loop, ready.bulk, "x-1");
  drain(loop, attached);
  CHECK(attached.sink->gaps == 0);
  CHECK(attached.sink->out.size() == 2'688'895);
  CHECK(attached.sink->out.substr(2'688'881) == "399999\n400000\n");
  CHECK(attached.sink->err == "last\n");
  auto remove = ready.control.removeRequest();
  remove.setId("x-1");
  CHECK_FALSE(await(loop, remove.send().dropPipeline()).hasError());
  CHECK(std::system(kj::str("test -z \"$(ls ", session, ")\"").cStr()) == 0);
}

TEST_CASE("how fast output passes", "[.][bench]") {
  LogWatch logs;
  IoLoop loop;
  Helper helper(loop);
  Ready ready(loop, helper);
  auto instance =
      started(loop, ready.control,
              {.script = "read go; head -c 1073741824 /dev/zero", .pauseWhenFull = true});
  auto request = ready.bulk.outputRequest();
  class Counter final: public rpc::OutputSink::Server {
  public:
    Counter(uint64_t& bytes, bool& ended): bytes(bytes), ended(ended) {}
    kj::Promise<void> write(WriteContext context) override {
      bytes += context.getParams().getBytes().size();
      return kj::READY_NOW;
    }
    kj::Promise<void> end(EndContext) override {
      ended = true;
      return kj::READY_NOW;
    }

  private:
    uint64_t& bytes;
    bool& ended;
  };
  uint64_t bytes = 0;
  bool ended = false;
  request.setId("x-1");
  request.setFollow(true);
  request.setSink(kj::heap<Counter>(bytes, ended));
  auto answer = await(loop, request.send().dropPipeline());
  auto input = stdinOf(loop, ready.bulk, "x-1");
  auto go = input.writeRequest();
  go.setBytes("\n"_kj.asBytes());
  auto begin = loop.timer.now();
  await(loop, go.send());
  REQUIRE(becomesTrue(loop, [&]() { return ended; }, 60 * kj::SECONDS));
  CHECK(bytes == 1u << 30);
  WARN("GiB/s: " << 1e3 / static_cast<double>((loop.timer.now() - begin) / kj::MILLISECONDS)
                 << ", resident KiB: " << residentKiB(helper.pid()));
}

}  // namespace capstan::test
