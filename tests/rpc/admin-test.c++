// Administration over the client interface: tables, partial saves, watchers, defaults, secrets.
#include "support/daemon.h"

#include <cstring>
#include <set>

namespace capstan {

using test::Daemon;

namespace {

using Executors = rpc::Table<rpc::Executor>;
using Profiles = rpc::Table<rpc::Profile>;

constexpr kj::StringPtr PLANTED = "planted-secret-77e0b1c4"_kj;

struct World {
  test::LogWatch logs;
  Daemon daemon;
  kj::Own<ClientConnection> client = daemon.connect();
  rpc::Admin::Client admin = client->admin();
  Executors::Client executors = admin.executorsRequest().send().getTable();
  Profiles::Client profiles = admin.profilesRequest().send().getTable();

  capnp::Response<Executors::PutResults> addExecutor(kj::StringPtr type, kj::StringPtr name) {
    auto request = executors.putRequest();
    auto row = request.initRow();
    row.setType(type);
    row.setName(name);
    return daemon.wait(request.send());
  }
  capnp::Response<Profiles::PutResults> addProfile(kj::StringPtr executorId, kj::StringPtr name) {
    auto request = profiles.putRequest();
    auto row = request.initRow();
    row.setExecutorId(executorId);
    row.setName(name);
    row.setPrepareScript("prepare");
    row.setCleanupScript("cleanup");
    return daemon.wait(request.send());
  }
  capnp::Response<Profiles::GetResults> profile(kj::StringPtr id) {
    auto request = profiles.getRequest();
    request.setId(id);
    return daemon.wait(request.send());
  }
  ErrorCode setSecret(kj::StringPtr name, kj::StringPtr value) {
    auto request = admin.setSecretRequest();
    request.setName(name);
    request.setValue(value.asBytes());
    return daemon.wait(request.send()).getError().getCode();
  }
};

// Events as words, such as "reset", "+NAME", "-ID", "synced".
struct Seen {
  kj::Vector<kj::String> events;
  std::set<std::string> names;  // As the events leave it.
  bool synced = false;
};
class Watching final: public rpc::Watcher<rpc::Executor>::Server {
public:
  Watching(Seen& seen, kj::Maybe<kj::Promise<void>> holdUntil): seen(seen) {
    KJ_IF_MAYBE (promise, holdUntil) {
      hold = promise->fork();
    }
  }

protected:
  kj::Promise<void> event(EventContext context) override {
    auto change = context.getParams().getChange();
    switch (change.which()) {
      case rpc::Watcher<rpc::Executor>::Change::RESET:
        seen.events.add(kj::str("reset"));
        seen.names.clear();
        seen.synced = false;
        break;
      case rpc::Watcher<rpc::Executor>::Change::UPSERT:
        seen.events.add(kj::str("+", change.getUpsert().getName()));
        seen.names.insert(change.getUpsert().getName().cStr());
        break;
      case rpc::Watcher<rpc::Executor>::Change::REMOVE:
        seen.events.add(kj::str("-", change.getRemove()));
        break;
      case rpc::Watcher<rpc::Executor>::Change::SYNCED:
        seen.events.add(kj::str("synced"));
        seen.synced = true;
        break;
    }
    KJ_IF_MAYBE (fork, hold) {
      return fork->addBranch();
    }
    return kj::READY_NOW;
  }
  kj::Promise<void> closed(ClosedContext) override { return kj::READY_NOW; }

private:
  Seen& seen;
  kj::Maybe<kj::ForkedPromise<void>> hold;
};

rpc::Subscription::Client watch(World& world, Seen& seen,
                                kj::Maybe<kj::Promise<void>> holdUntil = nullptr) {
  auto request = world.executors.watchRequest();
  request.setWatcher(kj::heap<Watching>(seen, kj::mv(holdUntil)));
  return request.send().getSubscription();
}

}  // namespace

TEST_CASE("an executor goes through its life over the wire") {
  World world;
  auto added = world.addExecutor("local", "mine");
  REQUIRE(added.getError().getCode() == ErrorCode::NONE);
  CHECK(added.getVersion() == 1);
  CHECK(added.getRow().getType() == "local_pc");
  CHECK(added.getRow().getStatus() == "active");
  auto id = kj::str(added.getRow().getId());

  auto update = world.executors.putRequest();
  update.setId(id);
  update.setIfVersion(1);
  update.initRow().initConfig(1)[0].setKey("k");
  update.getRow().getConfig()[0].setValue("v");
  auto updated = world.daemon.wait(update.send());
  CHECK(updated.getVersion() == 2);
  CHECK(updated.getRow().getName() == "mine");  // Not given, so it stays.
  CHECK(updated.getRow().getConfig()[0].getValue() == "v");

  // The other writer, who read version 1.
  auto late = world.executors.putRequest();
  late.setId(id);
  late.setIfVersion(1);
  late.initRow().setStatus("disabled");
  auto refused = world.daemon.wait(late.send());
  CHECK(refused.getError().getCode() == ErrorCode::WRONG_STATE);
  CHECK(refused.getError().getRetry() == rpc::RetryHint::AFTER_REFRESH);
  CHECK(strstr(refused.getError().getCause().cStr(), "version 2") != nullptr);

  auto get = world.executors.getRequest();
  get.setId("min");
  auto got = world.daemon.wait(get.send());
  CHECK(got.getRow().getId() == id);
  CHECK(got.getRow().getStatus() == "active");

  // A given, empty list clears; an absent one keeps.
  auto clear = world.executors.putRequest();
  clear.setId(id);
  clear.setIfVersion(rpc::ANY_VERSION);
  clear.initRow().initConfig(0);
  CHECK(world.daemon.wait(clear.send()).getRow().getConfig().size() == 0);

  auto names = world.daemon.wait(world.client->supervisor().executorsRequest().send());
  CHECK(names.getExecutors().size() == 3);
  auto remove = world.executors.removeRequest();
  remove.setId(id);
  remove.setIfVersion(3);
  CHECK(world.daemon.wait(remove.send()).getError().getCode() == ErrorCode::NONE);
  CHECK(world.daemon.wait(world.client->supervisor().executorsRequest().send())
            .getExecutors()
            .size() == 2);
}

TEST_CASE("a fingerprint and an unknown type are refused when an executor is added") {
  World world;
  auto request = world.executors.putRequest();
  auto row = request.initRow();
  row.setType("ssh");
  row.setName("h");
  auto pair = row.initConfig(1)[0];
  pair.setKey("ssh_host_fingerprint");
  pair.setValue("SHA256:abc");
  auto refused = world.daemon.wait(request.send());
  CHECK(refused.getError().getCode() == ErrorCode::INVALID_ARGUMENT);
  CHECK(refused.getError().getField() == "config.ssh_host_fingerprint");
  CHECK(world.addExecutor("vm", "x").getError().getCode() == ErrorCode::INVALID_ARGUMENT);
  CHECK(world.addExecutor("sprites", "s1").getError().getCode() == ErrorCode::NONE);
}

TEST_CASE("a profile's script that is not set stays, an empty one is cleared") {
  World world;
  auto added = world.addProfile("exec-local-pc", "p");
  auto id = kj::str(added.getRow().getId());
  auto update = world.profiles.putRequest();
  update.setId(id);
  update.setIfVersion(rpc::ANY_VERSION);
  update.initRow().setPrepareScript("");
  auto saved = world.daemon.wait(update.send());
  CHECK(saved.getRow().getPrepareScript() == "");
  CHECK(saved.getRow().getCleanupScript() == "cleanup");
  CHECK(saved.getVersion() == 2);

  auto refused = world.profiles.putRequest();
  refused.setId(id);
  refused.setIfVersion(rpc::ANY_VERSION);
  refused.initRow().setPrepareScript("new");
  refused.getRow().setName("-bad");
  CHECK(world.daemon.wait(refused.send()).getError().getField() == "name");
  auto got = world.profile("p");
  CHECK(got.getRow().getPrepareScript() == "");
  CHECK(got.getVersion() == 2);
  // Names are for everybody, what is in a profile is not.
  auto names = world.daemon.wait(world.client->supervisor().executorsRequest().send());
  REQUIRE(names.getProfiles().size() == 1);
  CHECK(names.getProfiles()[0].getName() == "p");
  CHECK_FALSE(names.getProfiles()[0].hasCleanupScript());
}

TEST_CASE("a list comes in pages, and large rows end one earlier") {
  World world;
  auto script = kj::heapString(250'000);
  memset(script.begin(), 'x', script.size());
  for (int i = 0; i < 20; ++i) {
    auto request = world.profiles.putRequest();
    auto row = request.initRow();
    row.setExecutorId("exec-local-pc");
    row.setName(kj::str("p", i));
    row.setPrepareScript(script);
    REQUIRE(world.daemon.wait(request.send()).getError().getCode() == ErrorCode::NONE);
  }
  size_t rows = 0, pages = 0;
  kj::String after;
  do {
    auto request = world.profiles.listRequest();
    request.setAfter(after);
    auto page = world.daemon.wait(request.send());
    REQUIRE(page.getRows().size() > 0);
    rows += page.getRows().size();
    ++pages;
    after = kj::str(page.getNext());
  } while (after.size() > 0);
  CHECK(rows == 20);
  CHECK(pages == 2);
  auto request = world.profiles.listRequest();
  request.setLimit(3);
  CHECK(world.daemon.wait(request.send()).getRows().size() == 3);
}

TEST_CASE("a watcher gets all rows, then every change, and nothing after it left") {
  World world;
  Seen seen;
  {
    auto subscription = watch(world, seen);
    REQUIRE(world.daemon.becomesTrue([&]() { return seen.synced; }));
    REQUIRE(seen.events.size() == 4);
    CHECK(seen.events[0] == "reset");
    CHECK(seen.names == std::set<std::string>{"Local PC", "Local Docker"});
    auto added = world.addExecutor("ssh", "h");
    REQUIRE(world.daemon.becomesTrue([&]() { return seen.names.count("h") == 1; }));
    world.addExecutor("vm", "refused");
    world.addProfile("exec-local-pc", "p");
    auto id = kj::str(added.getRow().getId());
    auto remove = world.executors.removeRequest();
    remove.setId(id);
    remove.setIfVersion(1);
    world.daemon.wait(remove.send());
    REQUIRE(world.daemon.becomesTrue([&]() { return seen.events.size() == 6; }));
    CHECK(seen.events[5] == kj::str("-", id));
    CHECK(world.daemon.wait(subscription.statsRequest().send()).getDelivered() == 6);
  }
  world.addExecutor("ssh", "later");
  world.daemon.wait(world.client->supervisor().executorsRequest().send());
  CHECK(seen.events.size() == 6);
}

TEST_CASE("a watcher that takes nothing holds nobody up and gets the last state") {
  World world;
  auto gate = kj::newPromiseAndFulfiller<void>();
  Seen seen;
  auto subscription = watch(world, seen, kj::mv(gate.promise));
  auto id = kj::str(world.addExecutor("ssh", "h").getRow().getId());
  auto text = kj::heapString(200'000);
  memset(text.begin(), 'x', text.size());
  for (int i = 0; i < 40; ++i) {  // Far more than its stream's window holds.
    auto update = world.executors.putRequest();
    update.setId(id);
    update.setIfVersion(rpc::ANY_VERSION);
    auto pair = update.initRow().initConfig(1)[0];
    pair.setKey("k");
    pair.setValue(text);
    update.getRow().setName(kj::str("h", i));
    REQUIRE(world.daemon.wait(update.send()).getError().getCode() == ErrorCode::NONE);
  }
  CHECK(world.daemon.wait(subscription.statsRequest().send()).getCoalesced() > 20);
  CHECK(seen.names.count("h39") == 0);
  gate.fulfiller->fulfill();
  CHECK(world.daemon.becomesTrue([&]() { return seen.names.count("h39") == 1; }));
  CHECK(world.daemon.wait(subscription.statsRequest().send()).getDelivered() < 30);
}

TEST_CASE("default executors are set, shown and cleared") {
  World world;
  world.addExecutor("ssh", "h");
  auto set = [&](kj::StringPtr tenant, kj::StringPtr executor) {
    auto request = world.admin.setDefaultExecutorRequest();
    request.setTenantId(tenant);
    request.setExecutorId(executor);
    return world.daemon.wait(request.send()).getError().getCode();
  };
  CHECK(set("", "h") == ErrorCode::NONE);
  CHECK(set("acme", "Local PC") == ErrorCode::NONE);
  CHECK(set("acme", "nowhere") == ErrorCode::NOT_FOUND);
  auto shown = world.daemon.wait(world.admin.defaultExecutorsRequest().send());
  REQUIRE(shown.getDefaults().size() == 2);
  CHECK(shown.getDefaults()[0].getTenantId() == "");
  CHECK(shown.getDefaults()[1].getExecutorId() == "exec-local-pc");
  CHECK(set("", "") == ErrorCode::NONE);
  CHECK(world.daemon.wait(world.admin.defaultExecutorsRequest().send()).getDefaults().size() == 1);
}

TEST_CASE("secrets over the wire: names and permissions come back, values never do") {
  World world;
  auto profileId = kj::str(world.addProfile("exec-local-pc", "p").getRow().getId());
  CHECK(world.setSecret("a", PLANTED) == ErrorCode::NONE);
  CHECK(world.setSecret("b", PLANTED) == ErrorCode::NONE);
  CHECK(world.setSecret("a b", PLANTED) == ErrorCode::INVALID_ARGUMENT);
  // What the command line sends at most fits into one message.
  auto largest = kj::heapString((1u << 20) - 4096);
  memset(largest.begin(), 'x', largest.size());
  CHECK(world.setSecret("large", largest) == ErrorCode::NONE);

  auto allow = world.admin.allowSecretRequest();
  allow.setName("a");
  allow.setProfileId(profileId);
  CHECK(world.daemon.wait(allow.send()).getError().getCode() == ErrorCode::NONE);
  auto rotated = world.daemon.wait(world.admin.rotateSecretKeyRequest().send());
  CHECK(rotated.getResealed() == 3);
  auto request = world.admin.secretsRequest();
  request.setLimit(2);
  auto page = world.daemon.wait(request.send());
  REQUIRE(page.getSecrets().size() == 2);
  CHECK(page.getNext() == "b");
  CHECK(page.getSecrets()[0].getProfileIds()[0] == profileId);
  CHECK(strstr(kj::str(page).cStr(), PLANTED.cStr()) == nullptr);
  auto disallow = world.admin.disallowSecretRequest();
  disallow.setName("a");
  disallow.setProfileId(profileId);
  CHECK(world.daemon.wait(disallow.send()).getError().getCode() == ErrorCode::NONE);
  auto remove = world.admin.removeSecretRequest();
  remove.setName("a");
  CHECK(world.daemon.wait(remove.send()).getError().getCode() == ErrorCode::NONE);
  auto again = world.admin.removeSecretRequest();
  again.setName("a");
  CHECK(world.daemon.wait(again.send()).getError().getCode() == ErrorCode::NOT_FOUND);
  for (auto& line: world.logs.lines())
    CHECK(strstr(line.cStr(), PLANTED.cStr()) == nullptr);
}

}  // namespace capstan
