#include "domain/launch-rules.h"

#include "support/test.h"

namespace capstan {

namespace {

LaunchSpec launchOf(std::initializer_list<kj::StringPtr> words) {
  LaunchSpec spec;
  auto builder = kj::heapArrayBuilder<kj::String>(words.size());
  for (auto word: words)
    builder.add(kj::str(word));
  spec.command = builder.finish();
  return spec;
}

Variable variable(kj::StringPtr key, kj::StringPtr value) {
  Variable result;
  result.key = kj::str(key);
  result.literal = kj::str(value);
  result.origin = Origin::MANAGED_RUNTIME;
  return result;
}

kj::String fieldOf(const Outcome& outcome) {
  KJ_IF_MAYBE (problem, outcome) {
    CHECK(problem->code == ErrorCode::INVALID_ARGUMENT);
    return kj::str(problem->field);
  }
  return kj::str("(fine)");
}

kj::String shown(Result<Resolution> result) {
  if (result.is<Problem>()) {
    return kj::str(errorCodeName(result.get<Problem>().code), " ", result.get<Problem>().field);
  }
  auto lines = KJ_MAP(each, result.get<Resolution>().variables) {
    return kj::str(each.key, "=", each.value);
  };
  return kj::strArray(lines, " ");
}

const ProcessIdentity NOBODY{"t-1"_kj, "env-1"_kj, ""_kj, ""_kj};

}  // namespace

TEST_CASE("a launch that no runtime could start is refused by field") {
  Limits limits;
  CHECK(fieldOf(checkLaunch(launchOf({"true"}), limits)) == "(fine)");
  CHECK(fieldOf(checkLaunch(launchOf({}), limits)) == "spec.command");
  CHECK(fieldOf(checkLaunch(launchOf({""}), limits)) == "spec.command");
  CHECK(fieldOf(checkLaunch(launchOf({"a", kj::StringPtr("b\0c", 3)}), limits)) ==
        "spec.command[1]");

  auto spec = launchOf({"true"});
  spec.variables = kj::arr(variable("A", "1"), variable("B=C", "2"));
  CHECK(fieldOf(checkLaunch(spec, limits)) == "spec.variables[1].key");
  spec.variables = kj::arr(variable("A", kj::StringPtr("x\0y", 3)));
  CHECK(fieldOf(checkLaunch(spec, limits)) == "spec.variables[0].literal");
  spec.variables = kj::arr(variable("A", "1"));
  spec.variables[0].origin = Origin::UNSET;
  CHECK(fieldOf(checkLaunch(spec, limits)) == "spec.variables[0].origin");
}

TEST_CASE("a launch's size is bounded exactly") {
  Limits limits;
  limits.commandBytes = 10;
  CHECK(fieldOf(checkLaunch(launchOf({"1234", "6789"}), limits)) == "(fine)");
  CHECK(fieldOf(checkLaunch(launchOf({"1234", "67890"}), limits)) == "spec.command");
  limits.commandWords = 1;
  CHECK(fieldOf(checkLaunch(launchOf({"a", "b"}), limits)) == "spec.command");
}

TEST_CASE("an environment's workspace must be an absolute path") {
  Limits limits;
  EnvironmentSpec spec;
  CHECK(fieldOf(checkEnvironment(spec, limits, Caller::ADMINISTRATOR)) == "(fine)");
  spec.workspace = WorkspaceSpec::ofDirectory(kj::str("/tmp"));
  CHECK(fieldOf(checkEnvironment(spec, limits, Caller::ADMINISTRATOR)) == "(fine)");
  spec.workspace = WorkspaceSpec::ofDirectory(kj::str("tmp"));
  CHECK(fieldOf(checkEnvironment(spec, limits, Caller::ADMINISTRATOR)) ==
        "spec.workspace.directory");
  spec.workspace = WorkspaceSpec();
  spec.labels.add(Label{kj::str("  "), kj::str("x")});
  CHECK(fieldOf(checkEnvironment(spec, limits, Caller::ADMINISTRATOR)) == "spec.labels[0]");
}

TEST_CASE("a variable's origin must be one, with names of a usable size") {
  Limits limits;
  auto spec = launchOf({"true"});
  spec.variables = kj::arr(variable("A", "1"));
  auto& given = spec.variables[0];
  given.origin = Origin::REPOSITORY;
  CHECK(fieldOf(checkLaunch(spec, limits)) == "spec.variables[0].secret");
  given.secret = kj::str("token");
  CHECK(fieldOf(checkLaunch(spec, limits)) == "(fine)");
  limits.textBytes = 5;
  CHECK(fieldOf(checkLaunch(spec, limits)) == "(fine)");
  given.repository = kj::str("longer");
  CHECK(fieldOf(checkLaunch(spec, limits)) == "spec.variables[0].repository");
  given.repository = kj::str("a\0b"_kj);
  CHECK(fieldOf(checkLaunch(spec, limits)) == "spec.variables[0].repository");
}

TEST_CASE("only the agreed names are inherited from the daemon") {
  for (auto name: {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "PATH"}) {
    INFO(name);
    CHECK(isInheritedName(name));
  }
  for (auto name: {"CAPSTAN_TOKEN", "SSH_AUTH_SOCK", "LD_PRELOAD", "HOMEX", "LC", "path"}) {
    INFO(name);
    CHECK_FALSE(isInheritedName(name));
  }
}

TEST_CASE("a process's variables: the place's, Capstan's, then the launch's") {
  auto inherited = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/bin")},
                           ProcessVariable{kj::str("HOME"), kj::str("/root")});
  auto spec = kj::arr(variable("PATH", "/opt/bin"), variable(" ", "skipped"), variable("X", "1"));
  CHECK(shown(assembleVariables(inherited, NOBODY, spec, nullptr)) ==
        "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_TASK_ID=t-1 HOME=/root PATH=/opt/bin X=1");

