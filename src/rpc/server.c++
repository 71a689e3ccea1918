#include "rpc/server.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// Far above what one machine's people and backends open; each costs about 12 KiB.
constexpr uint32_t MOST_CONNECTIONS = 4096;

// After a failed accept: descriptors come back when somebody leaves.
constexpr kj::Duration ACCEPT_AGAIN = 100 * kj::MILLISECONDS;

}  // namespace

RpcServer::RpcServer(kj::Timer& timer, Frontend& frontend)
    : timer(timer), frontend(frontend), connections(*this) {}

kj::Promise<void> RpcServer::listen(kj::ConnectionReceiver& listener) {
  for (;;) {
    kj::Maybe<kj::AuthenticatedStream> arrived;
    kj::Maybe<kj::Exception> failure;
    try {
      arrived = co_await listener.acceptAuthenticated();
    } catch (const kj::Exception& e) {
      failure = kj::Exception(e);
    }
    KJ_IF_MAYBE (exception, failure) {
      // Out of descriptors, most likely. A daemon that stops listening could not even be stopped.
      KJ_LOG(WARNING, "cannot accept a connection, trying again", *exception);
      co_await timer.afterDelay(ACCEPT_AGAIN);
      continue;
    }
    auto accepted = kj::mv(KJ_ASSERT_NONNULL(arrived));
    Peer peer;
    KJ_IF_MAYBE (local,
                 kj::dynamicDowncastIfAvailable<kj::LocalPeerIdentity>(*accepted.peerIdentity)) {
      auto credentials = local->getCredentials();
      KJ_IF_MAYBE (uid, credentials.uid) {
        peer.uid = *uid;
      }
      KJ_IF_MAYBE (pid, credentials.pid) {
        peer.pid = *pid;
      }
    }
    if (open >= MOST_CONNECTIONS) {
      KJ_LOG(WARNING, "too many connections, refusing one", open);
      continue;
    }
    serve(kj::mv(accepted.stream), peer);
  }
}

void RpcServer::serve(kj::Own<kj::AsyncIoStream> stream, Peer peer) {
  connections.add(serveOne(kj::mv(stream), peer));
}

kj::Promise<void> RpcServer::serveOne(kj::Own<kj::AsyncIoStream> stream, Peer peer) {
  ++open;
  KJ_DEFER(--open);
  auto connection = RpcConnection::serve(timer, kj::mv(stream), [&](CallMeter& meter) {
    return capnp::Capability::Client(newBootstrapCap(frontend, peer, meter));
  });
  co_await connection->onDisconnect();
  KJ_IF_MAYBE (reason, connection->closeReason()) {
    KJ_LOG(INFO, "connection closed", peer.pid, *reason);
  }
}

void RpcServer::taskFailed(kj::Exception&& exception) {
  KJ_LOG(WARNING, "a connection failed, closing it", exception);
}

}  // namespace capstan
