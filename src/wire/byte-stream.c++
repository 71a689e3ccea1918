#include "wire/byte-stream.h"

#include <kj/debug.h>

#include <cstring>

namespace capstan {

namespace {

class ByteStreamServer final: public rpc::ByteStream::Server {
public:
  ByteStreamServer(kj::Own<kj::AsyncOutputStream> out, ByteStreamEvents events)
      : out(kj::mv(out)), events(kj::mv(events)) {}

  ~ByteStreamServer() noexcept(false) {
    abort(KJ_EXCEPTION(DISCONNECTED, "the byte stream was dropped before its end"));
  }

protected:
  kj::Promise<void> write(WriteContext context) override {
    KJ_REQUIRE(open, "the byte stream has ended");
    auto bytes = context.getParams().getBytes();
    HalfWritten guard(*this);
    KJ_REQUIRE(bytes.size() <= rpc::MAX_CHUNK_BYTES, "a write into a byte stream is too large",
               bytes.size(), rpc::MAX_CHUNK_BYTES);
    if (bytes.size() > 0) co_await out->write(bytes.begin(), bytes.size());
    guard.whole();
  }

  kj::Promise<void> end(EndContext) override {
    KJ_REQUIRE(open, "the byte stream has ended");
    open = false;
    co_await events.onEnd();
  }

private:
  // A write that fails or is dropped leaves an unknown part of it in `out`: the stream is over.
  class HalfWritten {
  public:
    explicit HalfWritten(ByteStreamServer& server): server(&server) {}
    KJ_DISALLOW_COPY_AND_MOVE(HalfWritten);
    ~HalfWritten() noexcept(false) {
      if (server == nullptr) return;
      server->abort(KJ_EXCEPTION(DISCONNECTED, "a write into the byte stream did not complete"));
    }
    void whole() { server = nullptr; }

  private:
    ByteStreamServer* server;  // null = written as a whole
  };

  void abort(kj::Exception reason) {
    if (!open) return;
    open = false;
    events.onAbort(kj::mv(reason));
  }

  kj::Own<kj::AsyncOutputStream> out;
  ByteStreamEvents events;
  bool open = true;
};

}  // namespace

rpc::ByteStream::Client newByteStreamServer(kj::Own<kj::AsyncOutputStream> out,
                                            ByteStreamEvents events) {
  return kj::heap<ByteStreamServer>(kj::mv(out), kj::mv(events));
}

// =======================================================================================

ByteStreamOutput::ByteStreamOutput(rpc::ByteStream::Client peer,
                                   kj::Maybe<kj::Own<StreamBudget>> budget, StreamWindow window)
    : peer(kj::mv(peer)),
      budget(kj::mv(budget)),
      window(window),
      disconnected(nullptr),
      acks(*this) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  disconnect = kj::mv(paf.fulfiller);
  disconnected = paf.promise.fork();
}

ByteStreamOutput::~ByteStreamOutput() noexcept(false) {
  KJ_IF_MAYBE (shared, budget) {
    (*shared)->giveBack(octetsInFlight);
  }
}

kj::Promise<void> ByteStreamOutput::write(const void* buffer, size_t size) {
  auto rest = kj::arrayPtr(reinterpret_cast<const kj::byte*>(buffer), size);
  while (rest.size() > 0) {
    auto piece = rest.slice(0, kj::min(rest.size(), size_t(rpc::MAX_CHUNK_BYTES)));
    if (!hasRoom(piece.size())) co_await room(piece.size());
    send(kj::arrayPtr(&piece, 1), piece.size());
    rest = rest.slice(piece.size(), rest.size());
  }
}

kj::Promise<void> ByteStreamOutput::write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) {
  kj::Vector<kj::ArrayPtr<const kj::byte>> batch;  // small pieces travel together
  size_t batched = 0;
  for (auto piece: pieces) {
    while (piece.size() > 0) {
      auto part = piece.slice(0, kj::min(piece.size(), rpc::MAX_CHUNK_BYTES - batched));
      batch.add(part);
      batched += part.size();
      piece = piece.slice(part.size(), piece.size());
      if (batched < rpc::MAX_CHUNK_BYTES) continue;
      if (!hasRoom(batched)) co_await room(batched);
      send(batch, batched);
      batch.clear();
      batched = 0;
    }
  }
  if (batched > 0) {
    if (!hasRoom(batched)) co_await room(batched);
    send(batch, batched);
  }
}

