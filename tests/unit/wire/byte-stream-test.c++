#include "wire/byte-stream.h"

#include "hostile-streams.h"
#include "probe-process.h"
#include "support/test.h"

#include <string>

namespace capstan {
namespace {

using test::Loop;

// What a byte stream's server saw.
struct Seen {
  std::string octets;
  uint32_t writes = 0;
  uint32_t inProgress = 0;
  uint32_t mostInProgress = 0;
  uint32_t ends = 0;
  uint32_t aborts = 0;
  bool gone = false;
  kj::Maybe<kj::ForkedPromise<void>> gate;  // null = write at once
  bool failing = false;
};

class SeenOutput final: public kj::AsyncOutputStream {
public:
  explicit SeenOutput(Seen& seen): seen(seen) {}
  ~SeenOutput() noexcept(false) { seen.gone = true; }
  kj::Promise<void> write(const void* buffer, size_t size) override {
    KJ_REQUIRE(!seen.failing, "disk full");
    ++seen.inProgress;
    KJ_DEFER(--seen.inProgress);
    seen.mostInProgress = kj::max(seen.mostInProgress, seen.inProgress);
    KJ_IF_MAYBE (gate, seen.gate) {
      co_await gate->addBranch();
    }
    seen.octets.append(reinterpret_cast<const char*>(buffer), size);
    ++seen.writes;
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    for (auto& piece: pieces) {
      co_await write(piece.begin(), piece.size());
    }
  }
  kj::Promise<void> whenWriteDisconnected() override { return kj::NEVER_DONE; }

private:
  Seen& seen;
};

rpc::ByteStream::Client serve(Seen& seen) {
  ByteStreamEvents events;
  events.onEnd = [&seen]() -> kj::Promise<void> {
    ++seen.ends;
    return kj::READY_NOW;
  };
  events.onAbort = [&seen](kj::Exception) { ++seen.aborts; };
  return newByteStreamServer(kj::heap<SeenOutput>(seen), kj::mv(events));
}

std::string pattern(size_t size) {
  std::string result(size, 0);
  for (size_t i = 0; i < size; ++i) {
    result[i] = static_cast<char>(i * 131 + (i >> 8));
  }
  return result;
}

void settle(Loop& loop, int rounds = 50) {
  for (int i = 0; i < rounds; ++i) {
    loop.waitScope.poll();
    loop.advance(0 * kj::NANOSECONDS);
  }
}

kj::Promise<void> write(rpc::ByteStream::Client stream, size_t size) {
  auto request = stream.writeRequest();
  request.initBytes(size);
  return request.send();
}

TEST_CASE("what is written arrives in order and ends once") {
  Loop loop;
  Seen seen;
  auto data = pattern(300000);
  ByteStreamOutput out(serve(seen));
  out.write(data.data(), data.size()).wait(loop.waitScope);
  kj::ArrayPtr<const kj::byte> pieces[] = {kj::StringPtr("ab").asBytes(), nullptr,
                                           kj::StringPtr("cd").asBytes()};
  out.write(pieces).wait(loop.waitScope);
  CHECK(seen.ends == 0);
  out.end().wait(loop.waitScope);

  CHECK(seen.octets == data + "abcd");
  CHECK(seen.writes == 6);  // four full chunks, the rest, and the small pieces as one
  CHECK(seen.mostInProgress == 1);
  CHECK(seen.ends == 1);
  CHECK(seen.aborts == 0);
  CHECK(out.inFlight() == 0);
  CHECK_THROWS(out.write("x", 1).wait(loop.waitScope));
}

TEST_CASE("the ends of an empty stream, of a dropped one and of one used after its end") {
  Loop loop;
  Seen empty;
  ByteStreamOutput(serve(empty)).end().wait(loop.waitScope);
  CHECK(empty.ends == 1);
  CHECK(empty.aborts == 0);

  Seen dropped;
  {
    ByteStreamOutput out(serve(dropped));
    out.write("x", 1).wait(loop.waitScope);
    settle(loop);
  }
  settle(loop);
  CHECK(dropped.ends == 0);
  CHECK(dropped.aborts == 1);
  CHECK(dropped.gone);

  Seen after;
  auto stream = serve(after);
  stream.endRequest().send().ignoreResult().wait(loop.waitScope);
  CHECK_THROWS(write(stream, 1).wait(loop.waitScope));
  CHECK_THROWS(stream.endRequest().send().ignoreResult().wait(loop.waitScope));
  stream = nullptr;
  settle(loop);
  CHECK(after.ends == 1);
  CHECK(after.aborts == 0);
}

TEST_CASE("a write above 64 KiB is refused with its numbers and breaks the stream") {
  Loop loop;
  Seen seen;
  auto stream = serve(seen);
  write(stream, 65536).wait(loop.waitScope);
  std::string text;
  write(stream, 65537)
      .catch_([&](kj::Exception&& e) { text = e.getDescription().cStr(); })
      .wait(loop.waitScope);
  CHECK(text.find("too large") != std::string::npos);
  CHECK(text.find("65537") != std::string::npos);
  CHECK_THROWS(stream.endRequest().send().ignoreResult().wait(loop.waitScope));
  CHECK(seen.octets.size() == 65536);
  CHECK(seen.aborts == 1);
  CHECK(seen.ends == 0);
}

TEST_CASE("the window holds a writer whose peer stalls: octets, writes, budget") {
  Loop loop;
  Seen seen;
  auto gate = kj::newPromiseAndFulfiller<void>();
  seen.gate = gate.promise.fork();
  auto data = pattern(3 << 20);

  SECTION("1 MiB of octets") {
    ByteStreamOutput out(serve(seen));
    auto written = out.write(data.data(), data.size());
    CHECK_FALSE(written.poll(loop.waitScope));
    CHECK(out.inFlight() == 1 << 20);
    CHECK(seen.inProgress == 1);
    gate.fulfiller->fulfill();
    written.wait(loop.waitScope);
    out.end().wait(loop.waitScope);
    CHECK(seen.octets == data);
    CHECK(seen.mostInProgress == 1);
  }
  SECTION("16 small writes") {
    ByteStreamOutput out(serve(seen));
    for (int i = 0; i < 16; ++i) {
      out.write("x", 1).wait(loop.waitScope);
    }
    auto next = out.write("x", 1);
    CHECK_FALSE(next.poll(loop.waitScope));
    gate.fulfiller->fulfill();
    next.wait(loop.waitScope);
  }
  SECTION("a shared budget, of which every stream has its first write") {
    auto budget = kj::refcounted<StreamBudget>(128 * 1024);
    Seen other;
    {
      ByteStreamOutput out(serve(seen), kj::addRef(*budget));
      auto written = out.write(data.data(), data.size());
      CHECK_FALSE(written.poll(loop.waitScope));
      CHECK(out.inFlight() == 128 * 1024);
      CHECK(budget->inUse() == 128 * 1024);
      ByteStreamOutput second(serve(other), kj::addRef(*budget));
      second.write(data.data(), data.size()).wait(loop.waitScope);
      second.end().wait(loop.waitScope);
      CHECK(other.octets == data);
    }
    CHECK(budget->inUse() == 0);
  }
}

TEST_CASE("a peer's failure shows at the next write, at end() and as a disconnect") {
  Loop loop;
  Seen seen;
  seen.failing = true;
  ByteStreamOutput out(serve(seen));
  auto disconnected = out.whenWriteDisconnected();
  out.write("x", 1).wait(loop.waitScope);
  disconnected.wait(loop.waitScope);
  CHECK_THROWS(out.write("y", 1).wait(loop.waitScope));
  CHECK_THROWS(out.end().wait(loop.waitScope));
  CHECK(seen.aborts == 1);

  Seen stalled;
  auto gate = kj::newPromiseAndFulfiller<void>();
  stalled.gate = gate.promise.fork();
  ByteStreamOutput waiting(serve(stalled), nullptr, StreamWindow{1 << 20, 1});
  waiting.write("x", 1).wait(loop.waitScope);
  auto held = waiting.write("y", 1);
  CHECK_FALSE(held.poll(loop.waitScope));
  gate.fulfiller->reject(KJ_EXCEPTION(DISCONNECTED, "cut"));
  CHECK_THROWS(held.wait(loop.waitScope));
}

TEST_CASE("a write cancelled half way ends the stream as aborted") {
  Loop loop;
  Seen seen;
  auto gate = kj::newPromiseAndFulfiller<void>();
  seen.gate = gate.promise.fork();
  {
    ByteStreamOutput out(serve(seen));
    out.write("x", 1).wait(loop.waitScope);
    settle(loop);
    CHECK(seen.inProgress == 1);
  }
  settle(loop);
  CHECK(seen.inProgress == 0);
  CHECK(seen.aborts == 1);
  CHECK(seen.octets == "");
}

TEST_CASE("pump copies until the end of file, whatever the reads look like") {
  for (bool oneByte: {false, true}) {
    Loop loop;
    Seen seen;
    auto data = pattern(oneByte ? 3000 : 500000);
    auto pipe = kj::newTwoWayPipe();
    kj::Own<kj::AsyncIoStream> source = kj::mv(pipe.ends[0]);
    if (oneByte) source = kj::heap<test::OneByteStream>(kj::mv(source));
    ByteStreamOutput out(serve(seen));
    auto pumped = pumpToByteStream(*source, out);
    pipe.ends[1]->write(data.data(), data.size()).wait(loop.waitScope);
    settle(loop);
    CHECK(seen.ends == 0);
    pipe.ends[1]->shutdownWrite();
    CHECK(pumped.wait(loop.waitScope) == data.size());
    CHECK(seen.octets == data);
    CHECK(seen.ends == 1);
  }
}

// A local stream, bridged to a far stream over two byte streams.
struct Bridged {
  kj::TwoWayPipe local = kj::newTwoWayPipe();
  kj::TwoWayPipe far = kj::newTwoWayPipe();
  kj::Own<kj::AsyncIoStream> nearEnd = kj::mv(local.ends[0]);
  kj::Own<kj::AsyncIoStream> farEnd = kj::mv(far.ends[0]);
  kj::Maybe<kj::Promise<void>> nearRun, farRun;

