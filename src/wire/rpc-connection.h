#pragma once
// One RPC connection: stream, limits, network and RPC system in one owner.

#include "wire/limited-message-stream.h"
#include "wire/rpc-limits.h"
#include "wire/stream-budget.h"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/function.h>
#include <kj/timer.h>

namespace capstan {

// Owns one RPC connection. Dropping it cuts the connection at once: calls in progress are
// cancelled, capabilities that came over it break as *disconnected*, the stream is closed.
// `timer` must outlive it.
class RpcConnection final {
public:
  // Makes the object that this connection's peer gets by bootstrap(). The meter counts what this
  // peer has in flight; keep a reference (kj::addRef) in the capability servers whose methods
  // begin with meter.admit().
  using MakeBootstrap = kj::Function<capnp::Capability::Client(CallMeter&)>;

  // The side that offers a bootstrap object. `makeBootstrap` is called once, before this returns.
  static kj::Own<RpcConnection> serve(kj::Timer& timer, kj::Own<kj::AsyncIoStream> stream,
                                      MakeBootstrap makeBootstrap,
                                      RpcLimits limits = RpcLimits::forClients());

  // The side that dialled. Asks for the peer's bootstrap object at once: without that Cap'n Proto
  // reads nothing, and the end of the connection would go unseen.
  static kj::Own<RpcConnection> connect(kj::Timer& timer, kj::Own<kj::AsyncIoStream> stream,
                                        RpcLimits limits = RpcLimits::forServers());

  RpcConnection(kj::Timer& timer, kj::Own<kj::AsyncIoStream> stream, RpcLimits limits,
                capnp::rpc::twoparty::Side side, kj::Maybe<MakeBootstrap> makeBootstrap);
  ~RpcConnection() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(RpcConnection);

  // The peer's bootstrap object; usable at once (calls are pipelined). Breaks with the connection.
  capnp::Capability::Client bootstrap();

  // Resolves when the connection has ended, never rejects; at the latest limits.closeGrace after
  // reading has ended, even if the peer takes no last words. May be called many times. The owner
  // drops the connection then.
  kj::Promise<void> onDisconnect() { return disconnected.addBranch(); }

  // Why it ended, for the log; null while it lives.
  kj::Maybe<kj::StringPtr> closeReason() const { return messages.closeReason(); }

  CallMeter& meter() { return messages.meter(); }

  // Shared by all byte streams that write over this connection, so that many stalled ones stay
  // below the peer's limit of unanswered octets.
  StreamBudget& streamBudget() { return *budget; }

  // Octets of messages that wait to be written.
  uint64_t queuedOctets() { return network.getCurrentQueueSize(); }

private:
  kj::Own<kj::AsyncIoStream> stream;  // in this order: each uses the one above
  kj::Own<StreamBudget> budget;
  LimitedMessageStream messages;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpcSystem;
  kj::Maybe<capnp::Capability::Client> entry;  // The peer's bootstrap object, when we dialled.
  kj::ForkedPromise<void> disconnected;

  capnp::Capability::Client askForBootstrap();
};

}  // namespace capstan
