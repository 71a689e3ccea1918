// A developer's usual tools, run as sessions in an environment.
#include "real/daemon.h"

#include <algorithm>
#include <fstream>
#include <sys/wait.h>

namespace capstan {
namespace {

using namespace test;

// One environment, and commands in it, each a session of its own.
class Shell {
public:
  Shell(IoLoop& loop, Daemon& daemon): loop(loop), environment(daemon.environment("tools")) {}

  Collected run(std::initializer_list<kj::StringPtr> words, kj::StringPtr directory = ""_kj) {
    Command command(words);
    command.directory = kj::str(directory);
    for (auto name: {"AUTHOR"_kj, "COMMITTER"_kj}) {
      command.variables.add(
          LiteralVariable{kj::str("GIT_", name, "_NAME"), kj::str("T\xc3\xa4st")});
      command.variables.add(
          LiteralVariable{kj::str("GIT_", name, "_EMAIL"), kj::str("test@example.invalid")});
    }
    command.variables.add(LiteralVariable{kj::str("GIT_CONFIG_GLOBAL"), kj::str("/dev/null")});
    command.variables.add(LiteralVariable{kj::str("GIT_CONFIG_NOSYSTEM"), kj::str("1")});
    auto launched = awaitResult(loop, launch(environment, kj::mv(command)));
    return awaitResult(loop, collect(launched.run));
  }
  // What it says on stdout; fails the case unless it succeeds.
  kj::String must(std::initializer_list<kj::StringPtr> words, kj::StringPtr directory = ""_kj) {
    auto collected = run(words, directory);
    INFO(kj::strArray(kj::heapArray(words.begin(), words.size()), " ").cStr());
    INFO(collected.err.cStr());
    REQUIRE(kj::str(collected.exit) == "exit code 0");
    CHECK(collected.dropped == 0);
    return kj::mv(collected.out);
  }

private:
  IoLoop& loop;
  rpc::TaskEnvironment::Client environment;
};

// The same program outside; its stdout.
std::string outside(IoLoop& loop, kj::StringPtr home, kj::ArrayPtr<const kj::StringPtr> words) {
  DirectProcess process(loop, words, home);
  process.endInput();
  auto bytes = await(loop, process.output().readAllBytes(1u << 20));
  INFO(process.errors());
  REQUIRE(KJ_ASSERT_NONNULL(process.child().ends(loop)) == 0);
  return std::string(bytes.asChars().begin(), bytes.size());
}

void needProgram(IoLoop& loop, kj::StringPtr home, kj::StringPtr name) {
  try {
    outside(loop, home, kj::arr(name, "--version"_kj));
  } catch (const kj::Exception&) {
    SKIP("no " << name.cStr() << " on this machine");
  }
}

// Every octet value, for what must not be changed on the way.
std::string allOctets() {
  std::string octets;
  for (int i = 0; i < 256; ++i)
    octets += static_cast<char>(i);
  return octets;
}

}  // namespace

TEST_CASE("git in an environment: clone, commit, push") {
  IoLoop loop;
  TempDir directory;
  auto home = directory.path();
  needProgram(loop, home, "git");
  auto bare = directory / "origin.git";
  auto url = kj::str("file://", bare);
  outside(loop, home,
          kj::arr("git"_kj, "init"_kj, "-q"_kj, "--bare"_kj, "-b"_kj, "main"_kj, bare.asPtr()));
  auto octets = allOctets();
  auto source = directory / "octets";
  std::ofstream(source.cStr(), std::ios::binary) << octets;

  Daemon daemon(loop, home);
  Shell shell(loop, daemon);
  auto cloned = shell.run({"git", "clone", url, "work"});
  INFO(cloned.err.cStr());
  REQUIRE(cloned.exit.succeeded());
  // git tells people on stderr and programs on stdout.
  CHECK(std::string(cloned.err.cStr()).find("Cloning into 'work'") == 0);
  CHECK(cloned.out == "");

  shell.must({"cp", source, "octets"}, "work");
  shell.must({"git", "checkout", "-q", "-B", "main"}, "work");
  shell.must({"git", "add", "octets"}, "work");
  shell.must({"git", "commit", "-q", "-m", "Alle Bytes: \xe2\x82\xac"}, "work");
  shell.must({"git", "push", "-q", "origin", "main"}, "work");
  CHECK(shell.must({"git", "status", "--porcelain"}, "work") == "");
  auto shown = shell.must({"git", "show", "main:octets"}, "work");
  CHECK((std::string(shown.begin(), shown.size()) == octets));
  auto head = shell.must({"git", "rev-parse", "HEAD"}, "work");

  // Seen from outside, the commit is where it was pushed to.
  auto gitDir = kj::str("--git-dir=", bare);
  CHECK(outside(loop, home, kj::arr("git"_kj, gitDir.asPtr(), "rev-parse"_kj, "main"_kj)) ==
        head.cStr());
  CHECK(outside(loop, home,
                kj::arr("git"_kj, gitDir.asPtr(), "log"_kj, "--format=%an|%s"_kj, "main"_kj)) ==
        "T\xc3\xa4st|Alle Bytes: \xe2\x82\xac\n");
  CHECK((outside(loop, home, kj::arr("git"_kj, gitDir.asPtr(), "show"_kj, "main:octets"_kj)) ==
         octets));

  auto refused = shell.run({"git", "clone", "file:///nowhere/at-all.git", "other"});
  CHECK(kj::str(refused.exit) == "exit code 128");
  CHECK(refused.out == "");
  CHECK(std::string(refused.err.cStr()).find("fatal:") != std::string::npos);
}

TEST_CASE("make in an environment: a project's tests, good and bad") {
  IoLoop loop;
  TempDir directory;
  auto home = directory.path();
  needProgram(loop, home, "make");
  std::ofstream((directory / "Makefile").cStr())
      << "parts = $(patsubst %,part-%,1 2 3 4 5 6 7 8)\n"
         "all: program\n"
         "part-%:\n\t@echo \"echo $*\" > $@\n"
         "program: $(parts)\n\tcat $^ > $@\n\tchmod +x $@\n"
         "test: program\n\t@sh ./program | sort -n | tail -n 1 > result\n"
         "\t@test \"`cat result`\" = 8 && echo all good\n"
         "broken:\n\t@echo seen before; exit 7\n";

  Daemon daemon(loop, home);
  Shell shell(loop, daemon);
  shell.must({"mkdir", "project"});
  shell.must({"cp", directory / "Makefile", "project/Makefile"});
  auto out = shell.must({"make", "-j4", "test"}, "project");
  CHECK(std::string(out.cStr()).ends_with("all good\n"));
  // A second time nothing is to be built.
  CHECK(shell.must({"make", "test"}, "project") == "all good\n");

  auto bad = shell.run({"make", "broken"}, "project");
  CHECK(kj::str(bad.exit) == "exit code 2");
  CHECK(bad.out == "seen before\n");
  CHECK(std::string(bad.err.cStr()).find("Error 7") != std::string::npos);
}

}  // namespace capstan
