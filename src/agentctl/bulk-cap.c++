#include "agentctl/bulk-cap.h"

#include "agentctl/dial.h"
#include "base/memory.h"
#include "wire/byte-stream.h"

#include <kj/debug.h>

#include <cstring>

namespace capstan {

namespace {

constexpr size_t MAX_DIALS = 256;  // Of one connection.
constexpr int PIECES_PER_TURN = 16;
constexpr uint64_t MUCH_OUTPUT = 1 << 20;  // A delivery of so many octets has grown the heap.

// Delivers one log to one sink, as long as it is held.
class SubscriptionCap final: public rpc::Subscription::Server {
public:
  SubscriptionCap(kj::Timer& timer, kj::Own<HelperInstance> instance, uint64_t offset,
                  rpc::OutputSink::Client sink, bool follow, bool hold)
      : timer(timer),
        instance(kj::mv(instance)),
        sink(kj::mv(sink)),
        offset(offset),
        limit(follow ? UINT64_MAX : this->instance->output().endOffset()),
        holds(hold) {
    task = deliver().eagerlyEvaluate([](kj::Exception&& e) {
      // The sink refused or its side is gone: there is nobody left to tell.
      KJ_LOG(INFO, "delivery of output ended", e);
    });
  }
  ~SubscriptionCap() noexcept(false) {
    task = nullptr;
    if (delivered >= MUCH_OUTPUT) giveHeapBack();
  }
  KJ_DISALLOW_COPY_AND_MOVE(SubscriptionCap);

  kj::Promise<void> stats(StatsContext context) override {
    context.getResults().setDelivered(delivered);
    context.getResults().setCoalesced(skipped);
    return kj::READY_NOW;
  }

private:
  kj::Timer& timer;
  kj::Own<HelperInstance> instance;
  rpc::OutputSink::Client sink;
  uint64_t offset;
  const uint64_t limit;
  const bool holds;
  uint64_t delivered = 0;  // Octets
  uint64_t skipped = 0;    // Octets, in gaps
  kj::Promise<void> task = nullptr;

  kj::Promise<void> deliver() {
    auto& log = instance->output();
    // Only what follows is worth waiting for.
    bool follows = limit == UINT64_MAX;
    if (follows) log.beginReading();
    KJ_DEFER(if (follows) log.endReading());
    kj::Maybe<kj::Own<OutputLog::Hold>> held;
    if (holds) held = kj::heap<OutputLog::Hold>(log, offset);
    int pieces = 0;
    for (;;) {
      if (offset >= limit) break;
      auto found = log.read(offset, std::min<uint64_t>(limit - offset, rpc::MAX_CHUNK_BYTES));
      KJ_IF_MAYBE (piece, found.tryGet<OutputLog::Piece>()) {
        auto size = piece->bytes.size();
        auto request = sink.writeRequest(capnp::MessageSize{size / 8 + 16, 0});
        request.setOffset(piece->offset);
        request.setStream(piece->stream);
        request.setBytes(piece->bytes);  // Copied: good only until the next wait.
        offset += size;
        delivered += size;
        co_await request.send();
        log.delivered(offset);
        if (++pieces % PIECES_PER_TURN == 0) co_await timer.afterDelay(0 * kj::NANOSECONDS);
      } else if (found.is<OutputLog::Gap>()) {
        auto gap = found.get<OutputLog::Gap>();
        auto to = std::min(gap.to, limit);
        auto request = sink.gapRequest();
        request.setFrom(gap.from);
        request.setTo(to);
        skipped += to - gap.from;
        offset = to;
        co_await request.send();
      } else {
        if (log.ended()) break;
        co_await log.changed();
        // Whatever else is ready to be read goes into the same piece.
        co_await timer.afterDelay(0 * kj::NANOSECONDS);
      }
    }
    auto request = sink.endRequest();
    request.setOffset(offset);
    co_await request.send().ignoreResult();
  }
};

// One writer's turn at a process's standard input.
class StdinCap final: public rpc::ByteStream::Server {
public:
  StdinCap(kj::Own<HelperInstance> instance, StdinBuffer::WriterId writer)
      : instance(kj::mv(instance)), writer(writer) {}
  ~StdinCap() noexcept(false) {
    KJ_IF_MAYBE (input, instance->input()) {
      input->endWriter(writer);
    }
  }
  KJ_DISALLOW_COPY_AND_MOVE(StdinCap);

  kj::Promise<void> write(WriteContext context) override {
    auto bytes = context.getParams().getBytes();
    KJ_REQUIRE(bytes.size() <= rpc::MAX_CHUNK_BYTES, "a write larger than maxChunkBytes");
    return input().write(writer, bytes);
  }

