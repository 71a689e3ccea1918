#pragma once
// The server of probe.capnp and connections between it and a client, for wire tests.

#include "probe.capnp.h"
#include "wire/byte-stream.h"
#include "wire/rpc-connection.h"

#include "support/test.h"

namespace capstan::test {

struct ProbeState {
  bool killed = false;
  uint32_t refused = 0;
  uint32_t pings = 0;
  uint32_t cancelled = 0;
  kj::PromiseFulfillerPair<void> gate = kj::newPromiseAndFulfiller<void>();
  kj::ForkedPromise<void> opened = gate.promise.fork();
};

// Holds written octets back until the gate opens.
class HeldOutput final: public kj::AsyncOutputStream {
public:
  explicit HeldOutput(ProbeState& state): state(state) {}
  kj::Promise<void> write(const void*, size_t) override { return state.opened.addBranch(); }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>>) override {
    return state.opened.addBranch();
  }
  kj::Promise<void> whenWriteDisconnected() override { return kj::NEVER_DONE; }

private:
  ProbeState& state;
};

class ProbeProcess final: public probe::Process::Server {
public:
  ProbeProcess(ProbeState& state, CallMeter& meter): state(state), meter(kj::addRef(meter)) {}

protected:
  kj::Promise<void> wait(WaitContext context) override {
    admit();
    auto cancelled = kj::defer([this]() { ++state.cancelled; });
    co_await state.opened.addBranch();
    cancelled.cancel();
    context.getResults().setCode(9);
  }
  kj::Promise<void> kill(KillContext) override {
    state.killed = true;
    state.gate.fulfiller->fulfill();
    co_return;
  }
  kj::Promise<void> hold(HoldContext) override {
    admit();
    co_await state.opened.addBranch();
  }
  kj::Promise<void> ping(PingContext) override {
    ++state.pings;
    co_return;
  }
  kj::Promise<void> big(BigContext context) override {
    context.getResults().initBytes(context.getParams().getOctets());
    co_return;
  }
  kj::Promise<void> sink(SinkContext context) override {
    ByteStreamEvents events;
    events.onEnd = []() -> kj::Promise<void> { return kj::READY_NOW; };
    events.onAbort = [](kj::Exception) {};
    context.getResults().setSink(newByteStreamServer(kj::heap<HeldOutput>(state), kj::mv(events)));
    co_return;
  }
  kj::Promise<void> self(SelfContext context) override {
    context.getResults().setProcess(thisCap());
    co_return;
  }

private:
  ProbeState& state;
  kj::Own<CallMeter> meter;

  void admit() {
    if (meter->overloaded()) ++state.refused;
    meter->admit();
  }
};

inline RpcConnection::MakeBootstrap probeBootstrap(ProbeState& state) {
  return [&state](CallMeter& meter) -> capnp::Capability::Client {
    return kj::heap<ProbeProcess>(state, meter);
  };
}

// A served connection and its client over an in-memory pipe.
struct ProbePair {
  ProbeState& state;
  kj::Own<RpcConnection> server;
  kj::Own<RpcConnection> client;
  probe::Process::Client process = nullptr;

  ProbePair(kj::Timer& timer, ProbeState& state, kj::TwoWayPipe pipe = kj::newTwoWayPipe(),
            RpcLimits limits = RpcLimits::forClients())
      : state(state),
        server(RpcConnection::serve(timer, kj::mv(pipe.ends[0]), probeBootstrap(state), limits)),
        client(RpcConnection::connect(timer, kj::mv(pipe.ends[1]))),
        process(client->bootstrap().castAs<probe::Process>()) {}
};

}  // namespace capstan::test
