// What may be saved of executors and profiles.
#include "domain/catalog-changes.h"

#include "support/test.h"

#include <cstring>
#include <string>

namespace capstan {

namespace {

const Limits LIMITS;

kj::Array<Label> pairs(std::initializer_list<std::pair<kj::StringPtr, kj::StringPtr>> list) {
  kj::Vector<Label> result;
  for (auto& [key, value]: list)
    result.add(Label{kj::str(key), kj::str(value)});
  return result.releaseAsArray();
}

Variable variable(kj::StringPtr key, kj::StringPtr literal, kj::StringPtr secret = nullptr) {
  Variable result;
  result.key = kj::str(key);
  result.literal = kj::str(literal);
  result.secret = kj::str(secret);
  return result;
}

ExecutorChange newExecutor(kj::StringPtr type, kj::StringPtr name) {
  ExecutorChange change;
  change.type = kj::str(type);
  change.name = kj::str(name);
  return change;
}

ProfileChange newProfile(kj::StringPtr name) {
  ProfileChange change;
  change.executorId = kj::str("exec-1");
  change.name = kj::str(name);
  return change;
}

template <typename Record>
Problem refusal(Result<Record> result) {
  REQUIRE(result.template is<Problem>());
  return kj::mv(result.template get<Problem>());
}

Problem refusedConfig(kj::StringPtr type, kj::StringPtr key, kj::StringPtr value) {
  auto change = newExecutor(type, "n");
  change.config = pairs({{key, value}});
  return refusal(applied(kj::Maybe<const ExecutorRecord&>(), change, LIMITS, 0));
}

bool takesConfig(kj::StringPtr type, kj::StringPtr key, kj::StringPtr value) {
  auto change = newExecutor(type, "n");
  change.config = pairs({{key, value}});
  return applied(kj::Maybe<const ExecutorRecord&>(), change, LIMITS, 0).is<ExecutorRecord>();
}

ExecutorRecord made(ExecutorChange change) {
  auto result = applied(kj::Maybe<const ExecutorRecord&>(), change, LIMITS, 1000);
  KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
    FAIL(kj::str(*problem).cStr());
  }
  auto row = kj::mv(result.get<ExecutorRecord>());
  row.id = kj::str("exec-1");
  row.version = 3;
  return row;
}

ProfileRecord made(ProfileChange change) {
  auto result = applied(kj::Maybe<const ProfileRecord&>(), change, LIMITS, 1000);
  KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
    FAIL(kj::str(*problem).cStr());
  }
  auto row = kj::mv(result.get<ProfileRecord>());
  row.id = kj::str("prof-1");
  row.version = 3;
  return row;
}

}  // namespace

TEST_CASE("a new executor has a known type, and the alias is written out") {
  CHECK(made(newExecutor("local", "a")).type == "local_pc");
  CHECK(made(newExecutor("sprites", "a")).type == "sprites");
  for (auto type: {"", "docker", "LOCAL"}) {
    auto refused =
        refusal(applied(kj::Maybe<const ExecutorRecord&>(), newExecutor(type, "a"), LIMITS, 0));
    CHECK(refused.code == ErrorCode::INVALID_ARGUMENT);
    CHECK(refused.field == "type");
  }
  ExecutorChange without;
  without.name = kj::str("a");
  CHECK(refusal(applied(kj::Maybe<const ExecutorRecord&>(), without, LIMITS, 0)).field == "type");
}

TEST_CASE("names are short printable text that looks like neither option nor id") {
  for (auto name: {"a", "Local PC", "größe 2", "a=b", "x-y_z.1"}) {
    INFO(name);
    CHECK(made(newExecutor("ssh", name)).name == name);
  }
  auto tooLong = kj::heapString(101);
  memset(tooLong.begin(), 'x', 101);
  for (kj::StringPtr name: {""_kj, " a"_kj, "a "_kj, "-a"_kj, "a\nb"_kj, "a\x1b[31m"_kj,
                            kj::StringPtr("a\0b", 3), "exec-1"_kj, "prof-1"_kj, tooLong.asPtr()}) {
    CHECK(refusal(applied(kj::Maybe<const ExecutorRecord&>(), newExecutor("ssh", name), LIMITS, 0))
              .field == "name");
    CHECK(refusal(applied(kj::Maybe<const ProfileRecord&>(), newProfile(name), LIMITS, 0)).field ==
          "name");
  }
}

