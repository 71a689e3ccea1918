#include "rpc/server.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// Far above what one machine's people and backends open; each costs about 25 KiB.
constexpr uint32_t MOST_CONNECTIONS = 4096;

// Descriptors come back without any event of ours.
constexpr kj::Duration ACCEPT_AGAIN = 100 * kj::MILLISECONDS;

}  // namespace

RpcServer::RpcServer(kj::Timer& timer, Frontend& frontend)
    : timer(timer), frontend(frontend), connections(*this) {}

kj::Promise<void> RpcServer::listen(kj::ConnectionReceiver& listener) {
  bool failing = false;
  for (;;) {
    kj::Maybe<kj::AuthenticatedStream> next;
    try {
      next = co_await listener.acceptAuthenticated();
    } catch (const kj::Exception& exception) {
      // Out of descriptors, as a rule: the clients that have them will go.
      if (!failing) KJ_LOG(ERROR, "cannot accept a connection, trying on", exception);
    }
    failing = next == nullptr;
    if (failing) {
      co_await timer.afterDelay(ACCEPT_AGAIN);
      continue;
    }
    auto accepted = kj::mv(KJ_ASSERT_NONNULL(next));
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
  connections.add(kj::evalNow([&]() { return serveOne(kj::mv(stream), peer); }));
}

// No coroutine: an idle connection is mostly such frames and promises.
kj::Promise<void> RpcServer::serveOne(kj::Own<kj::AsyncIoStream> stream, Peer peer) {
  ++open;
  auto counted = kj::defer([this]() { --open; });
  auto connection = RpcConnection::serve(timer, kj::mv(stream), [&](CallMeter& meter) {
    return capnp::Capability::Client(newBootstrapCap(frontend, peer, meter));
  });
  auto& served = *connection;
  return served.onDisconnect()
      .then([&served, pid = peer.pid]() {
        KJ_IF_MAYBE (reason, served.closeReason()) {
          KJ_LOG(INFO, "connection closed", pid, *reason);
        }
      })
      .attach(kj::mv(connection), kj::mv(counted));
}

void RpcServer::taskFailed(kj::Exception&& exception) {
  KJ_LOG(WARNING, "a connection failed, closing it", exception);
}

}  // namespace capstan
