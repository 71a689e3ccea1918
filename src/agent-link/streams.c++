#include "agent-link/streams.h"

namespace capstan {

namespace {

class OutputSinkServer final: public rpc::OutputSink::Server {
public:
  explicit OutputSinkServer(kj::Own<OutputReceiver> receiver): receiver(kj::mv(receiver)) {}

protected:
  kj::Promise<void> write(WriteContext context) override {
    auto params = context.getParams();
    auto stream = params.getStream() == rpc::OutputStream::STDERR ? OutputStream::STDERR
                                                                  : OutputStream::STDOUT;
    return receiver->write(params.getOffset(), stream, params.getBytes());
  }
  kj::Promise<void> gap(GapContext context) override {
    auto params = context.getParams();
    return receiver->gap(params.getFrom(), params.getTo());
  }
  kj::Promise<void> end(EndContext context) override {
    return receiver->end(context.getParams().getOffset());
  }

private:
  kj::Own<OutputReceiver> receiver;
};

}  // namespace

kj::Promise<void> StdinWriter::write(kj::ArrayPtr<const kj::byte> bytes) {
  auto request = stream.writeRequest(capnp::MessageSize{8 + bytes.size() / sizeof(capnp::word), 0});
  request.setBytes(bytes);
  return request.send();
}

kj::Promise<void> StdinWriter::end() { return stream.endRequest().send().ignoreResult(); }

rpc::OutputSink::Client makeOutputSink(kj::Own<OutputReceiver> receiver) {
  return kj::heap<OutputSinkServer>(kj::mv(receiver));
}

}  // namespace capstan
