// The catalog over a real store: durable first, then memory, then whoever listens.
#include "core/catalog.h"

#include "base/ids.h"
#include "store/environment-table.h"
#include "unit/store/store-fixture.h"

namespace capstan {

using test::fine;
using test::get;
using test::problemOf;

namespace {

struct World {
  test::LogWatch logs;
  test::Store store;
  SystemEntropy entropy;
  Limits limits;
  kj::Own<Catalog> catalog = load();

  kj::Own<Catalog> load() {
    return get(store.wait(
        Catalog::load(*store.database, kj::systemPreciseCalendarClock(), entropy, limits)));
  }
  // As after a restart of the daemon.
  void restart() {
    catalog = nullptr;
    store.wait(store.database->close());
    DatabaseOptions options;
    options.path = kj::str(store.path);
    store.database = get(store.wait(Database::open(kj::mv(options))));
    catalog = load();
  }

  ExecutorRecord addExecutor(kj::StringPtr name, kj::StringPtr type = "ssh"_kj) {
    ExecutorChange change;
    change.name = kj::str(name);
    change.type = kj::str(type);
    return get(store.wait(catalog->save(kj::mv(change))));
  }
  ProfileRecord addProfile(kj::StringPtr executorId, kj::StringPtr name) {
    ProfileChange change;
    change.executorId = kj::str(executorId);
    change.name = kj::str(name);
    change.prepareScript = kj::str("prepare 1");
    change.cleanupScript = kj::str("cleanup 1");
    return get(store.wait(catalog->save(kj::mv(change))));
  }
  void addEnvironment(kj::StringPtr executorId, kj::StringPtr profileId) {
    fine(store.wait(store.database->write(
        [executorId = kj::str(executorId), profileId = kj::str(profileId)](Connection& db) {
          auto record = test::environment("env-1", "fix-42");
          record.executorId = kj::str(executorId);
          record.profileId = kj::str(profileId);
          return EnvironmentTable(db).add(record);
        })));
  }
  Problem refused(kj::Promise<Outcome> promise) { return problemOf(store.wait(kj::mv(promise))); }
};

ExecutorChange rename(kj::StringPtr id, kj::StringPtr name, uint64_t ifVersion) {
  ExecutorChange change;
  change.id = kj::str(id);
  change.name = kj::str(name);
  change.ifVersion = ifVersion;
  return change;
}

ProfileChange script(kj::StringPtr id, kj::Maybe<kj::StringPtr> prepare,
                     kj::Maybe<kj::StringPtr> cleanup) {
  ProfileChange change;
  change.id = kj::str(id);
  change.ifVersion = ANY_VERSION;
  change.prepareScript = prepare.map([](kj::StringPtr text) { return kj::str(text); });
  change.cleanupScript = cleanup.map([](kj::StringPtr text) { return kj::str(text); });
  return change;
}

class Listener final: public CatalogListener {
public:
  explicit Listener(Catalog& catalog): catalog(catalog) { catalog.add(*this); }
  ~Listener() noexcept(false) { catalog.remove(*this); }
  void changed(CatalogRow kind, kj::StringPtr id) override {
    heard.add(kj::str(kind == CatalogRow::EXECUTOR ? "executor " : "profile ", id));
  }
  kj::Vector<kj::String> heard;

private:
  Catalog& catalog;
};

}  // namespace

TEST_CASE("a new catalog has the system rows, and what is saved survives a restart") {
  World world;
  CHECK(world.catalog->rows().executors().size() == 2);
  CHECK(world.catalog->choose({}).get<Chosen>().executor.id == "exec-local-pc");

  ExecutorChange change;
  change.name = kj::str("s1");
  change.type = kj::str("sprites");
  change.config = kj::arr(Label{kj::str("k"), kj::str("v")});
  auto executor = get(world.store.wait(world.catalog->save(kj::mv(change))));
  CHECK(executor.version == 1);
  CHECK(isId(IdKind::EXECUTOR, executor.id));
  auto profile = world.addProfile(executor.id, "p1");
  CHECK(isId(IdKind::PROFILE, profile.id));
  fine(world.store.wait(world.catalog->setDefaultExecutor(kj::str(), kj::str(executor.id))));
  fine(world.store.wait(world.catalog->setDefaultExecutor(kj::str("a/b"), kj::str(LOCAL_PC))));
  get(world.store.wait(world.catalog->save(rename("exec-local-docker", "Docker", 1))));

  world.restart();
  auto& rows = world.catalog->rows();
  CHECK(rows.findExecutor("s1").get<const ExecutorRecord*>()->config[0].value == "v");
  CHECK(rows.findProfile("p1").get<const ProfileRecord*>()->prepareScript == "prepare 1");
  CHECK(rows.defaults().size() == 2);
  CHECK(rows.choose({}).get<Chosen>().executor.id == executor.id);
  CHECK(rows.choose({.tenant = "a/b"}).get<Chosen>().executor.id == LOCAL_PC);
  CHECK(rows.findExecutor("Docker").get<const ExecutorRecord*>()->version == 2);
}

TEST_CASE("of two writers that saw one version, one is told of the other's") {
  World world;
  auto row = world.addExecutor("e");
  auto first = world.catalog->save(rename(row.id, "first", row.version));
  auto second = world.catalog->save(rename(row.id, "second", row.version));
  auto late = problemOf(world.store.wait(kj::mv(second)));
  CHECK(get(world.store.wait(kj::mv(first))).name == "first");
  CHECK(late.code == ErrorCode::WRONG_STATE);
  CHECK(late.retry == RetryHint::AFTER_REFRESH);
  CHECK(late.cause == "it is at version 2, not 1");
  CHECK(KJ_ASSERT_NONNULL(world.catalog->rows().executor(row.id)).name == "first");
  // With the version it was told, the second one gets through.
  CHECK(get(world.store.wait(world.catalog->save(rename(row.id, "second", 2)))).version == 3);
}

TEST_CASE("a partial save keeps a script that was saved meanwhile; the last commit wins") {
  World world;
  auto row = world.addProfile(LOCAL_PC, "p");
  auto one = world.catalog->save(script(row.id, "prepare 2"_kj, nullptr));
  auto two = world.catalog->save(script(row.id, nullptr, ""_kj));
  auto three = world.catalog->save(script(row.id, "prepare 3"_kj, nullptr));
  // Each answer is what that save committed.
  auto answerOne = get(world.store.wait(kj::mv(one)));
  CHECK(answerOne.prepareScript == "prepare 2");
  CHECK(answerOne.cleanupScript == "cleanup 1");
  CHECK(answerOne.version == 2);
  auto answerTwo = get(world.store.wait(kj::mv(two)));
  CHECK(answerTwo.prepareScript == "prepare 2");
  CHECK(answerTwo.cleanupScript == "");
  CHECK(answerTwo.version == 3);
  CHECK(get(world.store.wait(kj::mv(three))).prepareScript == "prepare 3");
  world.restart();
  auto& kept = KJ_ASSERT_NONNULL(world.catalog->rows().profile(row.id));
  CHECK(kept.prepareScript == "prepare 3");
  CHECK(kept.cleanupScript == "");
  CHECK(kept.version == 4);
}

TEST_CASE("a save whose caller has left happens, on disk and in memory") {
  World world;
  auto row = world.addExecutor("e");
  {
    auto dropped = world.catalog->save(rename(row.id, "kept", ANY_VERSION));
  }
  fine(world.store.wait(world.catalog->setDefaultExecutor(kj::str("t"), kj::str(row.id))));
  CHECK(KJ_ASSERT_NONNULL(world.catalog->rows().executor(row.id)).name == "kept");
  world.restart();
  CHECK(KJ_ASSERT_NONNULL(world.catalog->rows().executor(row.id)).name == "kept");
}

TEST_CASE("listeners hear of commits only, in their order") {
  World world;
  Listener listener(*world.catalog);
  auto row = world.addExecutor("e");
  auto profile = world.addProfile(row.id, "p");
  auto before = world.catalog->seq();
  problemOf(world.store.wait(world.catalog->save(rename(row.id, "exec-x", ANY_VERSION))));
  problemOf(world.store.wait(world.catalog->save(rename(row.id, "Local PC", ANY_VERSION))));
  problemOf(world.store.wait(world.catalog->save(rename("exec-none", "n", ANY_VERSION))));
  world.refused(world.catalog->removeExecutor(kj::str(row.id), ANY_VERSION));
  CHECK(world.catalog->seq() == before);
  CHECK(KJ_ASSERT_NONNULL(world.catalog->rows().executor(row.id)).name == "e");
  fine(world.store.wait(world.catalog->removeProfile(kj::str(profile.id), 1)));
  REQUIRE(listener.heard.size() == 3);
  CHECK(listener.heard[0] == kj::str("executor ", row.id));
  CHECK(listener.heard[1] == kj::str("profile ", profile.id));
  CHECK(listener.heard[2] == kj::str("profile ", profile.id));
  CHECK(world.catalog->rows().profile(profile.id) == nullptr);
}

TEST_CASE("what is in use is not removed, and the refusal says by what") {
  World world;
  auto row = world.addExecutor("e");
  auto profile = world.addProfile(row.id, "node");
  auto remove = [&]() {
    return world.refused(world.catalog->removeExecutor(kj::str(row.id), ANY_VERSION));
  };
  CHECK(test::contains(remove().cause, "'node' is one"));
  world.addEnvironment(row.id, profile.id);
  auto byEnvironment = remove();
  CHECK(byEnvironment.code == ErrorCode::WRONG_STATE);
  CHECK(test::contains(byEnvironment.cause, "env-1 of task 'fix-42'"));
  auto ofProfile = world.refused(world.catalog->removeProfile(kj::str(profile.id), ANY_VERSION));
  CHECK(test::contains(ofProfile.cause, "env-1 of task 'fix-42'"));
  fine(world.store.wait(world.store.database->write(
      [](Connection& db) { return EnvironmentTable(db).remove("env-1"); })));
  fine(world.store.wait(world.catalog->removeProfile(kj::str(profile.id), ANY_VERSION)));
  fine(world.store.wait(world.catalog->setDefaultExecutor(kj::str("acme"), kj::str(row.id))));
  CHECK(remove().cause == "it is the default executor of tenant 'acme'");
  fine(world.store.wait(world.catalog->setDefaultExecutor(kj::str("acme"), kj::str())));
  CHECK(world.refused(world.catalog->removeExecutor(kj::str(row.id), 7)).retry ==
        RetryHint::AFTER_REFRESH);
  fine(world.store.wait(world.catalog->removeExecutor(kj::str(row.id), 1)));
  CHECK(remove().code == ErrorCode::NOT_FOUND);
  // Its name is free again.
  CHECK(world.addExecutor("e").id != row.id);
}

TEST_CASE("system rows stay, and names are given once") {
  World world;
  CHECK(world.refused(world.catalog->removeExecutor(kj::str(LOCAL_PC), ANY_VERSION)).code ==
        ErrorCode::DENIED);
  ExecutorChange again;
  again.name = kj::str("Local PC");
  again.type = kj::str("local");
  CHECK(problemOf(world.store.wait(world.catalog->save(kj::mv(again)))).code ==
        ErrorCode::ALREADY_EXISTS);
  ProfileChange orphan;
  orphan.executorId = kj::str("exec-none");
  orphan.name = kj::str("p");
  CHECK(problemOf(world.store.wait(world.catalog->save(kj::mv(orphan)))).code ==
        ErrorCode::NOT_FOUND);
  CHECK(world.refused(world.catalog->setDefaultExecutor(kj::str(), kj::str("exec-none"))).code ==
        ErrorCode::NOT_FOUND);
}

TEST_CASE("the catalog is bounded") {
  World world;
  world.limits.executors = 3;
  world.limits.profiles = 1;
  world.limits.tenantDefaults = 1;
  world.catalog = world.load();
  auto row = world.addExecutor("e");
  world.addProfile(row.id, "p");
  ExecutorChange executor;
  executor.type = kj::str("ssh");
  executor.name = kj::str("f");
  CHECK(problemOf(world.store.wait(world.catalog->save(kj::mv(executor)))).code ==
        ErrorCode::RESOURCE_EXHAUSTED);
  ProfileChange profile;
  profile.executorId = kj::str(row.id);
  profile.name = kj::str("q");
  CHECK(problemOf(world.store.wait(world.catalog->save(kj::mv(profile)))).code ==
        ErrorCode::RESOURCE_EXHAUSTED);
  fine(world.store.wait(world.catalog->setDefaultExecutor(kj::str("a"), kj::str(row.id))));
  CHECK(world.refused(world.catalog->setDefaultExecutor(kj::str("b"), kj::str(row.id))).code ==
        ErrorCode::RESOURCE_EXHAUSTED);
  // What is there may still change.
  fine(world.store.wait(world.catalog->setDefaultExecutor(kj::str("a"), kj::str(LOCAL_PC))));
  CHECK(get(world.store.wait(world.catalog->save(rename(row.id, "g", 1)))).name == "g");
  world.limits.catalogBytes = 1;
  world.catalog = world.load();
  CHECK(problemOf(world.store.wait(world.catalog->save(rename(row.id, "h", 2)))).code ==
        ErrorCode::RESOURCE_EXHAUSTED);
}

}  // namespace capstan
