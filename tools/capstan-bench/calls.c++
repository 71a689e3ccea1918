#include "tools/capstan-bench/bench.h"

#include <kj/debug.h>
#include <kj/vector.h>

#include <algorithm>
#include <cstdio>

namespace capstan::bench {

namespace {

constexpr uint32_t IN_FLIGHT = 64;

// Answers rights() with the same octets as the daemon.
class BareEnvironment final: public rpc::TaskEnvironment::Server {
protected:
  kj::Promise<void> rights(RightsContext context) override {
    auto out = context.getResults().initRights();
    out.setObserve(true);
    out.setAttach(true);
    out.setLaunch(true);
    out.setExec(true);
    out.setForward(true);
    out.setStop(true);
    out.setCleanup(true);
    out.setDelegate(true);
    return kj::READY_NOW;
  }
};

// Calls `work` with the environment of one side.
void withEnvironment(Side side, kj::StringPtr socket,
                     kj::Function<void(kj::AsyncIoContext&, rpc::TaskEnvironment::Client)> work) {
  if (side == Side::PEER) {
    BarePeer peer([]() -> capnp::Capability::Client { return kj::heap<BareEnvironment>(); });
    auto io = kj::setupAsyncIo();
    BareClient client(io, peer.takeSocket());
    work(io, client.object().castAs<rpc::TaskEnvironment>());
  } else {
    auto io = kj::setupAsyncIo();
    OwnEnvironment own(io, socket);
    work(io, own.get());
    own.remove();
  }
}

kj::Promise<void> callOften(rpc::TaskEnvironment::Client environment, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    co_await environment.rightsRequest().send().ignoreResult();
  }
}

}  // namespace

void measureCall(Side side, kj::StringPtr socket, uint32_t count) {
  withEnvironment(side, socket,
                  [&](kj::AsyncIoContext& io, rpc::TaskEnvironment::Client environment) {
                    callOften(environment, count / 10 + 1).wait(io.waitScope);  // warm, not counted
                    kj::Vector<uint64_t> times(count);
                    for (uint32_t i = 0; i < count; ++i) {
                      auto begin = nowNs();
                      environment.rightsRequest().send().wait(io.waitScope);
                      times.add(nowNs() - begin);
                    }
                    std::sort(times.begin(), times.end());
                    std::printf("{\"p50\": %.3f, \"p90\": %.3f}\n", times[count / 2] / 1e3,
                                times[count * 9 / 10] / 1e3);
                  });
}

void measureCallsInFlight(Side side, kj::StringPtr socket, uint32_t count) {
  withEnvironment(side, socket,
                  [&](kj::AsyncIoContext& io, rpc::TaskEnvironment::Client environment) {
                    auto each = count / IN_FLIGHT + 1;
                    callOften(environment, 100).wait(io.waitScope);  // warm, not counted
                    auto begin = nowNs();
                    kj::Vector<kj::Promise<void>> callers;
                    for (uint32_t i = 0; i < IN_FLIGHT; ++i) {
                      callers.add(callOften(environment, each));
                    }
                    kj::joinPromises(callers.releaseAsArray()).wait(io.waitScope);
                    double seconds = (nowNs() - begin) / 1e9;
                    std::printf("{\"rate\": %.1f}\n", each * IN_FLIGHT / seconds);
                  });
}

}  // namespace capstan::bench
