#pragma once
// What the suite needs of a runtime to judge its backend. One binary a runtime: the cases of this
// folder, and one implementation of this.

#include "backends/backend.h"
#include "conformance/backend/memory-log.h"
#include "support/test.h"

#include <kj/function.h>

namespace capstan::test {

// Something that exists in the runtime and that a backend may have made.
struct Thing {
  kj::String kind, name, identity;

  bool operator==(const Thing& other) const {
    return kind == other.kind && name == other.name && identity == other.identity;
  }
};
kj::String KJ_STRINGIFY(const Thing& thing);

class BackendFixture {
public:
  virtual ~BackendFixture() noexcept(false) = default;

  virtual Backend& backend() = 0;
  // The daemon is killed and the next one comes up: another object, the same runtime.
  virtual void restart() = 0;

  // ---- the loop
  virtual kj::WaitScope& waitScope() = 0;
  // Runs one turn of the loop, waiting for one if need be.
  virtual void turn() = 0;

  // ---- what is there
  virtual kj::Vector<Thing> things() = 0;
  // Something of somebody else, named as nearly like a thing of ours as the runtime allows.
  virtual Thing plant() = 0;
  // What an item speaks of is gone, if it was there, and something else has its name.
  virtual Thing replace(const InventoryItem& item) = 0;
  // What an item speaks of is gone, whatever stands there.
  virtual void vanish(const InventoryItem& item) = 0;
  // The kind of the item that holds the files.
  virtual kj::StringPtr workspaceKind() = 0;

  // Writes into the workspace of an attachment, and whether that is still to be found.
  virtual void writeFile(Attachment& attachment) = 0;
  virtual bool fileStands(Attachment& attachment) = 0;

  // A folder of the user's, made or removed.
  virtual kj::String userDirectory() = 0;
  virtual bool userDirectoryStands() = 0;
  virtual void removeUserDirectory() = 0;

  // Makes the removal of what an item speaks of fail, until heal(). Null, or why it cannot.
  virtual kj::Maybe<kj::StringPtr> obstruct(const InventoryItem& item) = 0;
  // Makes the making of anything fail, until heal(). Null, or why it cannot.
  virtual kj::Maybe<kj::StringPtr> refuseAll() = 0;
  // Makes the health check find something wrong, until heal().
  virtual void makeUnhealthy() = 0;
  virtual void heal() = 0;

  // Ends all connections that the dialer gave. False when that is not the runtime's to do.
  virtual bool cutConnections(kj::StringPtr environmentId) = 0;
  // Whether one helper serves all places, and so is there without any one of them.
  virtual bool oneHelperForAll() = 0;
  virtual kj::Timer& timer() = 0;

  // ---- the same for all
  template <typename T>
  T wait(kj::Promise<T> promise) {
    kj::Maybe<T> result;
    kj::Maybe<kj::Exception> error;
    auto done = promise
                    .then([&](T&& value) { result = kj::mv(value); },
                          [&](kj::Exception&& e) { error = kj::mv(e); })
                    .eagerlyEvaluate(nullptr);
    spin([&]() { return result != nullptr || error != nullptr; });
    KJ_IF_MAYBE (e, error) {
      kj::throwFatalException(kj::mv(*e));
    }
    return kj::mv(KJ_ASSERT_NONNULL(result));
  }
  // Turns the loop until `done`.
  void spin(kj::Function<bool()> done);
};

// Each case gets a fresh one.
kj::Own<BackendFixture> newBackendFixture();

}  // namespace capstan::test
