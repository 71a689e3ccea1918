// Secrets of users: bound, sealed, opened for a launch, and never to be seen elsewhere.
#include "core/secrets.h"

#include "store/environment-table.h"
#include "store/profile-table.h"
#include "unit/store/store-fixture.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace capstan {

using test::fine;
using test::get;
using test::problemOf;

namespace {

constexpr kj::StringPtr PLANTED = "planted-secret-93ac41d0"_kj;

SecretBytes bytes(kj::StringPtr text) {
  return SecretBytes(kj::heapArray<kj::byte>(text.asBytes()));
}

struct World {
  test::LogWatch logs;
  test::Store store;
  SystemEntropy entropy;
  Limits limits;
  kj::Maybe<SecretBox> box;
  kj::Own<SecretVault> vault;

  World() { open(); }
  void open() {
    box = get(store.wait(openSecretBox(*store.database, kj::str(store.temp.path()))));
    vault =
        kj::heap<SecretVault>(*store.database, KJ_ASSERT_NONNULL(box), kj::str(store.temp.path()),
                              store.loop.timer, kj::systemPreciseCalendarClock(), entropy, limits);
  }
  void closeStore() {
    vault = nullptr;
    box = nullptr;
    store.wait(store.database->close());
    DatabaseOptions options;
    options.path = kj::str(store.path);
    store.database = get(store.wait(Database::open(kj::mv(options))));
  }

