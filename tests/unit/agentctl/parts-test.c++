// The helper's smaller parts: command line, launch plan, cgroup folder, dial targets, note.

#include "agentctl/build-info.h"
#include "agentctl/cgroup.h"
#include "agentctl/command-line.h"
#include "agentctl/dial.h"
#include "agentctl/launch-plan.h"
#include "agentctl/stdin-buffer.h"

#include "support/test.h"

#include <capnp/message.h>

#include <fstream>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace capstan {

namespace {

Result<CommandLine> parse(std::initializer_list<kj::StringPtr> words) {
  return parseCommandLine(kj::arrayPtr(words.begin(), words.size()));
}

bool holds(char* const* list, kj::StringPtr text) {
  for (; *list != nullptr; ++list) {
    if (text == *list) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the command line is strict") {
  CHECK(parse({"--help"}).get<CommandLine>().action == CommandLine::Action::HELP);
  CHECK(parse({"--version"}).get<CommandLine>().action == CommandLine::Action::VERSION);
  auto line = parse({"serve", "--socket", "/run/s", "--nonce-fd", "3", "--state-dir", "/var/x",
                     "--unowned-period", "7"});
  REQUIRE(line.is<CommandLine>());
  CHECK(line.get<CommandLine>().socketPath == "/run/s");
  CHECK(line.get<CommandLine>().logFile == "/var/x/agentctl.log");
  CHECK(line.get<CommandLine>().options.unownedPeriod == 7 * kj::SECONDS);
  CHECK(parse({}).is<Problem>());
  CHECK(parse({"run"}).is<Problem>());
  CHECK(parse({"serve", "--nonce-fd", "3"}).is<Problem>());
  CHECK(parse({"serve", "--socket", "/s"}).is<Problem>());
  CHECK(parse({"serve", "--socket", "/a\"b", "--nonce-fd", "3"}).is<Problem>());
  CHECK(parse({"serve", "--socket", "/s", "--nonce-fd", "x"}).is<Problem>());
  CHECK(parse({"serve", "--socket", "/s", "--nonce-fd"}).is<Problem>());
  CHECK(parse({"serve", "--socket", "/s", "--nonce-fd", "3", "--what", "3"}).is<Problem>());
}

TEST_CASE("a launch plan holds exactly what was given") {
  capnp::MallocMessageBuilder message;
  auto config = message.initRoot<agentctl::InstanceConfig>();
  auto command = config.initCommand(2);
  command.set(0, "prog");
  command.set(1, "");
  auto variables = config.initVariables(3);
  variables[0].setKey("PATH");
  variables[0].setValue("/a::/b");
  variables[1].setKey("K");
  variables[1].setValue("plain");
  variables[2].setKey("S");
  variables[2].setValue("overridden");
  auto secrets = config.initSecrets(1);
  secrets[0].setKey("S");
  secrets[0].setValue("hush"_kj.asBytes());
  config.setWorkingDirectory("/place");
  auto made = LaunchPlan::from(config.asReader(), "/dwelling/u");
  REQUIRE(made.is<kj::Own<LaunchPlan>>());
  auto& plan = *made.get<kj::Own<LaunchPlan>>();
  CHECK(kj::StringPtr(plan.candidates()[0]) == "/a/prog");
  CHECK(kj::StringPtr(plan.candidates()[1]) == "./prog");
  CHECK(kj::StringPtr(plan.candidates()[2]) == "/b/prog");
  CHECK(plan.candidates()[3] == nullptr);
  CHECK(kj::StringPtr(plan.arguments()[1]) == "");
  CHECK(plan.arguments()[2] == nullptr);
  CHECK(holds(plan.variables(), "HOME=/dwelling/u"));
  CHECK(holds(plan.variables(), "K=plain"));
  CHECK(holds(plan.variables(), "S=hush"));
  CHECK(plan.variables()[4] == nullptr);
  CHECK(kj::StringPtr(plan.workingDirectory()) == "/place");

  const char* secret = plan.variables()[0];
  plan.wipe();
  CHECK(*secret == 0);
  wipeSecrets(config.asReader());
  CHECK(secrets[0].getValue()[0] == 0);
}

TEST_CASE("what cannot be started is refused before") {
  auto codeAfter = [](auto change) {
    capnp::MallocMessageBuilder message;
    auto config = message.initRoot<agentctl::InstanceConfig>();
    config.initCommand(1).set(0, "prog");
    config.setWorkingDirectory("/");
    change(config);
    return LaunchPlan::from(config.asReader(), "").template is<Problem>();
  };
  using Config = agentctl::InstanceConfig::Builder;
  CHECK_FALSE(codeAfter([](Config) {}));
  CHECK(codeAfter([](Config c) { c.initCommand(0); }));
  CHECK(codeAfter([](Config c) { c.setWorkingDirectory("relative"); }));
  CHECK(codeAfter([](Config c) { c.initVariables(1)[0].setKey("A=B"); }));
  CHECK(codeAfter([](Config c) { c.initVariables(1)[0].setKey(""); }));
  CHECK(codeAfter([](Config c) {
    auto secret = c.initSecrets(1)[0];
    secret.setKey("A");
    secret.initValue(3);
  }));
}

TEST_CASE("home comes from the text of passwd") {
  test::TempDir folder;
  auto file = folder / "passwd";
  std::ofstream(file.cStr())
      << "root:x:0:0:root:/root:/bin/sh\nbroken:x\nu:x:1000:1000::/dwelling/u:\n";
  CHECK(homeOf(0, file) == "/root");
  CHECK(homeOf(1000, file) == "/dwelling/u");
  CHECK(homeOf(7, file) == "");
  CHECK(homeOf(0, folder / "none") == "");
}

TEST_CASE("the cgroup folder is found in hybrid, unified and namespaced mounts") {
  auto unified = "29 1 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"_kj;
  CHECK(KJ_ASSERT_NONNULL(ownCgroupFolder(unified, "0::/a/b\n")) == "/sys/fs/cgroup/a/b");
  CHECK(KJ_ASSERT_NONNULL(ownCgroupFolder(unified, "0::/\n")) == "/sys/fs/cgroup");
  auto hybrid =
      "30 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "31 1 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"_kj;
  CHECK(KJ_ASSERT_NONNULL(ownCgroupFolder(hybrid, "5:cpu:/x\n0::/y\n")) ==
        "/sys/fs/cgroup/unified/y");
  auto partial = "31 1 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"_kj;
  CHECK(KJ_ASSERT_NONNULL(ownCgroupFolder(partial, "0::/docker/abc/d\n")) == "/sys/fs/cgroup/d");
  CHECK(ownCgroupFolder(partial, "0::/elsewhere\n") == nullptr);
  CHECK(ownCgroupFolder("30 1 0:27 / /c rw - cgroup cgroup rw,cpu\n", "0::/\n") == nullptr);
  CHECK(ownCgroupFolder(unified, "5:cpu:/x\n") == nullptr);
}

TEST_CASE("dial takes literal addresses only") {
  capnp::MallocMessageBuilder message;
  auto target = message.initRoot<rpc::Target>();
  auto code = [&]() {
    auto result = parseTarget(target.asReader());
    return result.is<Problem>() ? result.get<Problem>().code : ErrorCode::NONE;
  };
  target.setPort(80);
  auto both = parseTarget(target.asReader());
  CHECK(both.get<kj::Vector<DialAddress>>()[0].text == "127.0.0.1:80");
  CHECK(both.get<kj::Vector<DialAddress>>()[1].text == "[::1]:80");
  target.setPort(0);
  CHECK(code() == ErrorCode::INVALID_ARGUMENT);
  target.setUnixPath("relative");
  CHECK(code() == ErrorCode::INVALID_ARGUMENT);
  target.setUnixPath("/run/x");
  CHECK(code() == ErrorCode::NONE);
  auto place = target.initHostPort();
  place.setPort2(1);
  place.setHost("10.1.2.3");
  CHECK(code() == ErrorCode::NONE);
  place.setHost("fe80::1");
  CHECK(code() == ErrorCode::NONE);
  place.setHost("example.org");
  CHECK(code() == ErrorCode::UNSUPPORTED);
}

TEST_CASE("capabilities follow the kernel") {
  auto all = helperCapabilities(SubreaperSupport::AVAILABLE);
  CHECK(all[0] == "agent-survival.v1");
  CHECK(all[1] == "reaper");
  CHECK(helperCapabilities(SubreaperSupport::REFUSED)[1] == "reaper=no");
  CHECK(helperNoteText().startsWith("build="));
}

TEST_CASE("stdin is buffered up to its bound, then held") {
  test::IoLoop loop;
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  kj::AutoCloseFd readEnd(ends[0]);
  StdinBuffer buffer(loop.io.unixEventPort, kj::AutoCloseFd(ends[1]), StdinBuffer::Kind::PIPE);
  auto writer = KJ_ASSERT_NONNULL(buffer.beginWriter(false));
  CHECK(buffer.beginWriter(false) == nullptr);
  auto chunk = kj::heapArray<kj::byte>(65'536);
  // The pipe takes 64 KiB, the buffer 256 KiB.
  for (int i = 0; i < 5; ++i) {
    CHECK(buffer.write(writer, chunk).poll(loop.waitScope));
    loop.timer.afterDelay(1 * kj::MILLISECONDS).wait(loop.waitScope);
  }
  auto held = buffer.write(writer, chunk);
  CHECK_FALSE(held.poll(loop.waitScope));
  CHECK(buffer.buffered() == StdinBuffer::BUFFER_BYTES);
  auto next = KJ_ASSERT_NONNULL(buffer.beginWriter(true));
  CHECK_THROWS_AS(held.wait(loop.waitScope), kj::Exception);
  {
    auto dropped = buffer.write(next, chunk);
  }
  auto again = buffer.write(next, chunk);
  CHECK_FALSE(again.poll(loop.waitScope));
  char drain[65'536];
  REQUIRE(read(readEnd, drain, sizeof(drain)) == 65'536);
  again.wait(loop.waitScope);
  buffer.end(next).wait(loop.waitScope);
  uint64_t rest = 0;
  for (;;) {
    ssize_t n = read(readEnd, drain, sizeof(drain));
    if (n == 0) break;
    if (n > 0) rest += static_cast<uint64_t>(n);
    loop.timer.afterDelay(0 * kj::NANOSECONDS).wait(loop.waitScope);
  }
  CHECK(rest == 5 * 65'536);  // The dropped write is not among it.
}

}  // namespace capstan