  kj::Promise<void> end(EndContext context) override { return input().end(writer); }

private:
  kj::Own<HelperInstance> instance;
  StdinBuffer::WriterId writer;

  StdinBuffer& input() {
    KJ_IF_MAYBE (input, instance->input()) {
      return *input;
    }
    kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "the process has ended"));
  }
};

class BulkCap final: public agentctl::Bulk::Server, private kj::TaskSet::ErrorHandler {
public:
  BulkCap(HelperServer& server, kj::Own<HelperPeer> peer)
      : server(server), peer(kj::mv(peer)), tasks(*this) {}

  kj::Promise<void> output(OutputContext context) override {
    peer->meter.admit();
    auto params = context.getParams();
    auto results = context.getResults();
    auto found = server.find(params.getId());
    KJ_IF_MAYBE (problem, found.tryGet<Problem>()) {
      writeProblem(*problem, results.initError());
      return kj::READY_NOW;
    }
    auto instance = kj::mv(found.get<kj::Own<HelperInstance>>());
    auto end = instance->output().endOffset();
    if (params.getOffset() > end) {
      writeProblem(Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the offset is beyond the end"))
                       .because(kj::str("the end is at ", end))
                       .at(kj::str("offset")),
                   results.initError());
      return kj::READY_NOW;
    }
    results.setSubscription(kj::heap<SubscriptionCap>(server.host.timer, kj::mv(instance),
                                                      params.getOffset(), params.getSink(),
                                                      params.getFollow(), params.getHold()));
    return kj::READY_NOW;
  }

  kj::Promise<void> stdin(StdinContext context) override {
    peer->meter.admit();
    auto params = context.getParams();
    auto results = context.getResults();
    auto found = server.find(params.getId());
    KJ_IF_MAYBE (problem, found.tryGet<Problem>()) {
      writeProblem(*problem, results.initError());
      return kj::READY_NOW;
    }
    auto instance = kj::mv(found.get<kj::Own<HelperInstance>>());
    KJ_IF_MAYBE (input, instance->input()) {
      KJ_IF_MAYBE (writer, input->beginWriter(params.getTakeOver())) {
        results.setStdin(kj::heap<StdinCap>(kj::mv(instance), *writer));
      } else {
        writeProblem(Problem(ErrorCode::WRONG_STATE, kj::str("another writer holds its input"))
                         .at(kj::str("takeOver"))
                         .advise(kj::str("take it over")),
                     results.initError());
      }
    } else {
      writeProblem(Problem(ErrorCode::WRONG_STATE, kj::str("the process is not running")),
                   results.initError());
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> dial(DialContext context) override {
    peer->meter.admit();
    auto down = context.getParams().getDown();
    if (dials >= MAX_DIALS) {
      writeProblem(
          Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("too many connections through one link"))
              .retryable(RetryHint::SAME_REQUEST_LATER),
          context.getResults().initError());
      co_return;
    }
    auto parsed = parseTarget(context.getParams().getTarget());
    KJ_IF_MAYBE (problem, parsed.tryGet<Problem>()) {
      writeProblem(*problem, context.getResults().initError());
      co_return;
    }
    ++dials;
    bool running = false;
    KJ_DEFER(if (!running)-- dials);
    auto dialled = co_await dialTarget(server.host.port, server.host.timer, server.network,
                                       kj::mv(parsed.get<kj::Vector<DialAddress>>()));
    KJ_IF_MAYBE (problem, dialled.tryGet<Problem>()) {
      writeProblem(*problem, context.getResults().initError());
      co_return;
    }
    ByteStreamBridge bridge(kj::mv(dialled.get<kj::Own<kj::AsyncIoStream>>()));
    context.getResults().setUp(bridge.incoming());
    kj::Maybe<kj::Own<StreamBudget>> budget;
    KJ_IF_MAYBE (shared, peer->budget) {
      budget = kj::addRef(**shared);
    }
    running = true;
    tasks.add(bridge.run(kj::mv(down), kj::mv(budget)).attach(kj::defer([this]() { --dials; })));
  }

private:
  HelperServer& server;
  kj::Own<HelperPeer> peer;
  size_t dials = 0;
  kj::TaskSet tasks;  // last

  void taskFailed(kj::Exception&& exception) override {
    // Either end may break off; both have been told.
    KJ_LOG(INFO, "a dialled connection was cut", exception);
  }
};

}  // namespace

agentctl::Bulk::Client newBulkCap(HelperServer& server, kj::Own<HelperPeer> peer) {
  return kj::heap<BulkCap>(server, kj::mv(peer));
}

}  // namespace capstan
