// Records of overrides, what is told of them, and that a resolve leaves nothing behind.

#include "unit/domain/variables-support.h"

namespace capstan {

using test::bySecret;
using test::defined;
using test::shown;

namespace {

kj::Array<Variable> twoOverridden() {
  return kj::arr(defined("agent profile", "Z", "planted-1"), defined("managed runtime", "Z", "2"),
                 defined("executor profile", "A", "3"), defined("agent profile", "A", "planted-4"),
                 defined("managed agent defaults", "A", "planted-5"),
                 defined("agent profile", "M", "6"));
}

OverrideRecord record(std::initializer_list<kj::StringPtr> winners,
                      std::initializer_list<kj::StringPtr> losers) {
  OverrideRecord result;
  result.key = kj::str("K");
  result.winningTier = Tier::AUTHORITATIVE;
  result.winningOrigins = KJ_MAP(words, winners) { return kj::str(words); };
  result.losingOrigins = KJ_MAP(words, losers) {
    return LosingOrigin{kj::str(words), tierForOrigin(words)};
  };
  return result;
}

}  // namespace

TEST_CASE("variables: records stand in the order of keys and are the same every time (AC-20, 27)") {
  auto set = twoOverridden();
  auto first = shown(resolveVariables(set, nullptr));
  CHECK(first ==
        "A=3 M=6 Z=2; A: executor profile 1 over agent profile 2, managed agent defaults 3; "
        "Z: managed runtime 1 over agent profile 2");
  for (int i = 0; i < 3; ++i)
    CHECK(shown(resolveVariables(set, nullptr)) == first);
}

TEST_CASE("variables: a record has no field for a value (AC-21)") {
  // Whoever adds a field has to come by here.
  auto [key, winningOrigins, winningTier, losingOrigins] = record({"w"}, {"agent profile"});
  auto& [origin, tier] = losingOrigins[0];
  CHECK(kj::str(key, winningOrigins[0], origin) == "Kwagent profile");
  CHECK(winningTier < tier);
}

TEST_CASE("variables: any refusal leaves neither map nor records (AC-20a)") {
  auto set = twoOverridden();
  auto more = kj::heapArrayBuilder<Variable>(set.size() + 1);
  for (auto& each: set)
    more.add(each.clone());
  more.add(bySecret("agent profile", "ZZ", "s"));
  auto result = resolveVariables(more.finish(), nullptr);
  CHECK_FALSE(result.is<Resolution>());
}

TEST_CASE("variables: the resolver does not log (AC-22, 24b)") {
  test::LogWatch log;
  auto set = twoOverridden();
  CHECK(resolveVariables(set, nullptr).is<Resolution>());
  auto conflicting =
      kj::arr(defined("agent profile", "A", "1"), defined("agent profile", "A", "2"));
  CHECK(resolveVariables(conflicting, nullptr).is<Problem>());
  CHECK(log.lines().size() == 0);
}

TEST_CASE("variables: the log's line has all fields, origins verbatim, no value (AC-23)") {
  CHECK(overrideLogFields(record({"executor profile", "repository app"},
                                 {"agent profile", "managed agent defaults"}),
                          "t-1", "s-1") ==
        "{env_key = K, winning_origins = [executor profile, repository app], winning_tier = 1, "
        "losing_origins = [agent profile, managed agent defaults], losing_tiers = [2, 3], "
        "task_id = t-1, session_id = s-1}");
}

TEST_CASE("variables: one count for each losing origin (AC-24, 24a)") {
  CHECK(kj::strArray(overrideCounterKeys(
                         record({"executor profile"}, {"agent profile", "managed agent defaults"})),
                     " | ") ==
        "winning_origin=executor profile;losing_origin=agent profile | "
        "winning_origin=executor profile;losing_origin=managed agent defaults");
}

TEST_CASE("variables: winners are joined and repositories lose their names in labels (AC-25)") {
  CHECK(kj::strArray(
            overrideCounterKeys(record({"executor profile", "repository app", "repository lib"},
                                       {"agent profile"})),
            " | ") == "winning_origin=executor profile+repository;losing_origin=agent profile");
  // Normalised first and ordered afterwards.
  CHECK(kj::strArray(overrideCounterKeys(record({"repository\tapp", "repositories"}, {"x"})),
                     " | ") == "winning_origin=repositories+repository;losing_origin=x");
}

TEST_CASE("variables: a resolve within a resolve disturbs neither (AC-41)") {
  auto set = kj::arr(bySecret("agent profile", "A", "a"), bySecret("agent profile", "B", "b"));
  auto inner = twoOverridden();
  RevealSecret reveal = [&](const VariableDecision& winner) -> Result<kj::String> {
    return shown(resolveVariables(inner, nullptr));
  };
  auto alone = shown(resolveVariables(inner, nullptr));
  CHECK(shown(resolveVariables(set, reveal)) == kj::str("A=", alone, " B=", alone));
}

TEST_CASE("variables: a retry gives the same, a resume asks the vault again (AC-44, 45, 46)") {
  auto set = kj::arr(bySecret("agent profile", "S", "s"), defined("executor profile", "K", "X"),
                     defined("agent profile", "K", "Y"));
  int times = 0;
  kj::StringPtr value = "old";
  RevealSecret reveal = [&](const VariableDecision&) -> Result<kj::String> {
    ++times;
    return kj::str(value);
  };
  auto first = shown(resolveVariables(set, reveal));
  CHECK(first == "K=X S=old; K: executor profile 1 over agent profile 2");
  CHECK(shown(resolveVariables(set, reveal)) == first);
  value = "new";
  CHECK(shown(resolveVariables(set, reveal)) ==
        "K=X S=new; K: executor profile 1 over agent profile 2");
  CHECK(times == 3);
}

}  // namespace capstan
