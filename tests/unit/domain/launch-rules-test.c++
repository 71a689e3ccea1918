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

kj::String shown(Result<kj::Array<ProcessVariable>> result) {
  if (result.is<Problem>()) {
    return kj::str(errorCodeName(result.get<Problem>().code), " ", result.get<Problem>().field);
  }
  auto lines = KJ_MAP(each, result.get<kj::Array<ProcessVariable>>()) {
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
  CHECK(fieldOf(checkEnvironment(spec, limits)) == "(fine)");
  spec.directory = kj::str("/tmp");
  CHECK(fieldOf(checkEnvironment(spec, limits)) == "(fine)");
  spec.directory = kj::str("tmp");
  CHECK(fieldOf(checkEnvironment(spec, limits)) == "spec.workspace.directory");
  spec.directory = nullptr;
  spec.labels.add(Label{kj::str("  "), kj::str("x")});
  CHECK(fieldOf(checkEnvironment(spec, limits)) == "spec.labels[0]");
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
  CHECK(shown(assembleVariables(inherited, NOBODY, spec)) ==
        "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_TASK_ID=t-1 HOME=/root PATH=/opt/bin X=1");

  ProcessIdentity whole{"t-1"_kj, "env-1"_kj, "s-1"_kj, "r-1"_kj};
  CHECK(shown(assembleVariables(nullptr, whole, nullptr)) ==
        "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_RUN_ID=r-1 CAPSTAN_SESSION_ID=s-1 "
        "CAPSTAN_TASK_ID=t-1");
}

TEST_CASE("contradicting definitions are a conflict that names the key and no value") {
  auto twice = kj::arr(variable("X", "planted-secret-1"), variable("X", "planted-secret-2"));
  auto refused = assembleVariables(nullptr, NOBODY, twice);
  CHECK(refused.get<Problem>().code == ErrorCode::VARIABLE_CONFLICT);
  CHECK(refused.get<Problem>().field == "variables.X");
  CHECK(std::string_view(kj::str(refused.get<Problem>()).cStr()).find("planted") ==
        std::string_view::npos);

  auto same = kj::arr(variable("X", "1"), variable("X", "1"));
  CHECK(shown(assembleVariables(nullptr, NOBODY, same)) ==
        "CAPSTAN_ENVIRONMENT_ID=env-1 CAPSTAN_TASK_ID=t-1 X=1");
  auto forged = kj::arr(variable("CAPSTAN_TASK_ID", "t-2"));
  CHECK(shown(assembleVariables(nullptr, NOBODY, forged)) ==
        "variableConflict variables.CAPSTAN_TASK_ID");
}

TEST_CASE("a secret that is not bound is not found") {
  auto byName = kj::arr(variable("K", ""));
  byName[0].secret = kj::str("token");
  CHECK(shown(assembleVariables(nullptr, NOBODY, byName)) == "notFound variables.K");
}

}  // namespace capstan
