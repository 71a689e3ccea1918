#include "domain/variables-assembly.h"

#include "unit/domain/variables-support.h"

namespace capstan {

using test::bySecret;
using test::defined;
using test::shown;

namespace {

kj::Array<Variable> joined(kj::Array<Variable> one, kj::Array<Variable> other) {
  auto all = kj::heapArrayBuilder<Variable>(one.size() + other.size());
  for (auto& each: one)
    all.add(kj::mv(each));
  for (auto& each: other)
    all.add(kj::mv(each));
  return all.finish();
}

// Both profiles resolved together.
kj::String launched(kj::Array<Variable> executor, kj::Array<Variable> agent) {
  auto all =
      joined(executorProfileDefinitions(executor, AssemblyPath::PRIMARY, PreferredShell::NONE),
             agentProfileDefinitions(agent));
  RevealSecret reveal = [](const VariableDecision& winner) -> Result<kj::String> {
    return kj::str("<", winner.secret, ">");
  };
  return shown(resolveVariables(all, reveal));
}

kj::String keysOf(kj::ArrayPtr<const Variable> definitions) {
  return kj::strArray(KJ_MAP(each, definitions) { return kj::str(each.key); }, " ");
}

kj::String fieldOf(kj::Array<Variable> entries) {
  KJ_IF_MAYBE (problem, checkAgentProfileVariables(entries)) {
    CHECK(problem->code == ErrorCode::INVALID_ARGUMENT);
    CHECK(std::string_view(kj::str(*problem).cStr()).find("planted") == std::string_view::npos);
    return kj::str(problem->field);
  }
  return kj::str("(fine)");
}

}  // namespace

TEST_CASE("assembly: an executor profile with a key twice conflicts with itself (6a)") {
  CHECK(launched(kj::arr(defined("", "K", "1"), defined("", "K", "2")), nullptr) ==
        "variableConflict variables.K defined by executor profile");
}

TEST_CASE("assembly: a blank entry is skipped on all three paths (AC-38, 38b)") {
  auto entries = kj::arr(defined("", "A", ""), defined("", "B", "b"));
  CHECK(keysOf(executorProfileDefinitions(entries, AssemblyPath::PRIMARY, PreferredShell::NONE)) ==
        "B");
  CHECK(keysOf(executorProfileDefinitions(entries, AssemblyPath::RECOVERY, PreferredShell::NONE)) ==
        "B");
  CHECK(keysOf(agentProfileDefinitions(entries)) == "B");
}

TEST_CASE("assembly: an entry with one field blank is kept") {
  CHECK(launched(kj::arr(defined("", "A", "a"), bySecret("", "B", "b")), nullptr) == "A=a B=<b>");
}

TEST_CASE("assembly: a blank executor entry cannot override with nothing (AC-38a, 38c)") {
  CHECK(launched(kj::arr(defined("", "K", "")), kj::arr(defined("", "K", "Y"))) == "K=Y");
}

TEST_CASE("assembly: a blank entry alone leaves the key away") {
  CHECK(launched(kj::arr(defined("", "K", "")), nullptr) == "");
}

TEST_CASE("assembly: an executor's value alone is taken, without a record (AC-39)") {
  CHECK(launched(kj::arr(defined("", "K", "X")), nullptr) == "K=X");
}

TEST_CASE("assembly: differing literals on both profiles now give the executor's (AC-49)") {
  CHECK(launched(kj::arr(defined("", "K", "X")), kj::arr(defined("", "K", "Y"))) ==
        "K=X; K: executor profile 1 over agent profile 2");
  CHECK(launched(kj::arr(defined("", "K", "X")), kj::arr(defined("", "K", "X"))) == "K=X");
  CHECK(launched(kj::arr(bySecret("", "K", "s")), kj::arr(defined("", "K", "Y"))) ==
        "variableConflict variables.K defined by agent profile, executor profile");
}

TEST_CASE("assembly: an executor's value for a managed key conflicts (AC-40)") {
  auto executor = executorProfileDefinitions(kj::arr(defined("", "CAPSTAN_TASK_ID", "t-9")),
                                             AssemblyPath::PRIMARY, PreferredShell::NONE);
  auto all =
      joined(kj::mv(executor), kj::arr(defined("managed runtime", "CAPSTAN_TASK_ID", "t-1")));
  CHECK(shown(resolveVariables(all, nullptr)) ==
        "variableConflict variables.CAPSTAN_TASK_ID defined by executor profile, managed runtime");
}

TEST_CASE("assembly: a profile's entry cannot claim another origin") {
  auto entries = kj::arr(defined("managed runtime", "K", "X"));
  CHECK(agentProfileDefinitions(entries)[0].origin == Origin::AGENT_PROFILE);
  CHECK(
      executorProfileDefinitions(entries, AssemblyPath::RECOVERY, PreferredShell::NONE)[0].origin ==
      Origin::EXECUTOR_PROFILE);
}

TEST_CASE("assembly: a preferred shell replaces the executor's, on the primary path only") {
  auto entries = kj::arr(defined("", "SHELL", "/bin/zsh"),
                         defined("", "AGENTCTL_SHELL_COMMAND", "zsh"), defined("", "SHELLS", "x"));
  auto keys = [&](AssemblyPath path, PreferredShell shell) {
    return keysOf(executorProfileDefinitions(entries, path, shell));
  };
  CHECK(keys(AssemblyPath::PRIMARY, PreferredShell::APPLIES) == "SHELLS");
  CHECK(keys(AssemblyPath::PRIMARY, PreferredShell::NONE) == "SHELL AGENTCTL_SHELL_COMMAND SHELLS");
  CHECK(keys(AssemblyPath::RECOVERY, PreferredShell::APPLIES) ==
        "SHELL AGENTCTL_SHELL_COMMAND SHELLS");
  CHECK(keysOf(agentProfileDefinitions(entries)) == "SHELL AGENTCTL_SHELL_COMMAND SHELLS");
}

TEST_CASE("assembly: what is captured does not see a later edit of the profile (AC-42)") {
  auto executor = kj::arr(defined("", "K", "before"));
  auto agent = kj::arr(defined("", "L", "before"));
  auto captured = executorProfileDefinitions(executor, AssemblyPath::PRIMARY, PreferredShell::NONE);
  executor[0].literal = kj::str("after");
  agent[0].literal = kj::str("after");
  CHECK(shown(resolveVariables(joined(kj::mv(captured), agentProfileDefinitions(agent)),
                               nullptr)) == "K=before L=after");
}

TEST_CASE("assembly: nothing of the profile is changed by a launch (AC-47)") {
  auto entries = kj::arr(defined("managed runtime", "K", ""), defined("", "SHELL", "/bin/sh"));
  executorProfileDefinitions(entries, AssemblyPath::PRIMARY, PreferredShell::APPLIES);
  CHECK(keysOf(entries) == "K SHELL");
  CHECK(entries[0].origin == Origin::MANAGED_RUNTIME);
}

TEST_CASE("assembly: what counts as a blank entry of a profile") {
  CHECK(isBlankProfileEntry(defined("executor profile", "K", "")));
  CHECK(isBlankProfileEntry(defined("agent profile", "K", "")));
  CHECK_FALSE(isBlankProfileEntry(defined("managed runtime", "K", "")));
  CHECK_FALSE(isBlankProfileEntry(defined("agent profile", "K", " ")));
  CHECK_FALSE(isBlankProfileEntry(bySecret("agent profile", "K", "s")));
}

TEST_CASE("assembly: what an agent profile may hold (AC-40)") {
  CHECK(fieldOf(kj::arr(defined("", "A", "1"), bySecret("", "B", "s"))) == "(fine)");
  CHECK(fieldOf(nullptr) == "(fine)");
  CHECK(fieldOf(kj::arr(defined("", "A", "1"), defined("", "B", ""))) == "variables[1]");
  CHECK(fieldOf(kj::arr(defined("", "A", "planted-1"), defined("", "A", "planted-2"))) ==
        "variables[1].key");
  CHECK(fieldOf(kj::arr(defined("", "TASK_DESCRIPTION", "planted"))) == "variables[0].key");
  CHECK(fieldOf(kj::arr(defined("", "CAPSTAN_X", "planted"))) == "variables[0].key");
  CHECK(fieldOf(kj::arr(defined("", "CAPSTANX", "1"))) == "(fine)");
  CHECK(fieldOf(kj::arr(defined("", "A=planted", "1"))) == "variables[0].key");
  CHECK(fieldOf(kj::arr(defined("", "A", "planted\0"_kj))) == "variables[0].literal");
}

}  // namespace capstan
