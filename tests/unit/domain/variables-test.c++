// Who wins. The numbers in brackets are the cases and criteria of the precedence rules.

#include "domain/variables.h"

#include "unit/domain/variables-support.h"

namespace capstan {

using test::bySecret;
using test::defined;
using test::resolved;
using test::shown;

TEST_CASE("variables: an executor profile beats an agent profile (1)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "Y")) ==
        "K=X; K: executor profile 1 over agent profile 2");
}

TEST_CASE("variables: managed runtime beats an agent profile (2)") {
  CHECK(resolved(defined("managed runtime", "K", "X"), defined("agent profile", "K", "Y")) ==
        "K=X; K: managed runtime 1 over agent profile 2");
}

TEST_CASE("variables: managed credentials beat an agent profile (3)") {
  CHECK(resolved(defined("managed credentials", "K", "X"), defined("agent profile", "K", "Y")) ==
        "K=X; K: managed credentials 1 over agent profile 2");
}

TEST_CASE("variables: an agent profile beats the agent's defaults (4)") {
  CHECK(resolved(defined("agent profile", "K", "X"), defined("managed agent defaults", "K", "Y")) ==
        "K=X; K: agent profile 2 over managed agent defaults 3");
}

TEST_CASE("variables: a default that was never handed in is not overridden (4a)") {
  CHECK(resolved(defined("agent profile", "K", "X")) == "K=X");
}

TEST_CASE("variables: an unknown origin is authoritative, also one without words") {
  CHECK(resolved(defined("house rules", "K", "X"), defined("agent profile", "K", "Y")) ==
        "K=X; K: house rules 1 over agent profile 2");
  CHECK(resolved(defined("", "K", "X"), defined("executor profile", "K", "Y")) ==
        "variableConflict variables.K defined by an unnamed origin, executor profile");
}

TEST_CASE("variables: two values in tier 1 conflict, and the agent profile is named too (5a)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "X"),
                 defined("managed runtime", "K", "Y")) ==
        "variableConflict variables.K defined by agent profile, executor profile, managed "
        "runtime");
}

TEST_CASE("variables: a value ranks by its strongest origin, and keeps all of them (5b)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "X"),
                 defined("managed agent defaults", "K", "Y")) ==
        "K=X; K: agent profile, executor profile 1 over managed agent defaults 3");
}

TEST_CASE("variables: a weaker origin of the same value does not pull it down") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("managed agent defaults", "K", "X"),
                 defined("agent profile", "K", "Y")) ==
        "K=X; K: executor profile, managed agent defaults 1 over agent profile 2");
}

TEST_CASE("variables: one origin with two values and nothing stronger is a conflict (6)") {
  CHECK(resolved(defined("agent profile", "K", "X"), defined("agent profile", "K", "Y")) ==
        "variableConflict variables.K defined by agent profile");
  CHECK(resolved(defined("agent profile", "K", "X"), defined("agent profile", "K", "Y"),
                 defined("managed agent defaults", "K", "Z")) ==
        "variableConflict variables.K defined by agent profile, managed agent defaults");
}

TEST_CASE("variables: an agent profile alone gives its value (7, 8)") {
  CHECK(resolved(defined("agent profile", "K", "X"), defined("executor profile", "L", "Z")) ==
        "K=X L=Z");
}

TEST_CASE("variables: two tier-1 origins that agree beat an agent profile, both listed (8a)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("managed runtime", "K", "X"),
                 defined("agent profile", "K", "Y")) ==
        "K=X; K: executor profile, managed runtime 1 over agent profile 2");
}

TEST_CASE("variables: two tier-1 origins that differ conflict (8b)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("managed credentials", "K", "Y")) ==
        "variableConflict variables.K defined by executor profile, managed credentials");
}

TEST_CASE("variables: tier 1 over tiers 2 and 3 is one record with two losers (8c)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "Y"),
                 defined("managed agent defaults", "K", "Z")) ==
        "K=X; K: executor profile 1 over agent profile 2, managed agent defaults 3");
}

TEST_CASE("variables: an ambiguous origin below a stronger value is listed once (8d)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "Y"),
                 defined("agent profile", "K", "Z")) ==
        "K=X; K: executor profile 1 over agent profile 2");
}

TEST_CASE("variables: the same origin and value twice is listed once (8e)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("executor profile", "K", "X"),
                 defined("agent profile", "K", "Y")) ==
        "K=X; K: executor profile 1 over agent profile 2");
}

TEST_CASE("variables: one origin may win and lose at once (18)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "X"),
                 defined("agent profile", "K", "Y")) ==
        "K=X; K: agent profile, executor profile 1 over agent profile 2");
}

TEST_CASE("variables: equal values are one, without a record (AC-14, 15, 26)") {
  CHECK(resolved(defined("executor profile", "K", "X"), defined("agent profile", "K", "X"),
                 defined("managed agent defaults", "K", "X")) == "K=X");
  CHECK(resolved(bySecret("executor profile", "K", "s"), bySecret("agent profile", "K", "s"),
                 bySecret("repository app", "K", "s")) == "K=</s>");
}

