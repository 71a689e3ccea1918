#pragma once

#include "core/catalog.h"
#include "core/secrets.h"
#include "core/supervisor.h"

#include <kj/function.h>

namespace capstan {

// What every connection's objects need of the daemon. Outlives all connections.
struct Frontend {
  Supervisor& supervisor;
  Catalog& catalog;
  SecretVault& secrets;
  kj::StringPtr build;
  uint32_t ownUid;                // The daemon's user: with root, its administrator.
  bool localAdmin = true;         // Peer credentials may make an administrator.
  kj::Function<void()> shutdown;  // Asks the daemon to end, returns at once.
};

}  // namespace capstan
