#pragma once

#include "rpc/bootstrap-cap.h"
#include "wire/rpc-connection.h"

#include <kj/async-io.h>

namespace capstan {

// Accepts connections and serves each one a bootstrap object of its own, which knows who dialled.
// Dropping it cuts all connections.
class RpcServer final: private kj::TaskSet::ErrorHandler {
public:
  // Both must outlive it.
  RpcServer(kj::Timer& timer, Frontend& frontend);
  KJ_DISALLOW_COPY_AND_MOVE(RpcServer);

  // Accepts until dropped, also after it has failed for want of descriptors. `listener` must be of
  // unix sockets and outlive the promise.
  kj::Promise<void> listen(kj::ConnectionReceiver& listener);
  // Serves one connection that somebody else accepted.
  void serve(kj::Own<kj::AsyncIoStream> stream, Peer peer);

  uint32_t connectionCount() const { return open; }

private:
  kj::Timer& timer;
  Frontend& frontend;
  uint32_t open = 0;
  kj::TaskSet connections;

  kj::Promise<void> serveOne(kj::Own<kj::AsyncIoStream> stream, Peer peer);
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