  Bridged() {
    ByteStreamBridge nearBridge(kj::mv(local.ends[1]));
    ByteStreamBridge farBridge(kj::mv(far.ends[1]));
    auto up = farBridge.incoming();
    auto down = nearBridge.incoming();
    nearRun = nearBridge.run(kj::mv(up));
    farRun = farBridge.run(kj::mv(down));
  }
};

std::string readAll(Loop& loop, kj::AsyncIoStream& stream) {
  return stream.readAllText().wait(loop.waitScope).cStr();
}

TEST_CASE("a bridge carries both directions, each with its own end") {
  Loop loop;
  Bridged bridge;
  bridge.nearEnd->write("question", 8).wait(loop.waitScope);
  bridge.nearEnd->shutdownWrite();
  CHECK(readAll(loop, *bridge.farEnd) == "question");
  CHECK_FALSE(KJ_ASSERT_NONNULL(bridge.nearRun).poll(loop.waitScope));

  bridge.farEnd->write("answer", 6).wait(loop.waitScope);
  bridge.farEnd->shutdownWrite();
  CHECK(readAll(loop, *bridge.nearEnd) == "answer");
  KJ_ASSERT_NONNULL(bridge.nearRun).wait(loop.waitScope);
  KJ_ASSERT_NONNULL(bridge.farRun).wait(loop.waitScope);
}

TEST_CASE("an end that goes away cuts both directions at both bridges") {
  Loop loop;
  Bridged bridge;
  bridge.nearEnd->write("half", 4).wait(loop.waitScope);
  settle(loop);
  bridge.farEnd = nullptr;  // closes both directions; the next write to it fails

  auto more = bridge.nearEnd->write("more", 4);
  settle(loop);
  bridge.nearEnd->write("more", 4).catch_([](kj::Exception&&) {}).wait(loop.waitScope);
  settle(loop);
  CHECK(KJ_ASSERT_NONNULL(bridge.farRun).poll(loop.waitScope));
  CHECK_THROWS(KJ_ASSERT_NONNULL(bridge.farRun).wait(loop.waitScope));
  CHECK_THROWS(KJ_ASSERT_NONNULL(bridge.nearRun).wait(loop.waitScope));
  char buffer[8];
  CHECK(bridge.nearEnd->tryRead(buffer, 1, 8).wait(loop.waitScope) == 0);
}

TEST_CASE("dropping one bridge at any moment cuts the other and closes its stream") {
  for (int polls = 0; polls < 12; ++polls) {
    for (bool dropNear: {false, true}) {
      Loop loop;
      Bridged bridge;
      auto data = pattern(400000);
      auto up = bridge.nearEnd->write(data.data(), data.size()).catch_([](kj::Exception&&) {});
      auto down = bridge.farEnd->write(data.data(), data.size()).catch_([](kj::Exception&&) {});
      kj::byte sink[4096];
      for (int i = 0; i < polls; ++i) {
        bridge.farEnd->tryRead(sink, 1, sizeof(sink)).wait(loop.waitScope);
        loop.waitScope.poll(static_cast<uint>(i));
      }
      auto& dropped = dropNear ? bridge.nearRun : bridge.farRun;
      auto& other = dropNear ? bridge.farRun : bridge.nearRun;
      dropped = nullptr;
      settle(loop);

      INFO("after " << polls << (dropNear ? ", near" : ", far"));
      CHECK(KJ_ASSERT_NONNULL(other).poll(loop.waitScope));
      CHECK_THROWS(KJ_ASSERT_NONNULL(other).wait(loop.waitScope));
      other = nullptr;
      CHECK(up.poll(loop.waitScope));  // nobody waits for a stream that nobody reads any more
      CHECK(down.poll(loop.waitScope));
    }
  }
}

TEST_CASE("a bridge that never runs aborts its incoming stream when dropped") {
  Loop loop;
  auto pipe = kj::newTwoWayPipe();
  auto bridge = kj::heap<ByteStreamBridge>(kj::mv(pipe.ends[1]));
  auto incoming = bridge->incoming();
  auto early = write(incoming, 4);
  char buffer[8];
  CHECK(pipe.ends[0]->tryRead(buffer, 4, 8).wait(loop.waitScope) == 4);
  early.wait(loop.waitScope);
  bridge = nullptr;
  CHECK_THROWS(write(incoming, 4).wait(loop.waitScope));
  CHECK(pipe.ends[0]->tryRead(buffer, 1, 8).wait(loop.waitScope) == 0);
}

TEST_CASE("a stream over a connection that is cut aborts at the far end") {
  Loop loop;
  test::ProbeState state;
  test::ProbePair pair(loop.timer, state);
  auto out = kj::heap<ByteStreamOutput>(pair.process.sinkRequest().send().getSink());
  out->write("x", 1).wait(loop.waitScope);
  settle(loop);
  auto disconnected = out->whenWriteDisconnected();
  CHECK_FALSE(disconnected.poll(loop.waitScope));
  pair.server = nullptr;
  settle(loop);
  CHECK(disconnected.poll(loop.waitScope));
  CHECK_THROWS(out->write("y", 1).wait(loop.waitScope));
}

}  // namespace
}  // namespace capstan
