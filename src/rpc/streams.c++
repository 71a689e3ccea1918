#include "rpc/streams.h"

#include "rpc/convert.h"

namespace capstan {

namespace {

class ClientReceiver final: public OutputReceiver {
public:
  ClientReceiver(rpc::OutputSink::Client sink, kj::Own<DeliveryCount> count)
      : sink(kj::mv(sink)), count(kj::mv(count)) {}

  kj::Promise<void> write(uint64_t offset, OutputStream stream,
                          kj::ArrayPtr<const kj::byte> bytes) override {
    count->octets += bytes.size();
    auto request =
        sink.writeRequest(capnp::MessageSize{16 + bytes.size() / sizeof(capnp::word), 0});
    request.setOffset(offset);
    request.setStream(stream == OutputStream::STDERR ? rpc::OutputStream::STDERR
                                                     : rpc::OutputStream::STDOUT);
    request.setBytes(bytes);
    return request.send();
  }
  kj::Promise<void> gap(uint64_t from, uint64_t to) override {
    auto request = sink.gapRequest();
    request.setFrom(from);
    request.setTo(to);
    return request.send();
  }
  kj::Promise<void> end(uint64_t offset) override {
    auto request = sink.endRequest();
    request.setOffset(offset);
    return request.send().ignoreResult();
  }

private:
  rpc::OutputSink::Client sink;
  kj::Own<DeliveryCount> count;
};

class DiscardingReceiver final: public OutputReceiver {
public:
  kj::Promise<void> write(uint64_t, OutputStream, kj::ArrayPtr<const kj::byte>) override {
    return kj::READY_NOW;
  }
  kj::Promise<void> gap(uint64_t, uint64_t) override { return kj::READY_NOW; }
  kj::Promise<void> end(uint64_t) override { return kj::READY_NOW; }
};

class SubscriptionCap final: public rpc::Subscription::Server {
public:
  SubscriptionCap(kj::Own<OutputReading> reading, kj::Own<DeliveryCount> count,
                  kj::Own<ProcessActor> process, Guard guard)
      : process(kj::mv(process)),
        count(kj::mv(count)),
        reading(kj::mv(reading)),
        guard(kj::mv(guard)) {}

protected:
  kj::Promise<void> stats(StatsContext context) override {
    if (guard.refuses(ruleOf("Subscription.stats"), context)) co_return;
    context.getResults().setDelivered(count->octets);
  }

private:
  kj::Own<ProcessActor> process;
  kj::Own<DeliveryCount> count;
  kj::Own<OutputReading> reading;
  Guard guard;
};

class StdinCap final: public rpc::ByteStream::Server {
public:
  StdinCap(kj::Own<StdinWriter> writer, kj::Own<ProcessActor> process)
      : process(kj::mv(process)), writer(kj::mv(writer)) {}

protected:
  kj::Promise<void> write(WriteContext context) override {
    auto bytes = context.getParams().getBytes();
    KJ_REQUIRE(bytes.size() <= rpc::MAX_CHUNK_BYTES, "a write holds at most 64 KiB", bytes.size());
    return writer->write(bytes);
  }
  kj::Promise<void> end(EndContext) override { return writer->end(); }

private:
  kj::Own<ProcessActor> process;
  kj::Own<StdinWriter> writer;
};

// Enough for a burst of quick steps; a client that takes none makes us keep no more than this.
constexpr uint32_t MOST_REPORTS_IN_FLIGHT = 16;

}  // namespace

kj::Own<OutputReceiver> newClientReceiver(kj::Maybe<rpc::OutputSink::Client> sink,
                                          kj::Own<DeliveryCount> count) {
  KJ_IF_MAYBE (client, sink) {
    return kj::heap<ClientReceiver>(kj::mv(*client), kj::mv(count));
  }
  return kj::heap<DiscardingReceiver>();
}

rpc::Subscription::Client newSubscription(kj::Own<OutputReading> reading,
                                          kj::Own<DeliveryCount> count,
                                          kj::Own<ProcessActor> process, Guard guard) {
  return kj::heap<SubscriptionCap>(kj::mv(reading), kj::mv(count), kj::mv(process), kj::mv(guard));
}

rpc::ByteStream::Client newStdin(kj::Own<StdinWriter> writer, kj::Own<ProcessActor> process) {
  return kj::heap<StdinCap>(kj::mv(writer), kj::mv(process));
}

ClientProgress::ClientProgress(kj::Maybe<rpc::Progress::Client> client)
    : client(kj::mv(client)), sends(*this) {}

void ClientProgress::report(const PrepareStep& step, uint16_t index, uint16_t total) {
  KJ_IF_MAYBE (peer, client) {
    if (inFlight >= MOST_REPORTS_IN_FLIGHT) return;
    ++inFlight;
    auto request = peer->reportRequest();
    write(request.initStep(), step);
    request.setIndex(index);
    request.setTotal(total);
    sends.add(request.send().attach(kj::defer([this]() { --inFlight; })));
  }
}

void ClientProgress::taskFailed(kj::Exception&&) {
  // The client went away or refuses reports; what it waits for goes on without them.
  client = nullptr;
}

}  // namespace capstan
