#pragma once
// The message stream under every RPC connection of ours: counts, takes turns, closes on excess.

#include "wire/rpc-limits.h"

#include <capnp/serialize-async.h>
#include <kj/async-io.h>
#include <kj/timer.h>

namespace capstan {

// Reads and writes RPC messages on `stream`. Counts unanswered calls in a CallMeter, hands over at
// most limits.messagesPerTurn messages before other I/O gets its turn, and never stops reading
// because of a count. A connection gets a read buffer when it has shown that it needs one, so that
// an idle one is small. Excess fails the read with an *overloaded* exception, upon which Cap'n
// Proto sends an abort with the same text and closes. `timer` and `stream` must outlive it.
class LimitedMessageStream final: public capnp::MessageStream {
public:
  LimitedMessageStream(kj::Timer& timer, kj::AsyncIoStream& stream, const RpcLimits& limits);
  ~LimitedMessageStream() noexcept(false);

  CallMeter& meter() { return *calls; }

  // Resolves when nothing further will be read: end of file, a failure, excess, or an RPC system
  // that gave up. To be called once.
  kj::Promise<void> onReadingEnded() { return kj::mv(readingEnded); }

  // Why reading ended or an abort was sent; null while all is well. The first reason stays.
  kj::Maybe<kj::StringPtr> closeReason() const;

  // Asked before each message: octets that wait to be written.
  void setQueueGauge(kj::Function<uint64_t()> gauge) { queuedOctets = kj::mv(gauge); }

  using capnp::MessageStream::tryReadMessage;
  using capnp::MessageStream::writeMessage;
  using capnp::MessageStream::writeMessages;

  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> tryReadMessage(
      kj::ArrayPtr<kj::AutoCloseFd> fdSpace, capnp::ReaderOptions options,
      kj::ArrayPtr<capnp::word> scratchSpace) override;
  kj::Promise<void> writeMessage(
      kj::ArrayPtr<const int> fds,
      kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) override;
  kj::Promise<void> writeMessages(
      kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>> messages) override;
  kj::Maybe<int> getSendBufferSize() override;
  kj::Promise<void> end() override;

private:
  class ReadGuard;

  kj::Timer& timer;
  const RpcLimits limits;
  kj::Own<CallMeter> calls;
  kj::AsyncIoStream& stream;
  capnp::AsyncIoMessageStream plain;
  kj::Maybe<capnp::BufferedMessageStream> buffered;  // Reads, once there is much to read.
  uint32_t messagesRead = 0;
  kj::Function<uint64_t()> queuedOctets = []() -> uint64_t { return 0; };
  uint32_t inTurn = 0;
  kj::String reason;
  kj::Promise<void> readingEnded = nullptr;
  kj::Own<kj::PromiseFulfiller<void>> endReading;

  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> readOne(kj::ArrayPtr<kj::AutoCloseFd> fdSpace,
                                                             capnp::ReaderOptions options,
                                                             kj::ArrayPtr<capnp::word> scratch);
  void received(capnp::MessageReader& reader);
  void useBufferWhenBusy(uint64_t octets);
  void sending(kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments);
  void ended(kj::StringPtr why);
};

}  // namespace capstan
