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
      ++target->writing;
      KJ_DEFER(target->written());
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

OutputTarget::OutputTarget(kj::Maybe<kj::Own<kj::AsyncOutputStream>> stdoutStream,
                           kj::Maybe<kj::Own<kj::AsyncOutputStream>> stderrStream)
    : out(kj::mv(stdoutStream)), err(kj::mv(stderrStream)), ended(nullptr) {
  auto pair = kj::newPromiseAndFulfiller<void>();
  ended = kj::mv(pair.promise);
  end = kj::mv(pair.fulfiller);
}

void OutputTarget::fail(kj::Exception reason) {
  if (end->isWaiting()) end->reject(kj::mv(reason));
  release();
}

// Another sink may end the output while a write of this one is under way.
void OutputTarget::written() {
  if (--writing == 0 && over) release();
}

void OutputTarget::release() {
  over = true;
  if (writing > 0) return;
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
