#include "backends/fake/fake-world.h"

#include <kj/debug.h>

#include <deque>
#include <filesystem>

namespace capstan {

namespace fs = std::filesystem;

struct FakeWorld::Event {
  kj::String environmentId;
  kj::String generation;
  RuntimeObserver::Change change;
  kj::Maybe<Problem> cause;
};

struct FakeWorld::Watcher {
  static constexpr size_t MAX_WAITING = 10'000;

  FakeWorld& world;
  std::deque<Event> waiting;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> wake;

  explicit Watcher(FakeWorld& world): world(world) { world.watchers.add(this); }
  ~Watcher() noexcept(false) {
    kj::Vector<Watcher*> others;
    for (auto* each: world.watchers) {
      if (each != this) others.add(each);
    }
    world.watchers = kj::mv(others);
  }
  KJ_DISALLOW_COPY_AND_MOVE(Watcher);

  void push(Event event) {
    KJ_REQUIRE(waiting.size() < MAX_WAITING, "too many events announced at once");
    waiting.push_back(kj::mv(event));
    KJ_IF_MAYBE (fulfiller, wake) {
      (*fulfiller)->fulfill();
    }
    wake = nullptr;
  }
};

kj::String FakeWorld::nameOf(kj::StringPtr environmentId, kj::StringPtr kind) {
  return kj::str("capstan-", environmentId, "-", kind);
}

kj::Maybe<FakeThing&> FakeWorld::find(kj::StringPtr kind, kj::StringPtr name) {
  for (auto& each: all) {
    if (each->kind == kind && each->name == name) return *each;
  }
  return nullptr;
}

kj::Maybe<FakeThing&> FakeWorld::thingOf(kj::StringPtr environmentId, kj::StringPtr kind) {
  return find(kind, nameOf(environmentId, kind));
}

kj::Maybe<FakeThing&> FakeWorld::findIdentity(kj::StringPtr kind, kj::StringPtr identity) {
  for (auto& each: all) {
    if (each->kind == kind && each->identity == identity) return *each;
  }
  return nullptr;
}

kj::String FakeWorld::pathOf(kj::StringPtr volumeIdentity) const {
  KJ_IF_MAYBE (folder, root) {
    return kj::str(*folder, '/', volumeIdentity);
  }
  return kj::str("/fake/", volumeIdentity);
}

// ---- what others do

FakeThing& FakeWorld::plant(kj::StringPtr kind, kj::StringPtr name) {
  KJ_REQUIRE(find(kind, name) == nullptr, "the name is taken", kind, name);
  FakeThing thing;
  thing.kind = kj::str(kind);
  thing.name = kj::str(name);
  thing.identity = newIdentity(kind);
  thing.running = kind == fake_kind::COMPUTE;
  return *all.add(kj::heap(kj::mv(thing)));
}

void FakeWorld::vanish(kj::StringPtr kind, kj::StringPtr name) {
  drop(KJ_REQUIRE_NONNULL(find(kind, name), "there is no such thing", kind, name));
}

FakeThing& FakeWorld::replace(kj::StringPtr kind, kj::StringPtr name) {
  vanish(kind, name);
  return plant(kind, name);
}

void FakeWorld::loseCompute(kj::StringPtr environmentId) {
  auto& compute = KJ_REQUIRE_NONNULL(thingOf(environmentId, fake_kind::COMPUTE));
  auto generation = kj::str(compute.identity);
  drop(compute);
  announce(environmentId, generation, RuntimeObserver::Change::LOST,
           Problem(ErrorCode::INSTANCE_LOST, kj::str("the compute has vanished")));
}

void FakeWorld::cut(kj::StringPtr environmentId) {
  KJ_IF_MAYBE (helper, thingOf(environmentId, fake_kind::HELPER)) {
    auto connections = kj::mv(helper->connections);
    for (auto& each: connections)
      each->cut();
  }
}

void FakeWorld::setReachable(kj::StringPtr environmentId, bool reachable) {
  KJ_REQUIRE_NONNULL(thingOf(environmentId, fake_kind::HELPER)).unreachable = !reachable;
  if (!reachable) cut(environmentId);
}

bool FakeWorld::hasDirectory(kj::StringPtr path) const {
  if (directories.find(path) != nullptr) return true;
  std::error_code ignored;
  return root != nullptr && fs::is_directory(path.cStr(), ignored);
}

void FakeWorld::announce(kj::StringPtr environmentId, kj::StringPtr generation,
                         RuntimeObserver::Change change, kj::Maybe<Problem> cause) {
  for (int i = lies.reportsTwice ? 2 : 1; i > 0; --i) {
    for (auto* each: watchers) {
      each->push(Event{kj::str(environmentId), kj::str(generation), change,
                       cause.map([](Problem& problem) { return problem.clone(); })});
    }
  }
}

// ---- what the backend does

Outcome FakeWorld::make(FakeThing thing) {
  if (find(thing.kind, thing.name) != nullptr) {
    return Problem(ErrorCode::ALREADY_EXISTS,
                   kj::str("there is a ", thing.kind, " named ", thing.name));
  }
  if (thing.kind == fake_kind::VOLUME && root != nullptr) {
    auto path = pathOf(thing.identity);
    for (auto below: {"/workspace", "/runs"}) {
      std::error_code error;
      fs::create_directories(kj::str(path, below).cStr(), error);
      if (error) {
        return Problem(ErrorCode::DENIED, kj::str("cannot make the folder ", path))
            .because(kj::str(error.message().c_str()));
      }
    }
  }
  all.add(kj::heap(kj::mv(thing)));
  return nullptr;
}

bool FakeWorld::remove(kj::StringPtr kind, kj::StringPtr identity) {
  KJ_IF_MAYBE (thing, findIdentity(kind, identity)) {
    drop(*thing);
    return true;
  }
  return false;
}

void FakeWorld::drop(FakeThing& thing) {
  stop(thing);
  if (thing.kind == fake_kind::VOLUME && root != nullptr) {
    std::error_code ignored;  // What is left there is in the test's own folder.
    fs::remove_all(pathOf(thing.identity).cStr(), ignored);
  }
  auto identity = kj::str(thing.identity);
  bool takesHelper = thing.kind == fake_kind::COMPUTE;
  kj::Vector<kj::Own<FakeThing>> left;
  for (auto& each: all) {
    bool goes = each.get() == &thing || (takesHelper && each->inside == identity);
    if (!goes) left.add(kj::mv(each));
  }
  all = kj::mv(left);
}

void FakeWorld::stop(FakeThing& thing) {
  thing.running = false;
  for (auto& each: all) {
    bool ends = each.get() == &thing || each->inside == thing.identity;
    if (!ends || each->kind != fake_kind::HELPER) continue;
    each->running = false;
    each->helper = nullptr;
    auto connections = kj::mv(each->connections);
    for (auto& connection: connections)
      connection->cut();
  }
}

kj::Promise<kj::Own<kj::AsyncIoStream>> FakeWorld::dial(kj::String identity) {
  auto refuse = [&]() {
    kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "no helper answers there", identity));
  };
  kj::Maybe<kj::Own<FakeHelper>> helper;
  KJ_IF_MAYBE (thing, findIdentity(fake_kind::HELPER, identity)) {
    KJ_IF_MAYBE (present, thing->helper) {
      if (!thing->unreachable) helper = kj::addRef(**present);
    }
  }
  if (helper == nullptr) refuse();
  auto stream = co_await KJ_ASSERT_NONNULL(helper)->dial();
  KJ_IF_MAYBE (thing, findIdentity(fake_kind::HELPER, identity)) {
    if (thing->running && !thing->unreachable) {
      auto control = kj::refcounted<CuttableStream::Switch>();
      kj::Vector<kj::Own<CuttableStream::Switch>> open;
      for (auto& each: thing->connections) {
        if (each->isShared()) open.add(kj::mv(each));  // The others' streams are gone.
      }
      open.add(kj::addRef(*control));
      thing->connections = kj::mv(open);
      co_return kj::heap<CuttableStream>(kj::mv(stream), kj::mv(control));
    }
  }
  refuse();
  KJ_UNREACHABLE;
}

kj::Promise<void> FakeWorld::watch(RuntimeObserver& observer) {
  Watcher watcher(*this);
  for (;;) {
    while (!watcher.waiting.empty()) {
      auto event = kj::mv(watcher.waiting.front());
      watcher.waiting.pop_front();
      kj::Maybe<const Problem&> cause;
      KJ_IF_MAYBE (problem, event.cause) {
        cause = *problem;
      }
      observer.changed(event.environmentId, event.generation, event.change, cause);
    }
    auto pair = kj::newPromiseAndFulfiller<void>();
    watcher.wake = kj::mv(pair.fulfiller);
    co_await pair.promise;
  }
}

}  // namespace capstan