TEST_CASE("config keys: unknown ones are kept, documented ones have their form") {
  CHECK(takesConfig("ssh", "ssh_port", "22"));
  CHECK(takesConfig("ssh", "whatever.key-1", "any text\n"));
  CHECK(takesConfig("k8s", "request_timeout_seconds", "300"));
  CHECK(takesConfig("k8s", "auth_mode", "in_cluster"));
  CHECK(takesConfig("local_pc", "ssh_port", "not its key"));
  CHECK(refusedConfig("ssh", "ssh_port", "0").field == "config.ssh_port");
  CHECK(refusedConfig("remote_docker", "ssh_port", "65536").field == "config.ssh_port");
  CHECK(refusedConfig("ssh", "ssh_port", "22 ").field == "config.ssh_port");
  CHECK(refusedConfig("ssh", "ssh_identity_source", "key").field == "config.ssh_identity_source");
  CHECK(refusedConfig("k8s", "auth_mode", "token").field == "config.auth_mode");
  CHECK(refusedConfig("k8s", "kubeconfig_path", "config").field == "config.kubeconfig_path");
  CHECK(refusedConfig("k8s", "namespace", "Prod").field == "config.namespace");
  CHECK(refusedConfig("k8s", "namespace", "a-").field == "config.namespace");
  CHECK(refusedConfig("k8s", "request_timeout_seconds", "301").field ==
        "config.request_timeout_seconds");
  CHECK(refusedConfig("ssh", "", "x").field == "config");
  CHECK(refusedConfig("ssh", "a b", "x").field == "config");
  CHECK(refusedConfig("ssh", "a", kj::StringPtr("x\0y", 3)).field == "config.a");

  auto change = newExecutor("ssh", "n");
  change.config = pairs({{"b", "2"}, {"a", "1"}, {"c", ""}});
  auto row = made(kj::mv(change));
  REQUIRE(row.config.size() == 2);  // Sorted, and an empty value is none.
  CHECK(row.config[0].key == "a");
  CHECK(row.config[1].key == "b");

  change = newExecutor("ssh", "n");
  change.config = pairs({{"a", "1"}, {"a", "2"}});
  CHECK(refusal(applied(kj::Maybe<const ExecutorRecord&>(), change, LIMITS, 0)).field ==
        "config.a");
  Limits tight;
  tight.configBytes = 3;
  change.config = pairs({{"a", "123"}});
  CHECK(refusal(applied(kj::Maybe<const ExecutorRecord&>(), change, tight, 0)).field == "config");
}

TEST_CASE("a fingerprint is never taken from a save, but may stay or go") {
  auto refused = refusedConfig("ssh", "ssh_host_fingerprint", "SHA256:abc");
  CHECK(refused.code == ErrorCode::INVALID_ARGUMENT);
  CHECK(refused.field == "config.ssh_host_fingerprint");

  auto row = made(newExecutor("ssh", "n"));
  row.config = pairs({{"ssh_host_fingerprint", "SHA256:seen"}});
  auto save = [&](kj::StringPtr fingerprint) {
    ExecutorChange change;
    change.id = kj::str(row.id);
    change.ifVersion = ANY_VERSION;
    change.config = pairs({{"ssh_host_fingerprint", fingerprint}});
    return applied(row, change, LIMITS, 0);
  };
  CHECK(save("SHA256:seen").is<ExecutorRecord>());
  CHECK(save("").get<ExecutorRecord>().config.size() == 0);
  CHECK(save("SHA256:other").is<Problem>());
}

TEST_CASE("a save keeps what it does not name and replaces what it does") {
  auto change = newExecutor("ssh", "old");
  change.config = pairs({{"a", "1"}, {"b", "2"}});
  auto row = made(kj::mv(change));
  ExecutorChange disable;
  disable.id = kj::str(row.id);
  disable.ifVersion = 3;
  disable.status = kj::str("disabled");
  auto next = applied(row, disable, LIMITS, 2000);
  auto& saved = next.get<ExecutorRecord>();
  CHECK(saved.status == ExecutorStatus::DISABLED);
  CHECK(saved.name == "old");
  CHECK(saved.config.size() == 2);
  CHECK(saved.createdAt == 1000);
  CHECK(saved.updatedAt == 2000);
  CHECK(saved.version == 3);  // What the store must find.

  disable.config = pairs({{"c", "3"}});
  CHECK(applied(row, disable, LIMITS, 0).get<ExecutorRecord>().config[0].key == "c");
  disable.status = kj::str("gone");
  CHECK(refusal(applied(row, disable, LIMITS, 0)).field == "status");
  ExecutorChange type;
  type.id = kj::str(row.id);
  type.ifVersion = ANY_VERSION;
  type.type = kj::str("local");
  CHECK(refusal(applied(row, type, LIMITS, 0)).code == ErrorCode::WRONG_STATE);
  type.type = kj::str("ssh");
  CHECK(applied(row, type, LIMITS, 0).is<ExecutorRecord>());
}

