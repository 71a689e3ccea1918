#pragma once
// rpc::ByteStream as kj streams and back. Boundaries between writes mean nothing.

#include "stream.capnp.h"

#include "wire/stream-budget.h"

#include <kj/async-io.h>
#include <kj/function.h>
#include <kj/one-of.h>

namespace capstan {

// How a byte stream that we serve ends. Exactly one of the two is called, once.
struct ByteStreamEvents {
  // The peer called end(), after all of its octets were written. Its answer waits for the promise;
  // a rejection goes to the peer.
  kj::Function<kj::Promise<void>()> onEnd;
  // The stream is cut: dropped without end(), a write was refused, failed or cancelled half way.
  // Called from destructors too, so it must not throw.
  kj::Function<void(kj::Exception)> onAbort;
};

// A capability that writes into `out`: one write in flight, at most maxChunkBytes each. More is
// refused and breaks the stream. `out` is destroyed with the capability.
rpc::ByteStream::Client newByteStreamServer(kj::Own<kj::AsyncOutputStream> out,
                                            ByteStreamEvents events);

// How much a ByteStreamOutput may have unanswered. The count of writes keeps streams of tiny
// writes below the peer's limit of unanswered calls; while it binds, pump() reads larger pieces.
struct StreamWindow {
  uint64_t octets = 1u << 20;
  uint32_t writes = 16;
};

// The output stream of a remote ByteStream: splits into at most 64 KiB a write and waits while its
// window or `budget` is full. A write is resolved when it has been sent, not when the peer has
// taken it; a failure shows at the next write, at end() or in whenWriteDisconnected(). Dropping it
// without end() aborts the stream at the peer and cancels what was in flight.
class ByteStreamOutput final: public kj::AsyncOutputStream, private kj::TaskSet::ErrorHandler {
public:
  // A null budget is no bound beside the window.
  explicit ByteStreamOutput(rpc::ByteStream::Client peer,
                            kj::Maybe<kj::Own<StreamBudget>> budget = nullptr,
                            StreamWindow window = StreamWindow());
  ~ByteStreamOutput() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(ByteStreamOutput);

  kj::Promise<void> write(const void* buffer, size_t size) override;
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override;
  kj::Promise<void> whenWriteDisconnected() override { return disconnected.addBranch(); }

  // Ends the stream cleanly; resolves when the peer has taken everything. Nothing may be written
  // after it. Dropping the promise aborts.
  kj::Promise<void> end();

  // Octets sent and not answered.
  uint64_t inFlight() const { return octetsInFlight; }

private:
  rpc::ByteStream::Client peer;
  kj::Maybe<kj::Own<StreamBudget>> budget;
  const StreamWindow window;
  uint64_t octetsInFlight = 0;
  uint32_t writesInFlight = 0;
  bool ended = false;
  kj::Maybe<kj::Exception> failure;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> waiter;  // at most one write at a time
  kj::Own<kj::PromiseFulfiller<void>> disconnect;
  kj::ForkedPromise<void> disconnected;
  kj::TaskSet acks;  // last: their continuations touch the fields above

  bool hasRoom(size_t size) const;
  kj::Promise<void> room(size_t size);
  void send(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces, size_t size);
  void acknowledged(size_t size);
  void taskFailed(kj::Exception&& exception) override;
};

// Copies `from` to `to` until its end of file, ends `to`, returns the octets copied. Holds one
// buffer of 64 KiB; a slow peer stops the reading. On a failure `to` is not ended: drop it, and
// its peer knows of the abort. Both must outlive the promise.
kj::Promise<uint64_t> pumpToByteStream(kj::AsyncInputStream& from, ByteStreamOutput& to);

// Joins a two-way stream with two byte streams, as dial and accept use them: what the peer writes
// into incoming() goes into `io`, what `io` yields goes into `outgoing`. Each direction ends by
// itself (half-close); a failure of one cuts both and closes `io`.
class ByteStreamBridge final {
public:
  explicit ByteStreamBridge(kj::Own<kj::AsyncIoStream> io);
  // Cuts both directions unless run() was called; then run()'s promise holds all it needs.
  ~ByteStreamBridge() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(ByteStreamBridge);

  // The capability for the peer; to be called once. Good before run(): what arrives is written.
  rpc::ByteStream::Client incoming();

  // Runs both directions; resolves when both have ended cleanly, rejects with the first failure.
  // incoming() must have been handed out. To be called once. Dropping the promise cuts both.
  kj::Promise<void> run(rpc::ByteStream::Client outgoing,
                        kj::Maybe<kj::Own<StreamBudget>> budget = nullptr);

private:
  class Shared;
  kj::Own<Shared> shared;
  kj::Promise<void> incomingDone = nullptr;
  bool running = false;
};

}  // namespace capstan
