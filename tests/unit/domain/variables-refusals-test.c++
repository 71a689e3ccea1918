// Conflicts, secrets that cannot be had, and that no refusal tells a value.

#include "unit/domain/variables-support.h"

namespace capstan {

using test::bySecret;
using test::defined;
using test::resolved;
using test::shown;

namespace {

bool contains(kj::StringPtr text, kj::StringPtr part) {
  return std::string_view(text.cStr(), text.size()).find(part.cStr()) != std::string_view::npos;
}

// Opens secrets by their names and notes which it was asked for.
struct Vault {
  kj::Vector<kj::String> asked;
  kj::StringPtr refused;  // This one cannot be had.
  kj::StringPtr suffix;   // Behind every value.

  RevealSecret reveal() {
    return [this](const VariableDecision& winner) -> Result<kj::String> {
      asked.add(kj::str(winner.key));
      if (winner.secret == refused) {
        return Problem(ErrorCode::UNREACHABLE, kj::str("the store does not answer"))
            .advise(kj::str("try again"))
            .retryable(RetryHint::SAME_REQUEST_LATER, 500);
      }
      return kj::str("opened-", winner.secret, suffix);
    };
  }
};

}  // namespace

TEST_CASE("variables: a secret and something else conflict in any tiers, either way (AC-9 to 12)") {
  const kj::StringPtr PAIRS[][2] = {{"executor profile", "agent profile"},
                                    {"agent profile", "executor profile"},
                                    {"agent profile", "managed agent defaults"},
                                    {"managed agent defaults", "managed runtime"},
                                    {"managed credentials", "managed credentials"}};
  for (auto& [one, other]: PAIRS) {
    INFO(one.cStr() << " and " << other.cStr());
    auto refused = resolved(bySecret(one, "K", "s1"), defined(other, "K", "planted"));
    CHECK(refused.startsWith("variableConflict variables.K defined by "));
    CHECK(resolved(bySecret(one, "K", "s1"), bySecret(other, "K", "s2")) == refused);
  }
}

TEST_CASE("variables: a secret does not win over a literal that says the same") {
  CHECK(resolved(bySecret("executor profile", "K", "s1"), defined("agent profile", "K", "</s1>")) ==
        "variableConflict variables.K defined by agent profile, executor profile");
}

TEST_CASE("variables: one secret among values that would rank still stops the key") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "Y"),
                 bySecret("managed agent defaults", "K", "s")) ==
        "variableConflict variables.K defined by agent profile, executor profile, managed agent "
        "defaults");
}

TEST_CASE("variables: a conflict names every origin once, in order (AC-12a)") {
  CHECK(resolved(defined("repository lib", "K", "1"), defined("repository app", "K", "2"),
                 defined("managed runtime", "K", "2"), defined("agent profile", "K", "3"),
                 defined("agent profile", "K", "4")) ==
        "variableConflict variables.K defined by agent profile, managed runtime, repository app, "
        "repository lib");
}

TEST_CASE("variables: a conflict tells no literal, no secret and no secret's name (AC-13)") {
  auto set = kj::arr(defined("executor profile", "K", "planted-literal"),
                     bySecret("agent profile", "K", "planted-name", "planted-tenant"));
  auto result = resolveVariables(set, nullptr);
  auto& problem = result.get<Problem>();
  CHECK(problem.code == ErrorCode::VARIABLE_CONFLICT);
  CHECK(problem.retry == RetryHint::AFTER_USER_ACTION);
  CHECK(contains(kj::str(problem), "K"));
  CHECK_FALSE(contains(kj::str(problem, problem.field, problem.hint), "planted"));
}

TEST_CASE("variables: of several conflicts the first key's is told (AC-36)") {
  CHECK(resolved(defined("executor profile", "B", "1"), defined("executor profile", "B", "2"),
                 defined("agent profile", "A", "1"), defined("agent profile", "A", "2")) ==
        "variableConflict variables.A defined by agent profile");
}

TEST_CASE("variables: a name with a value in it is refused without the value") {
  auto set = kj::arr(defined("agent profile", "NAME=planted", ""));
  auto result = resolveVariables(set, nullptr);
  auto& problem = result.get<Problem>();
  CHECK(problem.code == ErrorCode::INVALID_ARGUMENT);
  CHECK(contains(problem.message, "'NAME'"));
  CHECK_FALSE(contains(kj::str(problem, problem.field), "planted"));
}

