#include "wire/limited-message-stream.h"

#include "stream.capnp.h"

#include <capnp/rpc.capnp.h>
#include <capnp/rpc.h>
#include <kj/debug.h>

namespace capstan {

namespace {

bool isStreamWrite(capnp::rpc::Call::Reader call) {
  auto interfaceId = call.getInterfaceId();
  auto methodId = call.getMethodId();
  return (interfaceId == capnp::typeId<rpc::ByteStream>() && methodId == 0) ||
         (interfaceId == capnp::typeId<rpc::OutputSink>() && methodId <= 1);
}

// A cheap look at a message of ours. Its builder puts the root struct right behind the root
// pointer, and rpc::Message has its discriminant in the first 16 bits; anything laid out otherwise
// is "not sure".
bool surelyNeitherReturnNorAbort(kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) {
  if (segments.size() == 0 || segments[0].size() < 2) return false;
  auto bytes = segments[0].asBytes();
  // Struct pointer, offset 0, at least one data word (encoding.md, "Structs").
  if ((bytes[0] | bytes[1] | bytes[2] | bytes[3]) != 0 || (bytes[4] | bytes[5]) == 0) return false;
  auto which = bytes[8] | bytes[9] << 8;
  return which != capnp::rpc::Message::RETURN && which != capnp::rpc::Message::ABORT;
}

// What one read may take, so that a wake-up of a busy stream yields several of its full writes; a
// message is copied out of it, which costs less than a system call of its own.
constexpr size_t READ_BUFFER_WORDS = (256 << 10) / sizeof(capnp::word);

// Reading without a buffer costs a second system call a message and holds nothing in between. Who
// sends one message of this size, or this many, sends more.
constexpr uint64_t BUSY_OCTETS = 4 << 10;
constexpr uint32_t BUSY_MESSAGES = 64;

}  // namespace

// Lives in the continuation of one read; tells the stream if the read went away unfinished.
class LimitedMessageStream::ReadGuard {
public:
  explicit ReadGuard(LimitedMessageStream& stream): stream(&stream) {}
  ReadGuard(ReadGuard&& other) noexcept: stream(other.stream) { other.stream = nullptr; }
  KJ_DISALLOW_COPY(ReadGuard);
  ~ReadGuard() noexcept(false) {
    if (stream != nullptr) stream->ended("the connection was given up"_kj);
  }
  LimitedMessageStream& done() {
    auto& result = *stream;
    stream = nullptr;
    return result;
  }

private:
  LimitedMessageStream* stream;  // null = moved away or done
};

LimitedMessageStream::LimitedMessageStream(kj::Timer& timer, kj::AsyncIoStream& stream,
                                           const RpcLimits& limits)
    : timer(timer),
      limits(limits),
      calls(kj::refcounted<CallMeter>(limits)),
      stream(stream),
      plain(stream) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  readingEnded = kj::mv(paf.promise);
  endReading = kj::mv(paf.fulfiller);
}

LimitedMessageStream::~LimitedMessageStream() noexcept(false) {}

kj::Maybe<kj::StringPtr> LimitedMessageStream::closeReason() const {
  if (reason == nullptr) return nullptr;
  return reason.asPtr();
}

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> LimitedMessageStream::tryReadMessage(
    kj::ArrayPtr<kj::AutoCloseFd> fdSpace, capnp::ReaderOptions options,
    kj::ArrayPtr<capnp::word> scratchSpace) {
  // The network's own options bound what is sent; ours bound what is received.
  options.traversalLimitInWords = limits.receiveOctets / sizeof(capnp::word);
  if (++inTurn <= limits.messagesPerTurn) return readOne(fdSpace, options, scratchSpace);
  inTurn = 1;
  // The only yield that lets sockets and timers run; evalLater() and evalLast() do not.
  return timer.afterDelay(0 * kj::NANOSECONDS).then([this, fdSpace, options, scratchSpace]() {
    return readOne(fdSpace, options, scratchSpace);
  });
}

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> LimitedMessageStream::readOne(
    kj::ArrayPtr<kj::AutoCloseFd> fdSpace, capnp::ReaderOptions options,
    kj::ArrayPtr<capnp::word> scratch) {
  using Read = kj::Maybe<capnp::MessageReaderAndFds>;
  capnp::MessageStream* inner = &plain;
  KJ_IF_MAYBE (present, buffered) {
    inner = present;
  }
  return inner->tryReadMessage(fdSpace, options, scratch)
      .then(
          [guard = ReadGuard(*this)](Read&& read) mutable -> Read {
            auto& self = guard.done();
            KJ_IF_MAYBE (message, read) {
              KJ_IF_MAYBE (failure,
                           kj::runCatchingExceptions([&]() { self.received(*message->reader); })) {
                self.ended(failure->getDescription());
                kj::throwFatalException(kj::mv(*failure));
              }

            } else {
              self.ended("the peer closed the connection"_kj);
            }
            return kj::mv(read);
          },
          [this](kj::Exception&& failure) -> Read {
            ended(failure.getDescription());
            kj::throwFatalException(kj::mv(failure));
          });
}

