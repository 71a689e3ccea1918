#pragma once
// What the parts of core are built from. Main makes it once and hands it on; everything in it
// outlives the daemon's work.

#include "backends/backend.h"
#include "base/entropy.h"
#include "base/ids.h"
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
  // runtimeUnavailable with the founding text when there is none by that name.
  Result<Backend*> find(kj::StringPtr runtime, kj::StringPtr executorType) const;
  // In order of their names.
  kj::Vector<Backend*> list() const;

private:
  kj::TreeMap<kj::String, Backend*> byName;
};

struct Services {
  kj::Timer& timer;
  const kj::Clock& clock;
  Entropy& entropy;
  RuntimeRegistry& runtimes;
  Database& store;
  Limits limits;

  UnixMs now() const { return (clock.now() - kj::UNIX_EPOCH) / kj::MILLISECONDS; }
};

}  // namespace capstan