TEST_CASE("variables: what was unambiguous before resolves to the same (AC-16, 17, 29a)") {
  CHECK(resolved(defined("managed runtime", "A", "1"), defined("executor profile", "B", "2"),
                 defined("agent profile", "C", "3"), defined("managed agent defaults", "D", "4"),
                 bySecret("repository app", "E", "s")) == "A=1 B=2 C=3 D=4 E=</s>");
}

TEST_CASE("variables: keys without a name are passed over (AC-32)") {
  CHECK(resolved(defined("executor profile", "", "X"), defined("executor profile", " \t\n", "Y"),
                 defined("agent profile", "", "Z"), defined("agent profile", "K", "X")) == "K=X");
}

TEST_CASE("variables: a name's case and outer blanks count") {
  CHECK(resolved(defined("executor profile", "k", "X"), defined("agent profile", "K", "Y"),
                 defined("agent profile", " K", "Z")) == " K=Z K=Y k=X");
}

TEST_CASE("variables: an empty literal is a value like another") {
  CHECK(resolved(defined("managed runtime", "K", ""), defined("agent profile", "K", "Y")) ==
        "K=; K: managed runtime 1 over agent profile 2");
}

TEST_CASE("variables: of one secret in two tenants the smaller tenant is asked (AC-29b)") {
  CHECK(resolved(bySecret("executor profile", "K", "s", "tenant-b"),
                 bySecret("executor profile", "K", "s", "tenant-a")) == "K=<tenant-a/s>");
  // The first origin stands for its identity, before the tenant is looked at.
  CHECK(resolved(bySecret("agent profile", "K", "s", "tenant-b"),
                 bySecret("executor profile", "K", "s", "tenant-a")) == "K=<tenant-b/s>");
}

TEST_CASE("variables: a literal beside a secret is not looked at") {
  auto one = bySecret("executor profile", "K", "s");
  auto two = bySecret("agent profile", "K", "s");
  one.literal = kj::str("X");
  two.literal = kj::str("Y");
  CHECK(resolved(kj::mv(one), kj::mv(two)) == "K=</s>");
}

TEST_CASE("variables: a literal that reads like a secret's name is no secret") {
  CHECK(
      resolved(defined("executor profile", "K", "secret:s"), defined("agent profile", "K", "s")) ==
      "K=secret:s; K: executor profile 1 over agent profile 2");
}

TEST_CASE("variables: nothing comes to nothing (AC-31)") {
  auto result = resolveVariables(nullptr, nullptr);
  REQUIRE(result.is<Resolution>());
  CHECK(shown(result) == "");
  CHECK(result.get<Resolution>().overrides.size() == 0);
  CHECK(result.get<Resolution>().decisions.size() == 0);
}

TEST_CASE("variables: decisions tell winner and losers of every key, a secret by its name") {
  auto set = kj::arr(defined("executor profile", "K", "X"), defined("agent profile", "K", "Y"),
                     bySecret("repository app", "L", "s", "tenant-a"));
  auto result = decideVariables(set);
  auto& decisions = result.get<kj::Array<VariableDecision>>();
  REQUIRE(decisions.size() == 2);
  CHECK(decisions[0].key == "K");
  CHECK(decisions[0].literal == "X");
  CHECK(decisions[0].secret == "");
  CHECK(kj::strArray(decisions[0].winners, ",") == "executor profile");
  REQUIRE(decisions[0].losers.size() == 1);
  CHECK(decisions[0].losers[0].origin == "agent profile");
  CHECK(decisions[1].key == "L");
  CHECK(decisions[1].literal == "");
  CHECK(decisions[1].secret == "s");
  CHECK(decisions[1].tenantId == "tenant-a");
  CHECK(decisions[1].tier == Tier::AUTHORITATIVE);
  CHECK(decisions[1].losers.size() == 0);
}

TEST_CASE("variables: a known set of layers, secrets and blanks") {
  // Two repositories bind one key to two secrets, beside keys no process can have.
  CHECK(resolved(bySecret("repository app", "TOKEN", "s1"),
                 bySecret("repository lib", "TOKEN", "s2")) ==
        "variableConflict variables.TOKEN defined by repository app, repository lib");
  CHECK(resolved(defined("agent profile", "A=B", "x")) == "invalidArgument variables.key ");
  CHECK(resolved(defined("agent profile", "NUL", "a\0b"_kj)) ==
        "invalidArgument variables.literal ");
  CHECK(resolved(defined("managed runtime", "CAPSTAN_ENVIRONMENT_ID", "env-7"),
                 defined("executor profile", "ANTHROPIC_BASE_URL", "http://10.0.0.2:3456"),
                 defined("agent profile", "ANTHROPIC_BASE_URL", "http://localhost:3456"),
                 defined("agent profile", "BLANK", "kept")) ==
        "ANTHROPIC_BASE_URL=http://10.0.0.2:3456 BLANK=kept CAPSTAN_ENVIRONMENT_ID=env-7; "
        "ANTHROPIC_BASE_URL: executor profile 1 over agent profile 2");
}

}  // namespace capstan