  ProcessIdentity whole{"t-1"_kj, "env-1"_kj, "s-1"_kj, "r-1"_kj};
  CHECK(shown(assembleVariables(nullptr, whole, nullptr, nullptr)) ==
        "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_RUN_ID=r-1 CAPSTAN_SESSION_ID=s-1 "
        "CAPSTAN_TASK_ID=t-1");
}

TEST_CASE("contradicting definitions are a conflict that names the key and no value") {
  auto twice = kj::arr(variable("X", "planted-secret-1"), variable("X", "planted-secret-2"));
  auto refused = assembleVariables(nullptr, NOBODY, twice, nullptr);
  CHECK(refused.get<Problem>().code == ErrorCode::VARIABLE_CONFLICT);
  CHECK(refused.get<Problem>().field == "variables.X");
  CHECK(std::string_view(kj::str(refused.get<Problem>()).cStr()).find("planted") ==
        std::string_view::npos);

  auto same = kj::arr(variable("X", "1"), variable("X", "1"));
  CHECK(shown(assembleVariables(nullptr, NOBODY, same, nullptr)) ==
        "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_TASK_ID=t-1 X=1");
  auto forged = kj::arr(variable("CAPSTAN_TASK_ID", "t-2"));
  CHECK(shown(assembleVariables(nullptr, NOBODY, forged, nullptr)) ==
        "variableConflict variables.CAPSTAN_TASK_ID");
}

TEST_CASE("a secret that is not bound is not found") {
  auto byName = kj::arr(variable("K", ""));
  byName[0].secret = kj::str("token");
  CHECK(shown(assembleVariables(nullptr, NOBODY, byName, nullptr)) == "notFound variables.K");
}

TEST_CASE("a differing --env for a CAPSTAN_ variable is a conflict of managed runtime") {
  auto forged = kj::arr(variable("CAPSTAN_TASK_ID", "planted-t-2"));
  auto refused = assembleVariables(nullptr, NOBODY, forged, nullptr);
  CHECK(refused.get<Problem>().cause == "defined by managed runtime");

  auto agrees = kj::arr(variable("CAPSTAN_TASK_ID", "t-1"));
  CHECK(shown(assembleVariables(nullptr, NOBODY, agrees, nullptr)) ==
        "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_TASK_ID=t-1");
}

TEST_CASE("what the place offers is below everything and never recorded") {
  auto inherited = kj::arr(ProcessVariable{kj::str("LANG"), kj::str("C")},
                           ProcessVariable{kj::str("CAPSTAN_TASK_ID"), kj::str("outer")});
  auto spec = kj::arr(variable("LANG", "C.UTF-8"));
  spec[0].origin = Origin::MANAGED_AGENT_DEFAULTS;
  auto result = assembleVariables(inherited, NOBODY, spec, nullptr);
  CHECK(result.get<Resolution>().overrides.size() == 0);
  CHECK(result.get<Resolution>().decisions.size() == 3);
  CHECK(shown(kj::mv(result)) == "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_TASK_ID=t-1 LANG=C.UTF-8");
}

TEST_CASE("a blank entry of a profile hides nothing, a blank --env does") {
  auto spec = kj::arr(variable("BLANK", ""), variable("BLANK", "kept"), variable("GIVEN", ""));
  spec[0].origin = Origin::EXECUTOR_PROFILE;
  spec[1].origin = Origin::AGENT_PROFILE;
  CHECK(shown(assembleVariables(nullptr, NOBODY, spec, nullptr)) ==
        "BLANK=kept CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_TASK_ID=t-1 GIVEN=");
}

TEST_CASE("a revealed secret is marked as one") {
  auto byName = kj::arr(variable("K", ""));
  byName[0].secret = kj::str("token");
  RevealSecret reveal = [](const VariableDecision& winner) -> Result<kj::String> {
    return kj::str("opened ", winner.secret);
  };
  auto result = assembleVariables(nullptr, NOBODY, byName, reveal);
  auto& variables = result.get<Resolution>().variables;
  REQUIRE(variables.size() == 3);
  CHECK(variables[2].value == "opened token");
  CHECK(variables[2].secret);
  CHECK_FALSE(variables[0].secret);
}

}  // namespace capstan