bool ByteStreamOutput::hasRoom(size_t size) const {
  if (failure != nullptr) return false;
  if (writesInFlight == 0) return true;
  if (writesInFlight >= window.writes || octetsInFlight + size > window.octets) return false;
  KJ_IF_MAYBE (shared, budget) {
    return (*shared)->has(size);
  }
  return true;
}

kj::Promise<void> ByteStreamOutput::room(size_t size) {
  KJ_REQUIRE(!ended, "write after end() of a byte stream");
  for (;;) {
    KJ_IF_MAYBE (exception, failure) {
      kj::throwFatalException(kj::cp(*exception));
    }
    if (hasRoom(size)) co_return;
    auto paf = kj::newPromiseAndFulfiller<void>();
    waiter = kj::mv(paf.fulfiller);
    co_await paf.promise;
  }
}

void ByteStreamOutput::send(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces, size_t size) {
  KJ_REQUIRE(!ended, "write after end() of a byte stream");
  // A plain call instead of the generated streaming one: the window is ours, so that it also holds
  // inside tunnels and counts calls. The peer cannot tell the difference.
  capnp::Capability::Client::CallHints hints;
  hints.noPromisePipelining = true;
  auto request = capnp::Capability::Client(peer).typelessRequest(
      capnp::typeId<rpc::ByteStream>(), 0, capnp::MessageSize{size / sizeof(capnp::word) + 4, 0},
      hints);
  auto bytes = request.initAs<rpc::ByteStream::WriteParams>().initBytes(size);
  size_t at = 0;
  for (auto& piece: pieces) {
    memcpy(bytes.begin() + at, piece.begin(), piece.size());
    at += piece.size();
  }
  ++writesInFlight;
  octetsInFlight += size;
  KJ_IF_MAYBE (shared, budget) {
    (*shared)->take(size);
  }
  acks.add(request.send().ignoreResult().then([this, size]() { acknowledged(size); }));
}

void ByteStreamOutput::acknowledged(size_t size) {
  --writesInFlight;
  octetsInFlight -= size;
  KJ_IF_MAYBE (shared, budget) {
    (*shared)->giveBack(size);
  }
  KJ_IF_MAYBE (fulfiller, waiter) {
    auto wake = kj::mv(*fulfiller);
    waiter = nullptr;
    wake->fulfill();
  }
}

void ByteStreamOutput::taskFailed(kj::Exception&& exception) {
  if (failure == nullptr) failure = kj::cp(exception);
  KJ_IF_MAYBE (fulfiller, waiter) {
    (*fulfiller)->fulfill();
  }  // it looks at `failure` itself
  waiter = nullptr;
  disconnect->fulfill();
}

kj::Promise<void> ByteStreamOutput::end() {
  KJ_REQUIRE(!ended, "a byte stream ends once");
  ended = true;
  KJ_IF_MAYBE (exception, failure) {
    kj::throwFatalException(kj::cp(*exception));
  }
  // Calls on one object are delivered in order, so this answer follows those of all writes.
  co_await peer.endRequest().send().ignoreResult();
  co_await acks.onEmpty();
  KJ_IF_MAYBE (exception, failure) {
    kj::throwFatalException(kj::cp(*exception));
  }
}

kj::Promise<uint64_t> pumpToByteStream(kj::AsyncInputStream& from, ByteStreamOutput& to) {
  auto buffer = kj::heapArray<kj::byte>(rpc::MAX_CHUNK_BYTES);
  uint64_t total = 0;
  for (;;) {
    auto n = co_await from.tryRead(buffer.begin(), 1, buffer.size());
    if (n == 0) break;
    co_await to.write(buffer.begin(), n);
    total += n;
  }
  co_await to.end();
  co_return total;
}

// =======================================================================================

// The stream, held by the bridge and by the capability it hands out; `io` is null once it is cut.
class ByteStreamBridge::Shared final: public kj::Refcounted {
public:
  explicit Shared(kj::Own<kj::AsyncIoStream> stream): io(kj::mv(stream)) {}

