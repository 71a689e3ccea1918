// Helpers that outlive a daemon, as the store has them.
#include "core/helper-book.h"

#include "domain/takeover.h"
#include "store/control-server-table.h"
#include "store/secret-table.h"
#include "unit/store/store-fixture.h"

namespace capstan {

using test::fine;
using test::get;

namespace {

constexpr kj::StringPtr KEY = "0123456789abcdef"_kj;

struct World {
  test::LogWatch logs;
  test::Store store;
  SystemEntropy entropy;
  SecretBox box;
  StoredHelperBook book;

  World()
      : box(get(store.wait(openSecretBox(*store.database, kj::str(store.temp.path()))))),
        book(*store.database, box, kj::systemPreciseCalendarClock(), entropy) {}

  void add(kj::StringPtr name) {
    HelperEntry entry{kj::str(name),
                      kj::str("/run/", name),
                      0,
                      0,
                      kj::String(),
                      nullptr,
                      nullptr,
                      0,
                      kj::String(),
                      nullptr};
    entry.credential = Credential(Credential::Kind::NONCE, kj::heapArray(KEY.asBytes()));
    fine(store.wait(book.add(kj::mv(entry))));
    fine(store.wait(book.started(kj::str(name), 17, 4711, kj::str("boot"))));
  }
  HelperEntry current() {
    auto found = get(store.wait(book.current()));
    return kj::mv(KJ_ASSERT_NONNULL(found));
  }
  // What opens the helper `name` cannot be opened any more.
  void damage(kj::StringPtr name) {
    fine(store.wait(store.database->write([name = kj::str(name)](Connection& db) -> Outcome {
      auto record = KJ_ASSERT_NONNULL(ControlServerTable(db).find(name));
      return SecretTable(db).remove(record.secretId);
    })));
  }
};

}  // namespace

TEST_CASE("a helper whose credential cannot be opened is told without it") {
  World world;
  world.add("a");
  auto whole = world.current();
  CHECK(whole.locked == nullptr);
  CHECK(KJ_ASSERT_NONNULL(whole.credential).key() == KEY.asBytes());
  world.damage("a");
  auto locked = world.current();
  CHECK(locked.credential == nullptr);
  CHECK(KJ_ASSERT_NONNULL(locked.locked).upstreamCode == takeover::CREDENTIAL_UNAVAILABLE);
  CHECK(locked.name == "a");
  CHECK(locked.endpoint == "/run/a");
  CHECK(locked.pid == 17);
  CHECK(locked.startTicks == 4711);
  CHECK(locked.bootId == "boot");
  fine(world.store.wait(world.book.remove(kj::str("a"))));
  CHECK(get(world.store.wait(world.book.current())) == nullptr);
}

TEST_CASE("helpers that were replaced drain until they are removed") {
  World world;
  constexpr size_t MANY = 205;
  for (size_t i = 0; i < MANY; ++i)
    world.add(kj::str("h", i));
  CHECK(world.current().name == kj::str("h", MANY - 1));
  auto draining = get(world.store.wait(world.book.draining()));
  REQUIRE(draining.size() == MANY - 1);
  for (auto& each: draining) {
    CHECK(each.name != kj::str("h", MANY - 1));
    CHECK(each.pid == 17);
    CHECK(each.credential == nullptr);
  }
  fine(world.store.wait(world.book.remove(kj::str("h0"))));
  CHECK(get(world.store.wait(world.book.draining())).size() == MANY - 2);
}

}  // namespace capstan
