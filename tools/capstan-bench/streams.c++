#include "tools/capstan-bench/bench.h"

#include "wire/byte-stream.h"

#include <kj/debug.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <unistd.h>

namespace capstan::bench {

namespace {

const kj::Array<kj::byte>& chunk() {
  static auto bytes = kj::heapArray<kj::byte>(rpc::MAX_CHUNK_BYTES);
  return bytes;
}

// Counts what comes, from the first octet to the end.
class Counter final: public rpc::OutputSink::Server {
public:
  struct Result {
    uint64_t octets = 0;
    uint64_t lost = 0;
    uint64_t firstNs = 0;
    uint64_t lastNs = 0;
    kj::Own<kj::PromiseFulfiller<void>> done;
  };
  explicit Counter(Result& result): result(result) {}

protected:
  kj::Promise<void> write(WriteContext context) override {
    if (result.octets == 0) result.firstNs = nowNs();
    result.octets += context.getParams().getBytes().size();
    return kj::READY_NOW;
  }
  kj::Promise<void> gap(GapContext context) override {
    result.lost += context.getParams().getTo() - context.getParams().getFrom();
    return kj::READY_NOW;
  }
  kj::Promise<void> end(EndContext) override {
    result.lastNs = nowNs();
    result.done->fulfill();
    return kj::READY_NOW;
  }

private:
  Result& result;
};

// Writes a stream of 64 KiB chunks into the sink it is given.
class BareProducer final: public rpc::Instance::Server {
public:
  explicit BareProducer(uint64_t octets): octets(octets) {}

protected:
  kj::Promise<void> output(OutputContext context) override {
    auto sink = context.getParams().getSink();
    for (uint64_t at = 0; at < octets; at += rpc::MAX_CHUNK_BYTES) {
      auto request =
          sink.writeRequest(capnp::MessageSize{rpc::MAX_CHUNK_BYTES / sizeof(capnp::word) + 16, 0});
      request.setOffset(at);
      request.setBytes(chunk());
      co_await request.send();
    }
    co_await sink.endRequest().send().ignoreResult();
  }

private:
  const uint64_t octets;
};

// Takes a stream and counts.
class BareConsumer final: public rpc::ByteStream::Server {
protected:
  kj::Promise<void> write(WriteContext context) override {
    octets += context.getParams().getBytes().size();
    return kj::READY_NOW;
  }
  kj::Promise<void> end(EndContext) override { return kj::READY_NOW; }

private:
  uint64_t octets = 0;
};

void printRate(uint64_t octets, uint64_t ns) {
  std::printf("{\"rate\": %.2f}\n", octets / 1048576.0 / (ns / 1e9));
}

void printRate(const Counter::Result& result, uint64_t wanted) {
  KJ_REQUIRE(result.lost == 0, "the log was faster than its reader, so this measures nothing",
             result.lost);
  KJ_REQUIRE(result.octets == wanted, "not everything came", result.octets);
  printRate(result.octets, result.lastNs - result.firstNs);
}

kj::Promise<void> fill(rpc::ByteStream::Client sink, uint64_t octets) {
  for (uint64_t at = 0; at < octets; at += rpc::MAX_CHUNK_BYTES) {
    auto request =
        sink.writeRequest(capnp::MessageSize{rpc::MAX_CHUNK_BYTES / sizeof(capnp::word) + 16, 0});
    request.setBytes(chunk());
    co_await request.send();
  }
  co_await sink.endRequest().send().ignoreResult();
}

// As the client library feeds a process's stdin.
kj::Promise<void> feed(rpc::ByteStream::Client sink, uint64_t octets) {
  ByteStreamOutput to(kj::mv(sink));
  for (uint64_t at = 0; at < octets; at += rpc::MAX_CHUNK_BYTES) {
    co_await to.write(chunk().begin(), chunk().size());
  }
  co_await to.end();
}

}  // namespace

void measureOutput(Side side, kj::StringPtr socket, uint64_t octets) {
  Counter::Result result;
  auto ask = [&](rpc::Instance::Client instance) {
    auto done = kj::newPromiseAndFulfiller<void>();
    result.done = kj::mv(done.fulfiller);
    auto request = instance.outputRequest();
    request.setSink(kj::heap<Counter>(result));
    request.setFollow(true);
    return request.send().then(
        [done = kj::mv(done.promise)](
            capnp::Response<rpc::Instance::OutputResults>&& response) mutable {
          KJ_REQUIRE(response.getError().getCode() == rpc::ErrorCode::NONE, response.getError());
          return done.attach(kj::mv(response));
        });
  };
  if (side == Side::PEER) {
    BarePeer peer(
        [octets]() -> capnp::Capability::Client { return kj::heap<BareProducer>(octets); });
    auto io = kj::setupAsyncIo();
    BareClient client(io, peer.takeSocket());
    ask(client.object().castAs<rpc::Instance>()).wait(io.waitScope);
  } else {
    auto io = kj::setupAsyncIo();
    OwnEnvironment own(io, socket);
    auto amount = kj::str(octets);
    kj::StringPtr words[] = {"produce", amount};
    ask(own.launch(words)).wait(io.waitScope);
    own.remove();
  }
  printRate(result, octets);
}

void measureInput(Side side, kj::StringPtr socket, uint64_t octets) {
  uint64_t begin, end;
  if (side == Side::PEER) {
    BarePeer peer([]() -> capnp::Capability::Client { return kj::heap<BareConsumer>(); });
    auto io = kj::setupAsyncIo();
    BareClient client(io, peer.takeSocket());
    begin = nowNs();
    fill(client.object().castAs<rpc::ByteStream>(), octets).wait(io.waitScope);
    end = nowNs();
  } else {
    auto io = kj::setupAsyncIo();
    OwnEnvironment own(io, socket);
    kj::StringPtr words[] = {"consume"};
    auto run = own.launch(words);
    auto granted = run.stdinRequest().send().wait(io.waitScope);
    KJ_REQUIRE(granted.getError().getCode() == rpc::ErrorCode::NONE, granted.getError());
    begin = nowNs();
    feed(granted.getStdin(), octets).wait(io.waitScope);
    run.waitRequest().send().wait(io.waitScope);
    end = nowNs();
    own.remove();
  }
  printRate(octets, end - begin);
}

void produce(uint64_t octets) {
  auto& bytes = chunk();
  while (octets > 0) {
    ssize_t n = write(STDOUT_FILENO, bytes.begin(), std::min<uint64_t>(octets, bytes.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) KJ_FAIL_SYSCALL("write", errno);
    octets -= static_cast<uint64_t>(n);
  }
}

void consume() {
  auto bytes = kj::heapArray<kj::byte>(rpc::MAX_CHUNK_BYTES);
  for (;;) {
    ssize_t n = read(STDIN_FILENO, bytes.begin(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) KJ_FAIL_SYSCALL("read", errno);
    if (n == 0) return;
  }
}

}  // namespace capstan::bench