// A message has just been read, so nothing of the next one is held anywhere.
void LimitedMessageStream::useBufferWhenBusy(uint64_t octets) {
  if (buffered != nullptr) return;
  if (++messagesRead < BUSY_MESSAGES && octets < BUSY_OCTETS) return;
  buffered.emplace(stream, capnp::IncomingRpcMessage::getShortLivedCallback(), READ_BUFFER_WORDS);
}

void LimitedMessageStream::received(capnp::MessageReader& reader) {
  auto message = reader.getRoot<capnp::rpc::Message>();
  useBufferWhenBusy(reader.sizeInWords() * sizeof(capnp::word));  // Only after getRoot().
  CallMeter::Question question;
  uint32_t id;
  switch (message.which()) {
    case capnp::rpc::Message::CALL: {
      auto call = message.getCall();
      id = call.getQuestionId();
      question.streamWrite = isStreamWrite(call);
      question.wantsReturn = !call.getOnlyPromisePipeline() || call.getSendResultsTo().isYourself();
      break;
    }
    case capnp::rpc::Message::BOOTSTRAP:
      id = message.getBootstrap().getQuestionId();
      break;
    case capnp::rpc::Message::FINISH:
      calls->finished(message.getFinish().getQuestionId());
      return;
    case capnp::rpc::Message::ABORT:
      ended(kj::str("the peer aborted: ", message.getAbort().getReason()));
      return;
    default:
      return;
  }
  question.octets = reader.sizeInWords() * sizeof(capnp::word) +
                    (question.streamWrite ? RpcLimits::STREAM_WRITE_COST : 0);
  calls->begin(id, question);
  auto excess = calls->excess();
  if (excess == nullptr) {
    auto queued = queuedOctets();
    if (queued <= limits.maxQueuedOctets) return;
    excess = kj::str(queued, " octets of answers that the peer does not read, the limit is ",
                     limits.maxQueuedOctets);
  }
  auto text = kj::str("connection closed: ", KJ_ASSERT_NONNULL(excess));
  kj::throwFatalException(
      kj::Exception(kj::Exception::Type::OVERLOADED, __FILE__, __LINE__, kj::mv(text)));
}

void LimitedMessageStream::sending(kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) {
  if (surelyNeitherReturnNorAbort(segments)) return;
  capnp::SegmentArrayMessageReader reader(segments);
  auto message = reader.getRoot<capnp::rpc::Message>();
  if (message.isReturn()) {
    calls->answered(message.getReturn().getAnswerId());
  } else if (message.isAbort() && reason == nullptr) {
    reason = kj::heapString(message.getAbort().getReason());
  }
}

kj::Promise<void> LimitedMessageStream::writeMessage(
    kj::ArrayPtr<const int> fds, kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) {
  sending(segments);
  return plain.writeMessage(fds, segments);
}

kj::Promise<void> LimitedMessageStream::writeMessages(
    kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>> messages) {
  for (auto& segments: messages) {
    sending(segments);
  }
  return plain.writeMessages(messages);
}

kj::Maybe<int> LimitedMessageStream::getSendBufferSize() {
  return static_cast<int>(limits.streamWindowOctets);
}

kj::Promise<void> LimitedMessageStream::end() { return plain.end(); }

void LimitedMessageStream::ended(kj::StringPtr why) {
  if (reason == nullptr) reason = kj::heapString(why);
  endReading->fulfill();
}

}  // namespace capstan
