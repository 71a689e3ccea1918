#pragma once
// What lies outside the daemon in a fake runtime: the things that were made there. It outlives the
// backend objects that work on it, so that a test can start "the next daemon".

#include "backends/backend.h"
#include "backends/fake/fake-controls.h"
#include "backends/fake/fake-helper.h"
#include "backends/fake/fake-network.h"

#include <kj/map.h>

namespace capstan {

// The kinds of things of a place, in the order in which they are made. A volume holds the files, a
// helper runs inside a compute.
namespace fake_kind {
inline constexpr kj::StringPtr VOLUME = "volume"_kj;
inline constexpr kj::StringPtr NETWORK = "network"_kj;
inline constexpr kj::StringPtr COMPUTE = "compute"_kj;
inline constexpr kj::StringPtr HELPER = "helper"_kj;
inline constexpr kj::StringPtr ALL[] = {VOLUME, NETWORK, COMPUTE, HELPER};
}  // namespace fake_kind

// One thing. No two of a kind have the same name; identities never come again.
struct FakeThing {
  kj::String kind;
  kj::String name;
  kj::String identity;
  kj::String nonce;                       // Written on it by its maker; empty = somebody else.
  kj::String inside;                      // Of a helper: the identity of its compute.
  bool running = false;                   // Computes and helpers.
  kj::Maybe<kj::Own<FakeHelper>> helper;  // While a helper runs.
  bool unreachable = false;               // Its helper cannot be dialled.
  kj::Vector<kj::Own<CuttableStream::Switch>> connections;  // To its helper.
};

// Untruths besides FakeFault::How::LIES, each until it is taken back.
struct FakeLies {
  bool recoversWithTheWrongOne = false;  // Attachments go to the next record that has one.
  bool reportsTwice = false;             // Every event.
};

class FakeWorld final {
public:
  // `root`: a folder in which volumes are real folders, for helpers that are real processes; null =
  // nothing touches a file system.
  explicit FakeWorld(kj::Maybe<kj::String> root = nullptr): root(kj::mv(root)) {}
  KJ_DISALLOW_COPY_AND_MOVE(FakeWorld);

  FakeControls controls;
  FakeLies lies;
  FakeNetwork network;
  kj::Maybe<Problem> unhealthy;  // What a health check finds; null = healthy.
  kj::String version = kj::str("fake-1");
  kj::Maybe<StopRequest> lastStop;
  bool refreshRestarts = false;  // A staged refresh is of a new helper process.

  // ---- what there is
  static kj::String nameOf(kj::StringPtr environmentId, kj::StringPtr kind);
  kj::ArrayPtr<const kj::Own<FakeThing>> things() const { return all; }
  kj::Maybe<FakeThing&> find(kj::StringPtr kind, kj::StringPtr name);
  kj::Maybe<FakeThing&> thingOf(kj::StringPtr environmentId, kj::StringPtr kind);
  // Where a volume's files are.
  kj::String pathOf(kj::StringPtr volumeIdentity) const;

  // ---- what others do to it
  // Something that Capstan did not make. The name must be free.
  FakeThing& plant(kj::StringPtr kind, kj::StringPtr name);
  // It is gone and something else has its name.
  FakeThing& replace(kj::StringPtr kind, kj::StringPtr name);
  void vanish(kj::StringPtr kind, kj::StringPtr name);
  // The compute is gone with its helper; files and network stay. Watchers are told.
  void loseCompute(kj::StringPtr environmentId);
  // All connections to the helper end; new ones are possible.
  void cut(kj::StringPtr environmentId);
  void setReachable(kj::StringPtr environmentId, bool reachable);
  // What watchers are told, in the loop's next turns.
  void announce(kj::StringPtr environmentId, kj::StringPtr generation,
                RuntimeObserver::Change change, kj::Maybe<Problem> cause);
  // A folder of the user's. With a root, folders that the file system has are there too.
  void addDirectory(kj::StringPtr path) { directories.upsert(kj::str(path), true); }
  void removeDirectory(kj::StringPtr path) { directories.erase(path); }
  bool hasDirectory(kj::StringPtr path) const;

  // ---- what the backend does; all at once, steps and faults are its own concern
  // alreadyExists when the name is taken.
  Outcome make(FakeThing thing);
  kj::String newIdentity(kj::StringPtr kind) { return kj::str(kind, "-", ++serial); }
  // A compute takes its helper along. False when there is none of that identity.
  bool remove(kj::StringPtr kind, kj::StringPtr identity);
  // Ends a compute with its helper, or a helper; all stay in the list.
  void stop(FakeThing& thing);
  // Connects to the helper of identity `identity`; disconnected when that cannot be.
  kj::Promise<kj::Own<kj::AsyncIoStream>> dial(kj::String identity);
  // Tells `observer` of what is announced from now on, until the promise is dropped.
  kj::Promise<void> watch(RuntimeObserver& observer);

private:
  struct Event;
  struct Watcher;
  kj::Maybe<kj::String> root;
  kj::Vector<kj::Own<FakeThing>> all;
  kj::HashMap<kj::String, bool> directories;
  kj::Vector<Watcher*> watchers;
  uint64_t serial = 0;

  kj::Maybe<FakeThing&> findIdentity(kj::StringPtr kind, kj::StringPtr identity);
  void drop(FakeThing& thing);
};

}  // namespace capstan