  kj::Promise<void> write(kj::ArrayPtr<const kj::byte> bytes) {
    KJ_IF_MAYBE (stream, io) {
      return cutter.wrap((*stream)->write(bytes.begin(), bytes.size()));
    }
    return KJ_EXCEPTION(DISCONNECTED, "the other direction of the connection was cut");
  }
  kj::Promise<void> whenWriteDisconnected() {
    KJ_IF_MAYBE (stream, io) {
      return cutter.wrap((*stream)->whenWriteDisconnected());
    }
    return kj::READY_NOW;
  }
  void shutdownWrite() {
    KJ_IF_MAYBE (stream, io) {
      (*stream)->shutdownWrite();
    }
  }
  kj::AsyncIoStream& stream() { return *KJ_REQUIRE_NONNULL(io, "the bridge was cut"); }

  // Closes the stream; writes in progress fail. Reading must have stopped.
  void cut(kj::StringPtr reason) {
    if (io == nullptr) return;
    cutter.cancel(KJ_EXCEPTION(DISCONNECTED, "the connection was cut", reason));
    io = nullptr;
  }

private:
  kj::Maybe<kj::Own<kj::AsyncIoStream>> io;
  kj::Canceler cutter;
};

namespace {

// Gives a ByteStreamServer the writing half of something shared.
template <typename Shared>
class SharedOutput final: public kj::AsyncOutputStream {
public:
  explicit SharedOutput(kj::Own<Shared> shared): shared(kj::mv(shared)) {}
  kj::Promise<void> write(const void* buffer, size_t size) override {
    return shared->write(kj::arrayPtr(reinterpret_cast<const kj::byte*>(buffer), size));
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    for (auto& piece: pieces) {
      co_await shared->write(piece);
    }
  }
  kj::Promise<void> whenWriteDisconnected() override { return shared->whenWriteDisconnected(); }

private:
  kj::Own<Shared> shared;
};

}  // namespace

ByteStreamBridge::ByteStreamBridge(kj::Own<kj::AsyncIoStream> io)
    : shared(kj::refcounted<Shared>(kj::mv(io))) {}

ByteStreamBridge::~ByteStreamBridge() noexcept(false) {
  if (!running) shared->cut("the bridge was dropped"_kj);  // else run() does, after its reads
}

rpc::ByteStream::Client ByteStreamBridge::incoming() {
  auto paf = kj::newPromiseAndFulfiller<void>();
  incomingDone = kj::mv(paf.promise);
  // Both callbacks may fulfil; only one is ever called.
  auto fulfiller = kj::refcounted<kj::RefcountedWrapper<kj::Own<kj::PromiseFulfiller<void>>>>(
      kj::mv(paf.fulfiller));
  ByteStreamEvents events;
  events.onEnd = [shared = kj::addRef(*shared),
                  done = fulfiller->addWrappedRef()]() mutable -> kj::Promise<void> {
    shared->shutdownWrite();
    done->fulfill();
    return kj::READY_NOW;
  };
  events.onAbort = [done = fulfiller->addWrappedRef()](kj::Exception reason) mutable {
    done->reject(kj::mv(reason));
  };
  return newByteStreamServer(kj::heap<SharedOutput<Shared>>(kj::addRef(*shared)), kj::mv(events));
}

kj::Promise<void> ByteStreamBridge::run(rpc::ByteStream::Client outgoing,
                                        kj::Maybe<kj::Own<StreamBudget>> budget) {
  KJ_REQUIRE(!running, "a bridge runs once");
  running = true;
  auto state = kj::addRef(*shared);
  // Last in construction, first in destruction would close the stream under a pending read, so it
  // stands before the output and the reads.
  KJ_DEFER(state->cut("its bridge ended"_kj));
  ByteStreamOutput out(kj::mv(outgoing), kj::mv(budget));
  auto directions = kj::heapArrayBuilder<kj::Promise<void>>(2);
  directions.add(pumpToByteStream(state->stream(), out).ignoreResult());
  directions.add(kj::mv(incomingDone));
  co_await kj::joinPromisesFailFast(directions.finish());
}

}  // namespace capstan
