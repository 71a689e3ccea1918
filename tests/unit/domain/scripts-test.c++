// Placeholders of scripts and the options that a profile gives them.
#include "domain/scripts.h"

#include "support/test.h"

#include <cstring>

namespace capstan {

namespace {

kj::String filled(kj::StringPtr script) {
  auto result = fillScript(script, "prepareScript");
  if (result.is<Problem>()) return kj::str("problem: ", result.get<Problem>());
  return kj::mv(result.get<kj::String>());
}

Problem refusal(kj::StringPtr script) {
  auto result = fillScript(script, "prepareScript");
  REQUIRE(result.is<Problem>());
  return kj::mv(result.get<Problem>());
}

bool contains(kj::StringPtr text, kj::StringPtr part) {
  return std::strstr(text.cStr(), part.cStr()) != nullptr;
}

Result<ScriptOptions> options(kj::StringPtr key, kj::StringPtr value) {
  auto config = kj::arr(Label{kj::str(key), kj::str(value)});
  return readScriptOptions(config);
}

}  // namespace

TEST_CASE("every placeholder becomes a quoted variable, and every one has its variable") {
  constexpr kj::StringPtr NAMES[] = {"workspace"_kj,  "task_id"_kj,        "task_title"_kj,
                                     "session_id"_kj, "environment_id"_kj, "repository_url"_kj,
                                     "branch"_kj,     "git_user_name"_kj,  "git_user_email"_kj};
  ScriptFacts facts;
  facts.taskTitle = "it's $(x)";
  auto variables = scriptVariables(facts);
  CHECK(variables.size() == kj::size(NAMES));
  for (auto& name: NAMES) {
    INFO(name);
    auto text = filled(kj::str("{{", name, "}}"));
    bool found = false;
    for (auto& variable: variables) {
      found = found || text == kj::str("\"$", variable.key, '"');
    }
    CHECK(found);
  }
  CHECK(filled("cd {{workspace}}/x && echo {{task_title}}{{branch}}") ==
        "cd \"$CAPSTAN_WORKSPACE\"/x && echo \"$CAPSTAN_TASK_TITLE\"\"$CAPSTAN_BRANCH\"");
  for (auto& variable: variables)
    CHECK(variable.value == (variable.key == "CAPSTAN_TASK_TITLE" ? "it's $(x)"_kj : ""_kj));
}

TEST_CASE("braces that are no placeholder are left alone") {
  for (auto text: {"", "{", "{{", "{{}}", "{{ }}", "a {{.Names}} b", "${{ secrets.X }}", "{{a-b}}",
                   "{{1a}}", "{{workspace", "{{workspace}", "{{work\nspace}}", "}}{{"}) {
    INFO(text);
    CHECK(filled(text) == text);
  }
  CHECK(filled("{{{branch}}}") == "{\"$CAPSTAN_BRANCH\"}");
  CHECK(filled("{{.X}}{{branch}}") == "{{.X}}\"$CAPSTAN_BRANCH\"");
}

TEST_CASE("an unknown placeholder is refused by name, with those there are") {
  auto problem = refusal("echo {{branch}} {{tasc_id}}");
  CHECK(problem.code == ErrorCode::INVALID_ARGUMENT);
  CHECK(problem.field == "prepareScript");
  CHECK(contains(problem.message, "{{tasc_id}}"));
  CHECK(contains(problem.hint, "{{task_id}}"));
  CHECK(refusal("{{ branch }}").hint == "write {{branch}}");
  CHECK(contains(refusal("{{WORKSPACE}}").message, "{{WORKSPACE}}"));
}

TEST_CASE("a script without commands is none") {
  CHECK(isEmptyScript(""));
  CHECK(isEmptyScript(" \r\n\t"));
  CHECK_FALSE(isEmptyScript("# a"));
}

TEST_CASE("a profile's options for its scripts are checked") {
  auto config = kj::arr(Label{kj::str("shell"), kj::str("/bin/zsh")},
                        Label{kj::str("prepare_failure"), kj::str("warn")},
                        Label{kj::str("git_user_name"), kj::str("A B")},
                        Label{kj::str("git_user_email"), kj::str("a@b")},
                        Label{kj::str("other"), kj::str("x")});
  auto result = readScriptOptions(config);
  auto& read = result.get<ScriptOptions>();
  CHECK(read.shell == "/bin/zsh");
  CHECK(read.prepareFailure == PrepareFailure::WARN);
  CHECK(read.gitUserName == "A B");
  CHECK(read.gitUserEmail == "a@b");

  CHECK(options("shell", "").get<ScriptOptions>().shell == "");
  CHECK(options("shell", "zsh-5.9").is<ScriptOptions>());
  for (auto shell: {"bash -e", "-c", "./sh", "bin/sh", "sh;true", "$SHELL", "sh\n"}) {
    INFO(shell);
    CHECK(options("shell", shell).get<Problem>().field == "config.shell");
  }
  CHECK(options("prepare_failure", "fail").get<ScriptOptions>().prepareFailure ==
        PrepareFailure::FAIL);
  CHECK(options("prepare_failure", "ignore").get<Problem>().field == "config.prepare_failure");
}

}  // namespace capstan
