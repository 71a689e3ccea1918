// Agents as their makers publish them, driven through the client library.
#include "client/lines.h"
#include "real/daemon.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan {
namespace {

using namespace test;

// The folder with the agents, installed on first use. Skips the case where they cannot be had.
kj::StringPtr agents(IoLoop& loop) {
  static std::string reason;
  static int code = -1;
  auto folder = setting("CAPSTAN_NPM_DIR");
  if (code < 0) {
    TempDir directory;
    auto said = directory / "stderr";
    KJ_ASSERT(mkdir(folder.cStr(), 0755) == 0 || errno == EEXIST, "cannot make", folder);
    kj::Vector<kj::String> variables;
    for (char** each = environ; *each != nullptr; ++each)
      variables.add(kj::str(*each));
    Child::Streams streams;
    kj::AutoCloseFd file(creat(said.cStr(), 0600));
    streams.err = file;
    Child install(kj::arr(setting("CAPSTAN_NPM_INSTALL"), folder), variables, streams);
    auto status = install.ends(loop, 320 * kj::SECONDS);
    code = WEXITSTATUS(status.orDefault(0xff00));
    reason = contentOf(said);
    if (code == 77) reason = reason.substr(reason.rfind('\n', reason.size() - 2) + 1);
  }
  if (code == 77) SKIP(reason);
  INFO(reason);
  REQUIRE(code == 0);
  return folder;
}

// codex-acp complains when this is in the folder for temporary files.
kj::String agentHome(kj::StringPtr folder) {
  auto home = kj::str(folder, "/home");
  KJ_ASSERT(mkdir(home.cStr(), 0700) == 0 || errno == EEXIST, "cannot make", home);
  return home;
}

kj::String program(kj::StringPtr folder, kj::StringPtr name) {
  return kj::str(folder, "/node_modules/.bin/", name);
}

// A session of `words` in an environment of its own, attached.
struct Agent {
  rpc::TaskEnvironment::Client environment;
  Launched launched;
  kj::Own<AttachedProcess> process;
};
Agent start(IoLoop& loop, Daemon& daemon, std::initializer_list<kj::StringPtr> words) {
  auto environment = daemon.environment("agent");
  Command command(words);
  command.whenFull = Command::WhenFull::PAUSE;
  auto launched = awaitResult(loop, launch(environment, kj::mv(command)));
  auto process = awaitResult(loop, AttachedProcess::attach(launched.run));
  return Agent{environment, kj::mv(launched), kj::mv(process)};
}

std::string request(int id, const std::string& method, const std::string& params) {
  return R"({"jsonrpc":"2.0","id":)" + std::to_string(id) + R"(,"method":")" + method +
         R"(","params":)" + params + "}";
}

std::string answerTo(int id) { return "\"id\":" + std::to_string(id); }

// Each request goes out after the answer to the last, so that the order of what comes is fixed.
std::vector<Step> toolDialogue() {
  return {
      {request(1, "initialize",
               R"({"protocolVersion":"2025-06-18","capabilities":{},)"
               R"("clientInfo":{"name":"capstan-test","version":"1"}})"),
       answerTo(1)},
      {R"({"jsonrpc":"2.0","method":"notifications/initialized"})",
       "notifications/tools/list_changed"},
      {request(2, "tools/list", "{}"), answerTo(2)},
      {request(3, "tools/call", R"({"name":"get-sum","arguments":{"a":19,"b":23}})"), answerTo(3)},
      {request(4, "tools/call", R"({"name":"no-such-tool","arguments":{}})"), answerTo(4)},
  };
}

std::string readToEnd(IoLoop& loop, kj::AsyncInputStream& from) {
  auto bytes = await(loop, from.readAllBytes(16u << 20));
  return std::string(bytes.asChars().begin(), bytes.size());
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A megabyte and more of JSON string content: every width of UTF-8, what JSON has to escape, as
// JSON.stringify writes it.
std::string largeMessage() {
  const std::string piece =
      "plain \\\"quoted\\\" back\\\\slash\\n\\ttab \\u0001 "
      "\xc3\xa4\xc3\x9f \xe2\x82\xac\xe6\xbc\xa2 \xf0\x9f\x9a\x80\xf0\x90\x8d\x88 / \x7f ";
  std::string message;
  for (int i = 0; message.size() < (1u << 20); ++i)
    message += std::to_string(i) + ": " + piece;
  return message;
}

}  // namespace

