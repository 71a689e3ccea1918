// How many descriptors the helper may have, and its agents.
#include "conformance/agentctl/helper-process.h"

#include <cstdlib>
#include <filesystem>
#include <iterator>

namespace capstan::test {

namespace {

// A helper that was started with a soft limit of 1024 and a hard one of 4096.
struct Limited {
  explicit Limited(IoLoop& loop, kj::ArrayPtr<const kj::StringPtr> options = nullptr)
      : loop(loop),
        helper(loop, options,
               {"sh"_kj, "-c"_kj, "ulimit -Sn 1024 && ulimit -Hn 4096 && exec \"$0\" \"$@\""_kj,
                std::getenv("AGENTCTL")}),
        controlLink(helper.connect()),
        bulkLink(helper.connect()),
        control(test::control(loop, *controlLink, helper.nonce.asBytes())),
        bulk(test::bulk(loop, *bulkLink, helper.nonce.asBytes())) {}

  IoLoop& loop;
  Helper helper;
  kj::Own<RpcConnection> controlLink, bulkLink;
  agentctl::Control::Client control;
  agentctl::Bulk::Client bulk;

  std::string outputOf(kj::StringPtr script) {
    started(loop, control, {.script = script});
    auto attached = attach(loop, bulk, "x-1");
    drain(loop, attached);
    return attached.sink->out;
  }
};

}  // namespace

TEST_CASE("an agent starts with the limit of descriptors that the helper was started with") {
  LogWatch logs;
  IoLoop loop;
  Limited limited(loop);
  CHECK(limited.outputOf("ulimit -Sn; ulimit -Hn; ulimit -Sn 4096 && ulimit -Sn") ==
        "1024\n4096\n4096\n");
}

TEST_CASE("an agent starts with the limit of descriptors that the helper was told") {
  LogWatch logs;
  IoLoop loop;
  SECTION("a lower one") {
    Limited limited(loop, {"--agent-descriptors"_kj, "256"_kj});
    CHECK(limited.outputOf("ulimit -Sn; ulimit -Hn") == "256\n4096\n");
  }
  SECTION("one above the hard limit is that") {
    Limited limited(loop, {"--agent-descriptors"_kj, "1000000"_kj});
    CHECK(limited.outputOf("ulimit -Sn; ulimit -Hn") == "4096\n4096\n");
  }
}

TEST_CASE("a helper that was started with few descriptors holds 300 agents") {
  LogWatch logs;
  IoLoop loop;
  Limited limited(loop);
  constexpr int AGENTS = 300;
  for (int i = 0; i < AGENTS; ++i) {
    auto id = kj::str("r-", i);
    started(loop, limited.control, {.id = id, .script = "exec sleep 987.531"});
  }
  CHECK(becomesTrue(loop, []() { return processesWith("987.531") == AGENTS; }));
  std::filesystem::directory_iterator open(kj::str("/proc/", limited.helper.pid(), "/fd").cStr());
  CHECK(std::distance(open, {}) > 1024);  // Else the case would prove nothing.
  await(loop, limited.control.shutdownRequest().send().dropPipeline());
  CHECK(limited.helper.ends(30 * kj::SECONDS));
  CHECK(processesWith("987.531") == 0);
}

}  // namespace capstan::test
