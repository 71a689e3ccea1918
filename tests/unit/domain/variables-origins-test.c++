#include "domain/variables-origins.h"

#include "support/test.h"

namespace capstan {

TEST_CASE("every origin has its words, and the words lead back to it") {
  struct Row {
    Origin origin;
    kj::StringPtr name;
    kj::StringPtr words;
  };
  for (auto& row:
       {Row{Origin::MANAGED_RUNTIME, "", "managed runtime"},
        Row{Origin::MANAGED_CREDENTIALS, "", "managed credentials"},
        Row{Origin::MANAGED_AGENT_DEFAULTS, "", "managed agent defaults"},
        Row{Origin::AGENT_PROFILE, "", "agent profile"},
        Row{Origin::EXECUTOR_PROFILE, "", "executor profile"},
        Row{Origin::REPOSITORY, "app", "repository app"}, Row{Origin::REPOSITORY, "", "repository"},
        Row{Origin::REPOSITORY, " \t", "repository"},
        Row{Origin::OTHER, "house rules", "house rules"}, Row{Origin::OTHER, "", ""}}) {
    INFO(row.words.cStr());
    CHECK(originWords(row.origin, row.name) == row.words);
    CHECK(originOfWords(row.words) == row.origin);
  }
  CHECK(originWords(Origin::UNSET, "ignored") == "");
  CHECK(originWords(Origin::AGENT_PROFILE, "ignored") == "agent profile");
}

TEST_CASE("a definition's words come from its own fields") {
  Variable definition;
  definition.repository = kj::str("app");
  definition.otherOrigin = kj::str("house rules");
  definition.origin = Origin::REPOSITORY;
  CHECK(originWords(definition) == "repository app");
  definition.origin = Origin::OTHER;
  CHECK(originWords(definition) == "house rules");
  definition.origin = Origin::EXECUTOR_PROFILE;
  CHECK(originWords(definition) == "executor profile");
}

TEST_CASE("tier 1 holds what is managed, executor profiles, repositories and whoever is unknown") {
  for (auto words:
       {"managed runtime", "managed credentials", "executor profile", "repository",
        "repository app", "repositoryapp", "", "house rules", "Agent profile", "agent profile "}) {
    INFO(words);
    CHECK(tierForOrigin(words) == Tier::AUTHORITATIVE);
  }
  CHECK(tierForOrigin("agent profile") == Tier::PROFILE_DEFAULT);
  CHECK(tierForOrigin("managed agent defaults") == Tier::AGENT_RUNTIME_DEFAULT);
  CHECK(static_cast<int>(Tier::AUTHORITATIVE) == 1);
  CHECK(static_cast<int>(Tier::PROFILE_DEFAULT) == 2);
  CHECK(static_cast<int>(Tier::AGENT_RUNTIME_DEFAULT) == 3);
}

TEST_CASE("a repository origin has exactly that first word") {
  for (auto words: {"repository", "repository app", "repository  app", "repository\tapp",
                    " repository app", "repository "}) {
    INFO(words);
    CHECK(isRepositoryOrigin(words));
  }
  for (auto words: {"repositoryapp", "", " ", "Repository", "my repository", "repository-app"}) {
    INFO(words);
    CHECK_FALSE(isRepositoryOrigin(words));
  }
}

TEST_CASE("a metric's label has repositories without names and others verbatim") {
  CHECK(originLabel("repository app") == "repository");
  CHECK(originLabel("repository\tlib") == "repository");
  CHECK(originLabel("repositoryapp") == "repositoryapp");
  CHECK(originLabel("executor profile") == "executor profile");
}

TEST_CASE("white space alone is blank") {
  CHECK(isBlank(""));
  CHECK(isBlank(" \t\n\r\v\f"));
  CHECK_FALSE(isBlank(" a "));
  CHECK_FALSE(isBlank("\0"_kj));
}

}  // namespace capstan
