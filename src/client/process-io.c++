#include "client/process-io.h"

#include "wire/byte-stream.h"

#include <kj/debug.h>

namespace capstan {

class OutputTarget::Sink final: public rpc::OutputSink::Server {
public:
  explicit Sink(kj::Own<OutputTarget> target): target(kj::mv(target)) { ++this->target->sinks; }
  ~Sink() noexcept(false) {
    if (--target->sinks > 0) return;
    target->fail(KJ_EXCEPTION(DISCONNECTED, "the delivery of the output was cut"));
  }

protected:
  kj::Promise<void> write(WriteContext context) override {
    auto params = context.getParams();
    auto bytes = params.getBytes();
    auto& stream = params.getStream() == rpc::OutputStream::STDERR ? target->err : target->out;
    auto end = params.getOffset() + bytes.size();
    KJ_IF_MAYBE (to, stream) {
      kj::Maybe<kj::Exception> failure;
      try {
        co_await (*to)->write(bytes.begin(), bytes.size());
      } catch (const kj::Exception& e) {
        failure = kj::Exception(e);
      }
      KJ_IF_MAYBE (e, failure) {
        target->refused = true;
        target->fail(kj::Exception(*e));
        kj::throwFatalException(kj::mv(*e));
      }
    }
    target->next = end;
  }
  kj::Promise<void> gap(GapContext context) override {
    auto params = context.getParams();
    if (params.getTo() > target->next) {
      target->missing += params.getTo() - kj::max(target->next, params.getFrom());
      target->next = params.getTo();
    }
    return kj::READY_NOW;
  }
  kj::Promise<void> end(EndContext) override {
    target->end->fulfill();
    target->release();
    return kj::READY_NOW;
  }

private:
  kj::Own<OutputTarget> target;
};

namespace {

// A stream that stays its owner's.
kj::Maybe<kj::Own<kj::AsyncOutputStream>> borrow(kj::Maybe<kj::AsyncOutputStream&> stream) {
  return stream.map([](kj::AsyncOutputStream& each) {
    return kj::Own<kj::AsyncOutputStream>(&each, kj::NullDisposer::instance);
  });
}

}  // namespace

OutputTarget::OutputTarget(kj::Maybe<kj::AsyncOutputStream&> stdoutStream,
                           kj::Maybe<kj::AsyncOutputStream&> stderrStream)
    : out(borrow(stdoutStream)), err(borrow(stderrStream)), ended(nullptr) {
  auto pair = kj::newPromiseAndFulfiller<void>();
  ended = kj::mv(pair.promise);
  end = kj::mv(pair.fulfiller);
}

OutputTarget::OutputTarget(kj::Own<kj::AsyncOutputStream> stdoutStream,
                           kj::Own<kj::AsyncOutputStream> stderrStream)
    : OutputTarget(*stdoutStream, *stderrStream) {
  out = kj::mv(stdoutStream);
  err = kj::mv(stderrStream);
  owned = true;
}

void OutputTarget::fail(kj::Exception reason) {
  if (end->isWaiting()) end->reject(kj::mv(reason));
  release();
}

void OutputTarget::release() {
  if (!owned) return;
  out = nullptr;
  err = nullptr;
}

rpc::OutputSink::Client OutputTarget::sink() { return kj::heap<Sink>(kj::addRef(*this)); }

kj::Promise<void> feedStdin(kj::AsyncInputStream& from, rpc::ByteStream::Client stdinStream) {
  ByteStreamOutput to(kj::mv(stdinStream));
  kj::Maybe<kj::Exception> failure;
  try {
    co_await pumpToByteStream(from, to);
  } catch (const kj::Exception& e) {
    failure = kj::Exception(e);
  }
  KJ_IF_MAYBE (e, failure) {
    // A process that has closed its stdin or ended is no failure of ours.
    if (e->getType() != kj::Exception::Type::DISCONNECTED) kj::throwFatalException(kj::mv(*e));
  }
}

}  // namespace capstan