  void set(kj::StringPtr name, kj::StringPtr value) {
    get(store.wait(vault->set(kj::str(name), bytes(value))));
  }
  void addEnvironment(kj::StringPtr id, kj::StringPtr task) {
    fine(store.wait(store.database->write([id = kj::str(id), task = kj::str(task)](Connection& db) {
      return EnvironmentTable(db).add(test::environment(id, task));
    })));
  }
  // With a variable T by the secret, if one is named.
  void addProfile(kj::StringPtr id, kj::StringPtr secret = nullptr) {
    get(store.wait(store.database->write(
        [id = kj::str(id), secret = kj::str(secret)](Connection& db) -> Result<uint64_t> {
          ProfileRecord record;
          record.id = kj::str(id);
          record.executorId = kj::str("exec-local-pc");
          record.name = kj::str("name of ", id);
          if (secret.size() > 0) {
            Variable variable;
            variable.key = kj::str("T");
            variable.secret = kj::str(secret);
            record.variables = kj::arr(kj::mv(variable));
          }
          return ProfileTable(db).put(record);
        })));
  }
  RevealedSecrets reveal(kj::StringPtr environment, kj::StringPtr profile,
                         std::initializer_list<kj::StringPtr> names) {
    auto list = KJ_MAP(name, names) { return kj::str(name); };
    return get(store.wait(vault->reveal(kj::str(environment), kj::str(profile), kj::mv(list))));
  }
  // The value, or the code of the refusal.
  kj::String value(kj::StringPtr environment, kj::StringPtr profile, kj::StringPtr name) {
    auto secrets = reveal(environment, profile, {name});
    auto found = secrets.find(name);
    KJ_IF_MAYBE (problem, found.tryGet<Problem>()) {
      return kj::str(errorCodeName(problem->code));
    }
    return kj::heapString(found.get<kj::ArrayPtr<const kj::byte>>().asChars());
  }
};

Variable bySecret(kj::StringPtr key, kj::StringPtr secret, Origin origin) {
  Variable variable;
  variable.key = kj::str(key);
  variable.secret = kj::str(secret);
  variable.origin = origin;
  return variable;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

TEST_CASE("a secret is opened for what it was allowed to, and for nothing else") {
  World world;
  world.addEnvironment("env-1", "t1");
  world.addEnvironment("env-2", "t2");
  world.addProfile("prof-1");
  world.addProfile("prof-2", "named");
  world.set("a", "value a");
  world.set("named", "value n");
  CHECK(world.value("env-1", "", "a") == "notFound");

  fine(world.store.wait(world.vault->allow(kj::str("a"), {kj::str("env-1"), kj::String()})));
  CHECK(world.value("env-1", "", "a") == "value a");
  CHECK(world.value("env-1", "prof-1", "a") == "value a");
  CHECK(world.value("env-2", "prof-1", "a") == "notFound");
  fine(world.store.wait(world.vault->allow(kj::str("a"), {kj::String(), kj::str("prof-1")})));
  CHECK(world.value("env-2", "prof-1", "a") == "value a");
  CHECK(world.value("env-2", "", "a") == "notFound");
  // A profile's own variables bind what they name.
  CHECK(world.value("env-2", "prof-2", "named") == "value n");
  CHECK(world.value("env-2", "prof-1", "named") == "notFound");

  fine(world.store.wait(world.vault->disallow(kj::str("a"), {kj::str("env-1"), kj::String()})));
  fine(world.store.wait(world.vault->disallow(kj::str("a"), {kj::str("env-1"), kj::String()})));
  CHECK(world.value("env-1", "", "a") == "notFound");
  fine(world.store.wait(world.vault->remove(kj::str("a"))));
  CHECK(world.value("env-2", "prof-1", "a") == "notFound");
  world.set("a", "another");  // Made anew, nobody is allowed.
  CHECK(world.value("env-2", "prof-1", "a") == "notFound");
}

TEST_CASE("a refusal is the same whether the secret exists or not") {
  World world;
  world.addEnvironment("env-1", "t1");
  world.set("present", PLANTED);
  auto secrets = world.reveal("env-1", "", {"present", "absent"});
  auto present = secrets.find("present"), absent = secrets.find("absent");
  CHECK(present.get<Problem>().code == ErrorCode::NOT_FOUND);
  CHECK(kj::str(present.get<Problem>()) == kj::str(absent.get<Problem>()));
}

TEST_CASE("definitions by secret resolve through the vault") {
  World world;
  world.addEnvironment("env-1", "t1");
  world.set("a", "value a");
  world.set("loser", "never opened");
  fine(world.store.wait(world.vault->allow(kj::str("a"), {kj::str("env-1"), kj::String()})));
  auto definitions = kj::arr(bySecret("K", "a", Origin::MANAGED_RUNTIME),
                             bySecret("L", "", Origin::EXECUTOR_PROFILE));
  auto secrets =
      get(world.store.wait(world.vault->revealFor(kj::str("env-1"), kj::str(), definitions)));
  auto reveal = secrets.revealer();
  auto resolution = resolveVariables(definitions.slice(0, 1), reveal);
  auto& variables = resolution.get<Resolution>().variables;
  REQUIRE(variables.size() == 1);
  CHECK(variables[0].value == "value a");
  CHECK(variables[0].secret);

  auto unbound = kj::arr(bySecret("K", "loser", Origin::MANAGED_RUNTIME));
  auto none = get(world.store.wait(world.vault->revealFor(kj::str("env-1"), kj::str(), unbound)));
  auto refusing = none.revealer();
  auto refused = resolveVariables(unbound, refusing);
  CHECK(refused.get<Problem>().code == ErrorCode::NOT_FOUND);
  CHECK(refused.get<Problem>().field == "variables.K");
}

TEST_CASE("the list tells names, times and who may use them, page by page") {
  World world;
  world.addEnvironment("env-1", "t1");
  world.addProfile("prof-1");
  for (auto name: {"c", "a", "b"})
    world.set(name, PLANTED);
  fine(world.store.wait(world.vault->allow(kj::str("a"), {kj::str("env-1"), kj::String()})));
  fine(world.store.wait(world.vault->allow(kj::str("a"), {kj::String(), kj::str("prof-1")})));
  auto page = get(world.store.wait(world.vault->list(kj::str(), 2)));
  REQUIRE(page.secrets.size() == 2);
  CHECK(page.more);
  CHECK(page.secrets[0].record.name == "a");
  CHECK(page.secrets[0].record.createdAt > 0);
  CHECK(page.secrets[0].environmentIds[0] == "env-1");
  CHECK(page.secrets[0].profileIds[0] == "prof-1");
  CHECK(page.secrets[1].environmentIds.size() == 0);
  auto rest = get(world.store.wait(world.vault->list(kj::str("b"), 2)));
  REQUIRE(rest.secrets.size() == 1);
  CHECK(rest.secrets[0].record.name == "c");
  CHECK_FALSE(rest.more);
}

TEST_CASE("what cannot be a secret, a name or a permission is refused without its value") {
  World world;
  auto tooLarge = kj::heapArray<kj::byte>(SecretBox::MOST_BYTES + 1);
  memset(tooLarge.begin(), 'x', tooLarge.size());
  CHECK(problemOf(world.store.wait(world.vault->set(kj::str("a"), SecretBytes(kj::mv(tooLarge)))))
            .code == ErrorCode::INVALID_ARGUMENT);
  CHECK(problemOf(world.store.wait(world.vault->set(kj::str("a"), bytes("")))).code ==
        ErrorCode::INVALID_ARGUMENT);
  auto badName = problemOf(world.store.wait(world.vault->set(kj::str("a b"), bytes(PLANTED))));
  CHECK(badName.field == "name");
  CHECK_FALSE(test::contains(kj::str(badName), PLANTED));
  world.set("a", "x");
  auto allow = [&](kj::StringPtr name, kj::StringPtr environment, kj::StringPtr profile) {
    return problemOf(world.store.wait(
        world.vault->allow(kj::str(name), {kj::str(environment), kj::str(profile)})));
  };
  CHECK(allow("a", "", "").code == ErrorCode::INVALID_ARGUMENT);
  CHECK(allow("a", "env-1", "prof-1").code == ErrorCode::INVALID_ARGUMENT);
  CHECK(allow("a", "env-1", "").code == ErrorCode::NOT_FOUND);
  CHECK(allow("a", "", "prof-1").code == ErrorCode::NOT_FOUND);
  CHECK(allow("none", "", "prof-1").code == ErrorCode::NOT_FOUND);
  CHECK(problemOf(world.store.wait(world.vault->remove(kj::str("none")))).code ==
        ErrorCode::NOT_FOUND);
  world.limits.secrets = 1;
  world.open();
  CHECK(problemOf(world.store.wait(world.vault->set(kj::str("b"), bytes("x")))).code ==
        ErrorCode::RESOURCE_EXHAUSTED);
  world.set("a", "replaced all the same");
}

TEST_CASE("a launch opens a bounded amount") {
  World world;
  world.limits.launchSecretBytes = 100;
  world.open();
  world.addProfile("prof-1", "large");
  world.addProfile("prof-2", "small");
  auto large = kj::heapString(200);
  memset(large.begin(), 'x', large.size());
  world.set("large", large);
  world.set("small", "x");
  auto refused = world.store.wait(
      world.vault->reveal(kj::str("env-1"), kj::str("prof-1"), kj::arr(kj::str("large"))));
  CHECK(refused.get<Problem>().code == ErrorCode::RESOURCE_EXHAUSTED);
  CHECK(world.value("env-1", "prof-2", "small") == "x");
}

TEST_CASE("writers of one name at once: every one is answered, one value stays") {
  World world;
  world.addProfile("prof-1", "k");
  kj::Vector<kj::Promise<Result<SecretVault::Set>>> sets;
  for (int i = 0; i < 4; ++i)
    sets.add(world.vault->set(kj::str("k"), bytes(kj::str("value ", i))));
  int made = 0;
  for (auto& each: sets) {
    if (get(world.store.wait(kj::mv(each))) == SecretVault::Set::MADE) ++made;
  }
  CHECK(made == 1);
  CHECK(world.value("", "prof-1", "k").startsWith("value "));
}

TEST_CASE("the key changes under running work, and everything opens afterwards") {
  World world;
  world.addProfile("prof-1", "k0");
  for (int i = 0; i < 40; ++i)
    world.set(kj::str("k", i), kj::str("old ", i));
  auto key = content((world.store.temp / "secret.key").cStr());
  auto rotation = world.vault->rotate();
  auto joined = world.vault->rotate();
  kj::Vector<kj::Promise<Result<SecretVault::Set>>> sets;
  for (int i = 0; i < 40; i += 2)
    sets.add(world.vault->set(kj::str("k", i), bytes(kj::str("new ", i))));
  for (int i = 0; i < 10; ++i)
    CHECK(world.value("", "prof-1", "k0") != "notFound");
  for (auto& each: sets)
    get(world.store.wait(kj::mv(each)));
  CHECK(get(world.store.wait(kj::mv(rotation))) == 40);
  CHECK(get(world.store.wait(kj::mv(joined))) == 40);
  CHECK(content((world.store.temp / "secret.key").cStr()) != key);
  CHECK_FALSE(KJ_ASSERT_NONNULL(world.box).isRotating());
  for (int i = 0; i < 40; ++i) {
    world.addProfile(kj::str("prof-k", i), kj::str("k", i));
    CHECK(world.value("", kj::str("prof-k", i), kj::str("k", i)) ==
          kj::str(i % 2 == 0 ? "new " : "old ", i));
  }
}

TEST_CASE("a change of the key that a crash cut short is done at the next start") {
  World world;
  world.addProfile("prof-1", "k");
  world.set("k", "value");
  fine(KJ_ASSERT_NONNULL(world.box).beginRotation(world.entropy));
  world.closeStore();
  world.open();
  REQUIRE(KJ_ASSERT_NONNULL(world.box).isRotating());
  CHECK(get(world.store.wait(world.vault->rotate())) == 1);  // Joins the one in the background.
  CHECK_FALSE(KJ_ASSERT_NONNULL(world.box).isRotating());
  CHECK(world.value("", "prof-1", "k") == "value");
}

TEST_CASE("values outlive a restart, and without their key the store is not opened") {
  World world;
  world.addProfile("prof-1", "k");
  world.set("k", "value");
  world.closeStore();
  world.open();
  CHECK(world.value("", "prof-1", "k") == "value");
  world.closeStore();
  REQUIRE(unlink((world.store.temp / "secret.key").cStr()) == 0);
  auto refused =
      world.store.wait(openSecretBox(*world.store.database, kj::str(world.store.temp.path())));
  CHECK(refused.get<Problem>().code == ErrorCode::DENIED);
  CHECK(access((world.store.temp / "secret.key").cStr(), F_OK) != 0);
}

TEST_CASE("a value stands in no file, no log line and no answer") {
  World world;
  world.addProfile("prof-1", "k");
  auto large = kj::str(PLANTED, kj::repeat('x', 300'000), PLANTED);
  world.set("k", PLANTED);
  world.set("large", large);
  world.set("k", kj::str(PLANTED, " again"));
  CHECK(test::contains(world.value("", "prof-1", "k"), PLANTED));
  get(world.store.wait(world.vault->rotate()));
  for (auto& row: get(world.store.wait(world.vault->list(kj::str(), 10))).secrets)
    CHECK_FALSE(test::contains(row.record.name, PLANTED));
  int files = 0;
  for (auto& entry: std::filesystem::recursive_directory_iterator(world.store.temp.path().cStr())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    INFO(entry.path());
    CHECK(content(entry.path()).find(PLANTED.cStr()) == std::string::npos);
  }
  CHECK(files >= 3);  // The database, its log, the key.
  for (auto& line: world.logs.lines())
    CHECK_FALSE(test::contains(line, PLANTED));
}

}  // namespace capstan
