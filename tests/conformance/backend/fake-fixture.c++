// The suite on the fake: no I/O, and time passes only when nothing else happens.

#include "backends/fake/fake-backend.h"
#include "conformance/backend/backend-fixture.h"

namespace capstan::test {

namespace {

constexpr kj::StringPtr USER_DIRECTORY = "/home/someone/project"_kj;

class FakeFixture final: public BackendFixture {
public:
  FakeFixture() {
    world.controls.setDefaultDelay(5 * kj::MILLISECONDS);
    restart();
  }

  Backend& backend() override { return *daemon; }
  void restart() override {
    FakeOptions options;
    options.abilities = FakeAbilities::all();
    daemon = nullptr;
    daemon = kj::heap<FakeBackend>(loop.timer, entropy, world, helpers, kj::mv(options));
  }
  kj::WaitScope& waitScope() override { return loop.waitScope; }
  kj::Timer& timer() override { return loop.timer; }
  void turn() override {
    if (loop.waitScope.poll(1) > 0) return;
    loop.timer.advanceTo(KJ_REQUIRE_NONNULL(loop.timer.nextEvent(), "nothing will ever happen"));
  }

  kj::Vector<Thing> things() override {
    kj::Vector<Thing> result;
    for (auto& each: world.things())
      result.add(describe(*each));
    return result;
  }
  Thing plant() override {
    return describe(world.plant(fake_kind::VOLUME, "capstan-env-somebody-volume"));
  }
  Thing replace(const InventoryItem& item) override {
    vanish(item);
    return describe(world.plant(item.kind, item.name));
  }
  void vanish(const InventoryItem& item) override {
    if (world.find(item.kind, item.name) != nullptr) world.vanish(item.kind, item.name);
  }
  kj::StringPtr workspaceKind() override { return fake_kind::VOLUME; }

  // A file is in the volume of its workspace's path, or in the user's folder.
  void writeFile(Attachment& attachment) override { file = kj::str(attachment.workspace()); }
  bool fileStands(Attachment& attachment) override {
    if (file != attachment.workspace()) return false;
    if (file == USER_DIRECTORY) return userDirectoryStands();
    for (auto& each: world.things()) {
      if (each->kind == fake_kind::VOLUME && file.startsWith(world.pathOf(each->identity))) {
        return true;
      }
    }
    return false;
  }

  kj::String userDirectory() override {
    world.addDirectory(USER_DIRECTORY);
    return kj::str(USER_DIRECTORY);
  }
  bool userDirectoryStands() override { return world.hasDirectory(USER_DIRECTORY); }
  void removeUserDirectory() override { world.removeDirectory(USER_DIRECTORY); }

  kj::Maybe<kj::StringPtr> obstruct(const InventoryItem& item) override {
    fault(kj::str("remove.", item.kind), FakeFault::How::THROWS);
    return nullptr;
  }
  kj::Maybe<kj::StringPtr> refuseAll() override {
    fault(kj::str("create.", fake_kind::HELPER), FakeFault::How::FAILS_AFTER);
    return nullptr;
  }
  void makeUnhealthy() override {
    world.unhealthy = Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("out of order"));
  }
  void heal() override {
    world.unhealthy = nullptr;
    world.controls.clear();
  }

  bool cutConnections(kj::StringPtr environmentId) override {
    world.cut(environmentId);
    return true;
  }
  bool oneHelperForAll() override { return false; }

private:
  Loop loop;
  SystemEntropy entropy;
  PipeHelperLauncher helpers;
  FakeWorld world;
  kj::String file;
  kj::Own<FakeBackend> daemon;

  static Thing describe(const FakeThing& thing) {
    return Thing{kj::str(thing.kind), kj::str(thing.name), kj::str(thing.identity)};
  }
  void fault(kj::String step, FakeFault::How how) {
    FakeFault fault;
    fault.how = how;
    fault.times = UINT32_MAX;
    world.controls.addFault(step, kj::mv(fault));
  }
};

}  // namespace

kj::Own<BackendFixture> newBackendFixture() { return kj::heap<FakeFixture>(); }

}  // namespace capstan::test
