#pragma once

#include "bootstrap.capnp.h"
#include "rpc/frontend.h"
#include "rpc/guard.h"

namespace capstan {

// Who dialled, as the transport knows it.
struct Peer {
  kj::Maybe<uint32_t> uid;  // Null = the kernel would not say.
  int32_t pid = 0;          // 0 = unknown.
};

// The bootstrap object of one connection.
rpc::Bootstrap::Client newBootstrapCap(Frontend& frontend, Peer peer, CallMeter& meter);

}  // namespace capstan