TEST_CASE("a save that saw another version is told the present one") {
  auto row = made(newExecutor("ssh", "n"));
  ExecutorChange change;
  change.id = kj::str(row.id);
  change.ifVersion = 2;
  auto refused = refusal(applied(row, change, LIMITS, 0));
  CHECK(refused.code == ErrorCode::WRONG_STATE);
  CHECK(refused.retry == RetryHint::AFTER_REFRESH);
  CHECK(refused.cause == "it is at version 3, not 2");
  change.ifVersion = ANY_VERSION;
  CHECK(applied(row, change, LIMITS, 0).is<ExecutorRecord>());
  // A new row is given its id, and a version without an id names nothing.
  change.ifVersion = NEW_ROW;
  CHECK(refusal(applied(kj::Maybe<const ExecutorRecord&>(), change, LIMITS, 0)).field == "id");
  auto nameless = newProfile("n");
  nameless.ifVersion = 1;
  CHECK(refusal(applied(kj::Maybe<const ProfileRecord&>(), nameless, LIMITS, 0)).field == "id");
}

TEST_CASE("scripts: left out they stay, given they replace, empty they go") {
  auto change = newProfile("p");
  change.prepareScript = kj::str("make\n");
  change.cleanupScript = kj::str("clean\n");
  auto row = made(kj::mv(change));
  ProfileChange save;
  save.id = kj::str(row.id);
  save.ifVersion = ANY_VERSION;
  save.prepareScript = kj::str("");
  auto next = applied(row, save, LIMITS, 0);
  CHECK(next.get<ProfileRecord>().prepareScript == "");
  CHECK(next.get<ProfileRecord>().cleanupScript == "clean\n");
  save.prepareScript = nullptr;
  CHECK(applied(row, save, LIMITS, 0).get<ProfileRecord>().prepareScript == "make\n");

  Limits tight;
  tight.scriptBytes = 5;
  save.cleanupScript = kj::str("123456");
  CHECK(refusal(applied(row, save, tight, 0)).field == "cleanupScript");
  save.cleanupScript = kj::heapString("a\0b", 3);
  CHECK(refusal(applied(row, save, LIMITS, 0)).field == "cleanupScript");
  save.cleanupScript = nullptr;
  save.executorId = kj::str("exec-2");
  CHECK(refusal(applied(row, save, LIMITS, 0)).code == ErrorCode::WRONG_STATE);
}

TEST_CASE("variables of a profile can resolve, and their origin is the profile's") {
  auto change = newProfile("p");
  auto entry = variable("A", "1");
  entry.origin = Origin::MANAGED_RUNTIME;
  change.variables = kj::arr(kj::mv(entry), variable("T", "", "npm-token"), variable("A", "1"),
                             variable("BLANK", ""));
  auto row = made(kj::mv(change));
  REQUIRE(row.variables.size() == 4);
  for (auto& each: row.variables)
    CHECK(each.origin == Origin::EXECUTOR_PROFILE);

  auto refused = [](Variable one, Variable two) {
    auto both = newProfile("p");
    both.variables = kj::arr(kj::mv(one), kj::mv(two));
    return refusal(applied(kj::Maybe<const ProfileRecord&>(), both, LIMITS, 0));
  };
  CHECK(refused(variable("A", "1"), variable("A", "2")).code == ErrorCode::VARIABLE_CONFLICT);
  CHECK(refused(variable("A", "1"), variable("A", "", "s")).code == ErrorCode::VARIABLE_CONFLICT);
  CHECK(refused(variable("B", "1"), variable("A=B", "1")).code == ErrorCode::INVALID_ARGUMENT);
  CHECK(refused(variable("B", "1"), variable("T", "", "a b")).field == "variables[1].secret");
  Limits tight;
  tight.variables = 1;
  change = newProfile("p");
  change.variables = kj::arr(variable("A", "1"), variable("B", "1"));
  CHECK(refusal(applied(kj::Maybe<const ProfileRecord&>(), change, tight, 0)).field == "variables");
}

TEST_CASE("a profile's prepare_failure is fail or warn") {
  auto change = newProfile("p");
  change.config = pairs({{"prepare_failure", "warn"}});
  CHECK(applied(kj::Maybe<const ProfileRecord&>(), change, LIMITS, 0).is<ProfileRecord>());
  change.config = pairs({{"prepare_failure", "ignore"}});
  CHECK(refusal(applied(kj::Maybe<const ProfileRecord&>(), change, LIMITS, 0)).field ==
        "config.prepare_failure");
}

TEST_CASE("names of secrets") {
  for (auto name: {"a", "npm-token", "team/ci.key_2", "9"})
    CHECK(checkSecretName(name) == nullptr);
  for (kj::StringPtr name: {""_kj, "-a"_kj, "/a"_kj, "a b"_kj, "ä"_kj, "a\n"_kj, "a=b"_kj})
    CHECK(checkSecretName(name) != nullptr);
}

}  // namespace capstan
