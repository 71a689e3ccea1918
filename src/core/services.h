#pragma once
// What the parts of core are built from. Main makes it once and hands it on; everything in it
// outlives the daemon's work.

#include "backends/backend.h"
#include "base/entropy.h"
#include "base/ids.h"
#include "core/catalog.h"
#include "core/secrets.h"
#include "domain/limits.h"
#include "store/database.h"

#include <kj/map.h>
#include <kj/time.h>
#include <kj/timer.h>

namespace capstan {

// The runtimes of this daemon by name. Backends stay the caller's.
class RuntimeRegistry {
public:
  // The same name replaces the earlier entry.
  void add(Backend& backend);
  // runtimeUnavailable when there is none by that name.
  Result<Backend*> find(kj::StringPtr runtime) const;
  // Likewise, in the words for whoever wants an executor of that type.
  Result<Backend*> find(kj::StringPtr runtime, kj::StringPtr executorType) const;
  bool has(kj::StringPtr runtime) const { return byName.find(runtime) != nullptr; }
  // Resolves with the next add().
  kj::Promise<void> onAdd();
  // In order of their names.
  kj::Vector<Backend*> list() const;

  // One runtime's health; one that fails by an exception is unhealthy for it. Never rejects.
  static kj::Promise<Health> healthOf(Backend& backend);
  // Every runtime's health by its name; none keeps the others from being asked.
  struct Checked {
    kj::String runtime;
    Health health;
  };
  kj::Promise<kj::Vector<Checked>> healthCheckAll() const;

  // What has become of the places, each asked of the runtime it is listed under. Of a runtime that
  // could not be asked, or is not there, nothing is recovered and a failure is told; the others are
  // asked all the same. Never rejects.
  struct Failure {
    kj::String runtime;
    Problem problem;
  };
  struct AllRecovered {
    kj::Vector<Recovered> places;
    kj::Vector<Failure> failures;  // One a runtime.
  };
  struct RuntimePlaces {
    kj::String runtime;
    kj::Array<PlaceRecord> places;
  };
  kj::Promise<AllRecovered> recoverAll(kj::Array<RuntimePlaces> places) const;

private:
  kj::TreeMap<kj::String, Backend*> byName;
  kj::Vector<kj::Own<kj::PromiseFulfiller<void>>> waiting;
};

class StoredHelperBook;

struct Services {
  kj::Timer& timer;
  const kj::Clock& clock;
  Entropy& entropy;
  RuntimeRegistry& runtimes;
  Database& store;
  Catalog& catalog;
  SecretVault& secrets;
  StoredHelperBook& helpers;
  Limits limits;
  // Runtimes that were asked for by name, built in or not; those of `runtimes` need no mention.
  kj::ArrayPtr<const kj::StringPtr> configured = nullptr;

  UnixMs now() const { return (clock.now() - kj::UNIX_EPOCH) / kj::MILLISECONDS; }
};

}  // namespace capstan