TEST_CASE("variables: only winners are revealed, each once, in the order of keys (AC-33)") {
  Vault vault;
  auto reveal = vault.reveal();
  auto set = kj::arr(bySecret("agent profile", "C", "c"), bySecret("executor profile", "A", "a"),
                     bySecret("agent profile", "A", "a"), defined("agent profile", "B", "x"),
                     defined("executor profile", "B", "y"));
  CHECK(shown(resolveVariables(set, reveal)) ==
        "A=opened-a B=y C=opened-c; B: executor profile 1 over agent profile 2");
  CHECK(kj::strArray(vault.asked, " ") == "A C");
}

TEST_CASE("variables: nothing is revealed while any key is in conflict (AC-34)") {
  Vault vault;
  auto reveal = vault.reveal();
  auto set = kj::arr(bySecret("agent profile", "A", "a"), defined("agent profile", "Z", "1"),
                     defined("agent profile", "Z", "2"));
  CHECK(resolveVariables(set, reveal).is<Problem>());
  CHECK(vault.asked.size() == 0);
}

TEST_CASE("variables: a secret without anybody to reveal it is not found (AC-33)") {
  auto set = kj::arr(bySecret("repository app", "K", "planted-name"));
  auto result = resolveVariables(set, nullptr);
  auto& problem = result.get<Problem>();
  CHECK(problem.code == ErrorCode::NOT_FOUND);
  CHECK(problem.field == "variables.K");
  CHECK(contains(problem.message, "K (repository app)"));
  CHECK_FALSE(contains(kj::str(problem), "planted"));
}

TEST_CASE("variables: a failed reveal names key and origins and keeps what it was (AC-37)") {
  Vault vault;
  vault.refused = "b";
  auto reveal = vault.reveal();
  auto set = kj::arr(bySecret("executor profile", "A", "a"), bySecret("executor profile", "B", "b"),
                     bySecret("agent profile", "B", "b"), bySecret("agent profile", "C", "c"));
  auto result = resolveVariables(set, reveal);
  auto& problem = result.get<Problem>();
  CHECK(problem.code == ErrorCode::UNREACHABLE);
  CHECK(contains(problem.message, "B (agent profile, executor profile)"));
  CHECK(problem.cause == "the store does not answer");
  CHECK(problem.hint == "try again");
  CHECK(problem.retry == RetryHint::SAME_REQUEST_LATER);
  CHECK(problem.retryAfterMs == 500);
  CHECK_FALSE(contains(kj::str(problem), "opened-a"));
  CHECK(kj::strArray(vault.asked, " ") == "A B");
}

TEST_CASE("variables: a secret that no process could be given is refused without its value") {
  Vault vault;
  vault.suffix = "\0tail"_kj;
  auto reveal = vault.reveal();
  auto set = kj::arr(bySecret("agent profile", "K", "s"));
  auto result = resolveVariables(set, reveal);
  auto& problem = result.get<Problem>();
  CHECK(problem.code == ErrorCode::INVALID_ARGUMENT);
  CHECK(contains(problem.message, "K (agent profile)"));
  CHECK_FALSE(contains(kj::str(problem), "opened"));
}

TEST_CASE("variables: validation opens nothing and accepts what would still have to open") {
  auto set = kj::arr(bySecret("agent profile", "K", "s"));
  CHECK(validateVariables(set) == nullptr);
  CHECK(resolveVariables(set, nullptr).is<Problem>());
}

TEST_CASE("variables: validation is no promise once other definitions join (AC-43)") {
  auto early = kj::arr(defined("managed runtime", "K", "X"), bySecret("repository app", "L", "s"));
  CHECK(validateVariables(early) == nullptr);
  auto late = kj::arr(early[0].clone(), early[1].clone(), defined("agent profile", "L", "Y"));
  KJ_IF_MAYBE (problem, validateVariables(late)) {
    CHECK(problem->cause == "defined by agent profile, repository app");
  } else {
    FAIL("accepted");
  }
}

}  // namespace capstan
