#include "wire/rpc-connection.h"

#include <kj/debug.h>

#include <sys/socket.h>

namespace capstan {

namespace {

capnp::ReaderOptions networkOptions(const RpcLimits& limits) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = limits.sendOctets / sizeof(capnp::word);
  return options;
}

// What a unix socket's writer may be ahead of its reader. The default of 208 KiB holds three full
// stream writes, so both sides are woken for every one or two. TCP finds its own size.
constexpr int UNIX_SEND_BUFFER = 512 << 10;

void widenUnixSocket(kj::AsyncIoStream& stream) {
  KJ_IF_MAYBE (fd, stream.getFd()) {
    int domain = 0;
    socklen_t size = sizeof(domain);
    if (getsockopt(*fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) return;
    // A wish: the kernel caps it at net.core.wmem_max without an error.
    KJ_SYSCALL(setsockopt(*fd, SOL_SOCKET, SO_SNDBUF, &UNIX_SEND_BUFFER, sizeof(UNIX_SEND_BUFFER)));
  }
}

kj::Maybe<capnp::Capability::Client> makeIfAny(
    kj::Maybe<RpcConnection::MakeBootstrap>& makeBootstrap, CallMeter& meter) {
  KJ_IF_MAYBE (make, makeBootstrap) {
    return (*make)(meter);
  }
  return nullptr;
}

}  // namespace

kj::Own<RpcConnection> RpcConnection::serve(kj::Timer& timer, kj::Own<kj::AsyncIoStream> stream,
                                            MakeBootstrap makeBootstrap, RpcLimits limits) {
  return kj::heap<RpcConnection>(timer, kj::mv(stream), limits, capnp::rpc::twoparty::Side::SERVER,
                                 kj::mv(makeBootstrap));
}

kj::Own<RpcConnection> RpcConnection::connect(kj::Timer& timer, kj::Own<kj::AsyncIoStream> stream,
                                              RpcLimits limits) {
  return kj::heap<RpcConnection>(timer, kj::mv(stream), limits, capnp::rpc::twoparty::Side::CLIENT,
                                 nullptr);
}

RpcConnection::RpcConnection(kj::Timer& timer, kj::Own<kj::AsyncIoStream> streamParam,
                             RpcLimits limits, capnp::rpc::twoparty::Side side,
                             kj::Maybe<MakeBootstrap> makeBootstrap)
    : stream(kj::mv(streamParam)),
      budget(kj::refcounted<StreamBudget>(limits.peerRequestOctets / 2)),
      messages(timer, *stream, limits),
      network(messages, side, networkOptions(limits)),
      rpcSystem(network, makeIfAny(makeBootstrap, messages.meter())),
      disconnected(
          network.onDisconnect()
              .exclusiveJoin(messages.onReadingEnded().then(
                  [&timer, grace = limits.closeGrace]() { return timer.afterDelay(grace); }))
              // A promise whose source went away means the same: it is over.
              .catch_([](kj::Exception&&) {})
              .fork()) {
  widenUnixSocket(*stream);
  if (side == capnp::rpc::twoparty::Side::CLIENT) entry = askForBootstrap();
  messages.setQueueGauge([this]() { return network.getCurrentQueueSize(); });
}

RpcConnection::~RpcConnection() noexcept(false) {}

capnp::Capability::Client RpcConnection::bootstrap() {
  KJ_IF_MAYBE (object, entry) {
    return *object;
  }
  return askForBootstrap();
}

capnp::Capability::Client RpcConnection::askForBootstrap() {
  capnp::word scratch[4] = {};
  capnp::MallocMessageBuilder message(scratch);
  auto vatId = message.getRoot<capnp::rpc::twoparty::VatId>();
  vatId.setSide(network.getSide() == capnp::rpc::twoparty::Side::CLIENT
                    ? capnp::rpc::twoparty::Side::SERVER
                    : capnp::rpc::twoparty::Side::CLIENT);
  return rpcSystem.bootstrap(vatId);
}

}  // namespace capstan
