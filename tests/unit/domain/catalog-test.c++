// How names find executors and profiles, and which executor a task gets.
#include "domain/catalog.h"

#include "support/test.h"

namespace capstan {

namespace {

ExecutorRecord executor(kj::StringPtr id, kj::StringPtr name, kj::StringPtr type = "ssh"_kj) {
  ExecutorRecord record;
  record.id = kj::str(id);
  record.name = kj::str(name);
  record.type = kj::str(type);
  record.version = 1;
  return record;
}

ProfileRecord profile(kj::StringPtr id, kj::StringPtr executorId, kj::StringPtr name) {
  ProfileRecord record;
  record.id = kj::str(id);
  record.executorId = kj::str(executorId);
  record.name = kj::str(name);
  return record;
}

CatalogRows sample() {
  CatalogRows rows;
  rows.put(executor("exec-local-pc", "Local PC", "local_pc"));
  rows.put(executor("exec-aaa1", "build"));
  rows.put(executor("exec-aaa2", "builder"));
  rows.put(executor("exec-bbb1", "exec-aaa1"));  // Named like another one's id.
  rows.put(profile("prof-1", "exec-aaa1", "node"));
  rows.put(profile("prof-2", "exec-aaa2", "node"));
  rows.put(profile("prof-3", "exec-aaa2", "rust"));
  return rows;
}

kj::String found(const CatalogRows& rows, kj::StringPtr name, const CatalogScope& scope = {}) {
  auto result = rows.findExecutor(name, scope);
  if (result.is<Problem>()) return kj::str(errorCodeName(result.get<Problem>().code));
  return kj::str(result.get<const ExecutorRecord*>()->id);
}

struct Taken {
  kj::String executor;
  kj::String profile;
  ChosenBy by;
};
Taken chosen(const CatalogRows& rows, Choice choice, const CatalogScope& scope = {}) {
  auto result = rows.choose(choice, scope);
  if (result.is<Problem>()) {
    return {kj::str(errorCodeName(result.get<Problem>().code)), kj::String(), ChosenBy::LOCAL_PC};
  }
  auto& value = result.get<Chosen>();
  kj::String profileId;
  KJ_IF_MAYBE (row, value.profile) {
    profileId = kj::str(row->id);
  }
  return {kj::str(value.executor.id), kj::mv(profileId), value.by};
}

CatalogScope only(kj::StringPtr id) {
  CatalogScope scope;
  scope.executorIds = kj::arr(kj::str(id));
  return scope;
}

}  // namespace

TEST_CASE("an executor is found by id, then name, then unique prefix of either") {
  auto rows = sample();
  CHECK(found(rows, "exec-aaa1") == "exec-aaa1");  // The id, not the one of that name.
  CHECK(found(rows, "build") == "exec-aaa1");      // The name, though it begins another one.
  CHECK(found(rows, "builde") == "exec-aaa2");
  CHECK(found(rows, "Local") == "exec-local-pc");
  CHECK(found(rows, "exec-l") == "exec-local-pc");
  CHECK(found(rows, "exec-b") == "exec-bbb1");
  CHECK(found(rows, "buil") == "invalidArgument");
  CHECK(found(rows, "exec-aaa") == "invalidArgument");
  CHECK(found(rows, "BUILD") == "notFound");
  CHECK(found(rows, "") == "notFound");
}

TEST_CASE("a name that finds nothing or too much lists what there is, bounded") {
  auto rows = sample();
  auto ambiguous = rows.findExecutor("buil");
  CHECK(ambiguous.get<Problem>().hint == "one of exec-aaa1 (build), exec-aaa2 (builder)");
  CHECK(ambiguous.get<Problem>().field == "spec.executorId");
  auto missing = rows.findExecutor("prod");
  CHECK(missing.get<Problem>().message == "no executor 'prod'");
  CHECK(missing.get<Problem>().hint ==
        "known executors: exec-aaa1 (build), exec-aaa2 (builder), exec-bbb1 (exec-aaa1), "
        "exec-local-pc (Local PC)");
  for (int i = 100; i < 400; ++i)
    rows.put(executor(kj::str("exec-x", i), kj::str("name ", i)));
  auto many = rows.findExecutor("prod");
  CHECK(many.get<Problem>().hint.size() < 400);
  CHECK(many.get<Problem>().hint.endsWith(" and 294 more"));
  CHECK(CatalogRows().findProfile("p").get<Problem>().hint == "there are no profiles");
}

TEST_CASE("what is outside a caller's scope is not found, not even as a candidate") {
  auto rows = sample();
  auto scope = only("exec-aaa2");
  CHECK(found(rows, "exec-aaa2", scope) == "exec-aaa2");
  CHECK(found(rows, "buil", scope) == "exec-aaa2");
  CHECK(found(rows, "exec-aaa1", scope) == "notFound");
  CHECK(rows.findExecutor("exec-aaa1", scope).get<Problem>().hint ==
        "known executors: exec-aaa2 (builder)");
  CHECK(rows.findProfile("prof-1", scope).is<Problem>());
  CHECK(rows.findProfile("node", scope).get<const ProfileRecord*>()->id == "prof-2");
  CHECK(rows.executors(scope).size() == 1);
  CHECK(rows.profiles(scope).size() == 2);
}

TEST_CASE("a task gets its executor in the order of precedence") {
  auto rows = sample();
  Choice nothing;
  CHECK(chosen(rows, nothing).executor == "exec-local-pc");
  CHECK(chosen(rows, nothing).by == ChosenBy::LOCAL_PC);

  rows.setDefault("", "exec-aaa1");
  CHECK(chosen(rows, nothing).executor == "exec-aaa1");
  CHECK(chosen(rows, nothing).by == ChosenBy::GLOBAL_DEFAULT);

  rows.setDefault("acme", "exec-aaa2");
  CHECK(chosen(rows, {.tenant = "acme"}).executor == "exec-aaa2");
  CHECK(chosen(rows, {.tenant = "acme"}).by == ChosenBy::TENANT_DEFAULT);
  CHECK(chosen(rows, {.tenant = "other"}).executor == "exec-aaa1");
  CHECK(chosen(rows, nothing).executor == "exec-aaa1");

  // A profile alone brings its executor; the defaults do not matter.
  auto byProfile = chosen(rows, {.profile = "rust", .tenant = "acme"});
  CHECK(byProfile.executor == "exec-aaa2");
  CHECK(byProfile.profile == "prof-3");
  CHECK(byProfile.by == ChosenBy::PROFILE);

  auto explicitly = chosen(rows, {.executor = "exec-bbb1", .tenant = "acme"});
  CHECK(explicitly.executor == "exec-bbb1");
  CHECK(explicitly.profile == "");
  CHECK(explicitly.by == ChosenBy::EXECUTOR);

  rows.setDefault("acme", "");
  CHECK(chosen(rows, {.tenant = "acme"}).executor == "exec-aaa1");
  rows.setDefault("", "");
  CHECK(chosen(rows, {.tenant = "acme"}).executor == "exec-local-pc");
}

TEST_CASE("executor and profile together") {
  auto rows = sample();
  // The named executor tells which of two profiles of one name is meant.
  CHECK(chosen(rows, {.executor = "build", .profile = "node"}).profile == "prof-1");
  CHECK(chosen(rows, {.executor = "builder", .profile = "node"}).profile == "prof-2");
  CHECK(chosen(rows, {.executor = "builder", .profile = "node"}).by == ChosenBy::EXECUTOR);
  CHECK(chosen(rows, {.profile = "node"}).executor == "invalidArgument");
  // A profile of another executor takes its own along.
  auto other = chosen(rows, {.executor = "build", .profile = "rust"});
  CHECK(other.executor == "exec-aaa2");
  CHECK(other.profile == "prof-3");
  CHECK(other.by == ChosenBy::PROFILE);
  // Neither is passed over when it is not there.
  CHECK(chosen(rows, {.executor = "prod", .profile = "rust"}).executor == "notFound");
  CHECK(chosen(rows, {.executor = "build", .profile = "go"}).executor == "notFound");
}

TEST_CASE("a disabled or missing choice is told and never passed over") {
  auto rows = sample();
  auto disabled = executor("exec-aaa1", "build");
  disabled.status = ExecutorStatus::DISABLED;
  rows.put(kj::mv(disabled));
  for (auto choice: {Choice{.executor = "build"}, Choice{.profile = "prof-1"}}) {
    auto refused = rows.choose(choice);
    REQUIRE(refused.is<Problem>());
    CHECK(refused.get<Problem>().code == ErrorCode::WRONG_STATE);
    CHECK(refused.get<Problem>().message == "the executor exec-aaa1 (build) is disabled");
  }
  rows.setDefault("", "exec-aaa1");
  CHECK(rows.choose({}).get<Problem>().cause == "it is the default");
  rows.setDefault("acme", "exec-aaa1");
  CHECK(rows.choose({.tenant = "acme"}).get<Problem>().cause == "it is the tenant's default");
  CHECK(chosen(rows, {.executor = "builder", .tenant = "acme"}).executor == "exec-aaa2");

  rows.setDefault("", "exec-gone");
  CHECK(rows.choose({}).get<Problem>().code == ErrorCode::NOT_FOUND);
  rows.setDefault("", "");
  // Local PC is an executor like any other.
  CHECK(chosen(rows, {}, only("exec-aaa2")).executor == "notFound");
  rows.removeExecutor("exec-local-pc");
  CHECK(chosen(rows, {}).executor == "notFound");
}

TEST_CASE("what was chosen is a copy") {
  auto rows = sample();
  auto result = rows.choose({.executor = "build", .profile = "node"});
  auto changed = executor("exec-aaa1", "renamed");
  changed.version = 2;
  rows.put(kj::mv(changed));
  rows.removeProfile("prof-1");
  CHECK(result.get<Chosen>().executor.name == "build");
  CHECK(KJ_ASSERT_NONNULL(result.get<Chosen>().profile).name == "node");
  CHECK(rows.executor("exec-aaa1").map([](auto& row) { return row.version; }).orDefault(0) == 2);
  CHECK(rows.profile("prof-1") == nullptr);
}

}  // namespace capstan
