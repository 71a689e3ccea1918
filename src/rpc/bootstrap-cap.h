#pragma once

#include "bootstrap.capnp.h"
#include "core/supervisor.h"
#include "rpc/guard.h"

namespace capstan {

// Who dialled, as the transport knows it.
struct Peer {
  kj::Maybe<uint32_t> uid;  // Null = the kernel would not say.
  int32_t pid = 0;          // 0 = unknown.
};

// What every connection's first object needs of the daemon. Outlives all connections.
struct Frontend {
  Supervisor& supervisor;
  kj::StringPtr build;
  uint32_t ownUid;                // The daemon's user: with root, its administrator.
  bool localAdmin = true;         // Peer credentials may make an administrator.
  kj::Function<void()> shutdown;  // Asks the daemon to end, returns at once.
};

// The bootstrap object of one connection.
rpc::Bootstrap::Client newBootstrapCap(Frontend& frontend, Peer peer, CallMeter& meter);

}  // namespace capstan