TEST_CASE("server-everything: initialize, list tools, call one, as run directly") {
  IoLoop loop;
  auto folder = agents(loop);
  auto home = agentHome(folder);
  auto server = program(folder, "mcp-server-everything");
  Daemon daemon(loop, home);
  auto agent = start(loop, daemon, {server, "stdio"_kj});
  auto& process = *agent.process;

  auto through = await(loop, converse(process.input(), process.output(), toolDialogue()));
  CHECK(contains(through, R"("serverInfo":{"name":"mcp-servers/everything")"));
  CHECK(contains(through, R"({"name":"echo","title":"Echo Tool")"));
  CHECK(contains(through, R"("text":"The sum of 19 and 23 is 42.")"));
  CHECK(contains(through, "no-such-tool"));
  CHECK(contains(std::string(process.errors().cStr()), "Starting default (STDIO) server..."));

  // The end of its input ends the server.
  await(loop, process.endInput());
  through += readToEnd(loop, process.output());
  auto exit = awaitResult(loop, process.exit());
  CHECK(kj::str(exit) == "exit code 0");
  CHECK(process.lost() == 0);

  DirectProcess direct(loop, kj::arr(server.asPtr(), "stdio"_kj), home);
  auto expected = await(loop, converse(direct.input(), direct.output(), toolDialogue()));
  direct.endInput();
  expected += readToEnd(loop, direct.output());
  CHECK(KJ_ASSERT_NONNULL(direct.child().ends(loop)) == 0);
  // Nothing is masked: no answer holds a time or anything random.
  CHECK(through.size() > 4096);
  CHECK((through == expected));
  CHECK(direct.errors() == process.errors().cStr());
  CHECK_FALSE(contains(through, "Starting default"));
}

TEST_CASE("server-everything: a megabyte of UTF-8 comes back octet by octet") {
  IoLoop loop;
  auto folder = agents(loop);
  auto server = program(folder, "mcp-server-everything");
  Daemon daemon(loop, agentHome(folder));
  auto agent = start(loop, daemon, {server, "stdio"_kj});
  auto& process = *agent.process;
  auto steps = toolDialogue();
  steps.resize(2);
  await(loop, converse(process.input(), process.output(), kj::mv(steps)));

  LineReader lines(process.output());
  auto message = largeMessage();
  for (int id: {7, 8}) {
    auto question =
        request(id, "tools/call", R"({"name":"echo","arguments":{"message":")" + message + "\"}}") +
        "\n";
    auto writing = process.input().write(question.data(), question.size());
    auto line = await(loop, lines.next());
    await(loop, kj::mv(writing));
    auto expected = R"({"result":{"content":[{"type":"text","text":"Echo: )" + message +
                    R"("}]},"jsonrpc":"2.0","id":)" + std::to_string(id) + "}";
    auto& got = KJ_ASSERT_NONNULL(line);
    CHECK(got.size() == expected.size());
    CHECK((expected == std::string_view(got.begin(), got.size())));
  }
  CHECK(process.lost() == 0);
}

TEST_CASE("server-everything: a stopped session ends the agent") {
  IoLoop loop;
  auto folder = agents(loop);
  auto server = program(folder, "mcp-server-everything");
  Daemon daemon(loop, agentHome(folder));
  auto agent = start(loop, daemon, {server, "stdio"_kj});
  auto& process = *agent.process;
  await(loop, converse(process.input(), process.output(), toolDialogue()));
  auto info = await(loop, agent.launched.session.infoRequest().send());
  auto pid = info.getInfo().getPid();
  REQUIRE(kill(pid, 0) == 0);

  auto exit = awaitResult(loop, stop(agent.launched.session, 5 * kj::SECONDS));
  CHECK(kj::str(exit) == kj::str(awaitResult(loop, process.exit())));
  CHECK(kj::str(exit) == "signal TERM");
  CHECK(readToEnd(loop, process.output()).empty());
  CHECK(kill(pid, 0) != 0);
  auto after = await(loop, agent.launched.session.infoRequest().send());
  CHECK(after.getInfo().getState() == rpc::SessionState::STOPPED);
  CHECK(after.getInfo().getDescendants() == 0);
}

TEST_CASE("codex-acp answers initialize, as run directly, and is stopped") {
  IoLoop loop;
  auto folder = agents(loop);
  auto home = agentHome(folder);
  auto codex = program(folder, "codex-acp");
  std::vector<Step> dialogue = {
      {request(0, "initialize",
               R"({"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,)"
               R"("writeTextFile":false},"terminal":false}})"),
       answerTo(0)}};
  Daemon daemon(loop, home);
  auto agent = start(loop, daemon, {codex});
  auto& process = *agent.process;
  auto through = await(loop, converse(process.input(), process.output(), dialogue));
  CHECK(contains(through, R"("protocolVersion":1)"));
  CHECK(
      contains(through, R"("agentInfo":{"name":"codex-acp","title":"Codex","version":"0.16.0"})"));
  CHECK(through.ends_with("}\n"));

  // Its launcher starts the agent proper as a child: both have to go.
  auto info = await(loop, agent.launched.session.infoRequest().send());
  auto pid = info.getInfo().getPid();
  int child = std::atoi(contentOf(kj::str("/proc/", pid, "/task/", pid, "/children")).c_str());
  REQUIRE(child > 0);
  auto exit = awaitResult(loop, stop(agent.launched.session, 5 * kj::SECONDS));
  CHECK(kj::str(exit) == kj::str(awaitResult(loop, process.exit())));
  through += readToEnd(loop, process.output());
  CHECK(kill(pid, 0) != 0);
  CHECK(kill(child, 0) != 0);

  DirectProcess direct(loop, kj::arr(codex.asPtr()), home);
  auto expected = await(loop, converse(direct.input(), direct.output(), dialogue));
  direct.child().signal(SIGTERM);
  CHECK(direct.child().ends(loop) != nullptr);
  expected += readToEnd(loop, direct.output());
  // Nothing is masked: the answer holds no time and nothing random.
  CHECK(through == expected);
}

}  // namespace capstan
