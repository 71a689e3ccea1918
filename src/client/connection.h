#pragma once

#include "admin.capnp.h"
#include "bootstrap.capnp.h"
#include "wire/rpc-connection.h"

#include <kj/async-io.h>

namespace capstan {

// A client's connection to a daemon, authenticated. Dropping it ends what belongs to the client
// (execs, deliveries), nothing else.
class ClientConnection {
public:
  // Connects to the daemon's unix socket and authenticates by peer credentials. Rejects as
  // disconnected when nobody listens there. `io` must outlive the connection.
  static kj::Promise<kj::Own<ClientConnection>> connectUnix(kj::AsyncIoContext& io,
                                                            kj::String path);
  // Over a stream that leads to a daemon already.
  static kj::Own<ClientConnection> over(kj::Timer& timer, kj::Own<kj::AsyncIoStream> stream);

  explicit ClientConnection(kj::Own<RpcConnection> connection);
  KJ_DISALLOW_COPY_AND_MOVE(ClientConnection);

  rpc::Bootstrap::Client bootstrap() { return entry; }
  // Usable at once; their calls fail readably when the daemon does not let us in.
  rpc::Supervisor::Client supervisor() { return own; }
  rpc::Admin::Client admin() { return administration; }

  // Resolves when the connection is gone.
  kj::Promise<void> onDisconnect() { return connection->onDisconnect(); }

private:
  kj::Own<RpcConnection> connection;
  rpc::Bootstrap::Client entry;
  // Not the answer that brought them: the daemon would keep it as long as we do.
  rpc::Supervisor::Client own = nullptr;
  rpc::Admin::Client administration = nullptr;
};

}  // namespace capstan
