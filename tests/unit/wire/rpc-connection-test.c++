#include "wire/rpc-connection.h"

#include "hostile-streams.h"
#include "probe-process.h"
#include "support/test.h"

#include <string>

namespace capstan {
namespace {

using test::IoLoop;
using test::Loop;
using test::ProbePair;
using test::ProbeState;

std::string text(kj::Maybe<kj::StringPtr> reason) {
  KJ_IF_MAYBE (known, reason) {
    return known->cStr();
  }
  return "(none)";
}

kj::Promise<void> swallow(kj::Promise<void> promise) {
  return promise.catch_([](kj::Exception&&) {}).eagerlyEvaluate(nullptr);
}

// Lets everything run that needs no wall-clock time: messages yield by zero delays.
void settle(Loop& loop, int rounds = 400) {
  for (int i = 0; i < rounds; ++i) {
    loop.waitScope.poll();
    loop.advance(0 * kj::NANOSECONDS);
  }
}

TEST_CASE("a kill behind 300 waits on the same connection is served") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  kj::Vector<kj::Promise<void>> waits;
  uint32_t answered = 0;
  for (int i = 0; i < 300; ++i) {
    waits.add(swallow(pair.process.waitRequest().send().then([&](auto&& reply) {
      if (reply.getCode() == 9) ++answered;
    })));
  }

  auto kill = pair.process.killRequest().send().ignoreResult();
  settle(loop);

  CHECK(state.killed);
  kill.wait(loop.waitScope);
  CHECK(state.refused == 300 - 256);  // counted from the first: 256 are let in, 44 refused
  settle(loop);
  CHECK(answered == 256);
  CHECK(pair.server->meter().unanswered() == 0);
  CHECK(pair.server->meter().requestOctets() == 0);
  CHECK(text(pair.server->closeReason()) == "(none)");
}

TEST_CASE("a peer that has proved itself may be allowed more calls") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  pair.server->meter().allow(300, 600);
  kj::Vector<kj::Promise<void>> waits;
  for (int i = 0; i < 310; ++i) {
    waits.add(swallow(pair.process.waitRequest().send().ignoreResult()));
  }
  settle(loop);
  CHECK(state.refused == 10);
}

TEST_CASE("who dialled sees the end, even without ever asking for the bootstrap object") {
  Loop loop;
  auto pipe = kj::newTwoWayPipe();
  auto client = RpcConnection::connect(loop.timer, kj::mv(pipe.ends[0]));
  auto ended = client->onDisconnect();
  CHECK_FALSE(ended.poll(loop.waitScope));
  pipe.ends[1] = nullptr;
  settle(loop);
  loop.advance(2 * kj::SECONDS);
  CHECK(ended.poll(loop.waitScope));
}

TEST_CASE("the guard answers overloaded above 256 and admits again below") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  kj::Vector<kj::Promise<void>> waits;
  for (int i = 0; i < 256; ++i) {
    waits.add(swallow(pair.process.waitRequest().send().ignoreResult()));
  }
  settle(loop);
  REQUIRE(pair.server->meter().unanswered() == 256);
  CHECK_FALSE(pair.server->meter().overloaded());

  auto refused = pair.process.waitRequest().send().ignoreResult().then(
      []() { return kj::Exception::Type::FAILED; }, [](kj::Exception&& e) { return e.getType(); });
  settle(loop);
  CHECK(refused.wait(loop.waitScope) == kj::Exception::Type::OVERLOADED);

  waits.clear();  // the client drops its calls: each Finish still brings a Return
  settle(loop);
  CHECK(state.cancelled == 256);
  CHECK(pair.server->meter().unanswered() == 0);
  auto again = pair.process.waitRequest().send().ignoreResult();
  settle(loop);
  CHECK_FALSE(again.poll(loop.waitScope));
  CHECK(pair.server->meter().unanswered() == 1);
}

TEST_CASE("stream writes are counted but do not lock out other calls") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  kj::Vector<kj::Own<ByteStreamOutput>> uploads;
  for (int i = 0; i < 20; ++i) {
    StreamWindow window;
    window.writes = 20;
    uploads.add(
        kj::heap<ByteStreamOutput>(pair.process.sinkRequest().send().getSink(), nullptr, window));
    for (int k = 0; k < 20; ++k) {
      uploads.back()->write("x", 1).wait(loop.waitScope);
    }
  }
  settle(loop);

  CHECK(pair.server->meter().unanswered() == 400);
  CHECK_FALSE(pair.server->meter().overloaded());
  auto wait = pair.process.waitRequest().send();
  settle(loop);
  CHECK(state.refused == 0);
}

TEST_CASE("thousands of tiny stream writes are borne, octets bound them") {
  Loop loop;
  ProbeState state;
  RpcLimits limits;
  limits.maxRequestOctets = 4 << 20;
  ProbePair pair(loop.timer, state, kj::newTwoWayPipe(), limits);
  StreamWindow window;
  window.writes = 100000;
  ByteStreamOutput out(pair.process.sinkRequest().send().getSink(), nullptr, window);
  for (int i = 0; i < 5000; ++i) {
    out.write("x", 1).wait(loop.waitScope);
  }
  settle(loop);
  CHECK(pair.server->meter().unanswered() == 5000);
  CHECK(text(pair.server->closeReason()) == "(none)");
  for (int i = 0; i < 5000 && pair.server->closeReason() == nullptr; ++i) {
    out.write("x", 1).catch_([](kj::Exception&&) {}).wait(loop.waitScope);
    loop.waitScope.poll();
    loop.advance(0 * kj::NANOSECONDS);
  }
  CHECK(text(pair.server->closeReason()).find("octets of unanswered") != std::string::npos);
}

TEST_CASE("the meter: ids used again too early, calls that want no Return, unknown answers") {
  auto meter = kj::refcounted<CallMeter>(RpcLimits());
  meter->begin(7, {100, false, true});
  meter->begin(7, {50, true, true});
  CHECK(meter->unanswered() == 2);
  CHECK(meter->requestOctets() == 150);
  meter->answered(7);
  CHECK(meter->requestOctets() == 150);  // held against it until the last answer
  meter->answered(7);
  CHECK(meter->unanswered() == 0);
  CHECK(meter->requestOctets() == 0);
  meter->answered(7);
  meter->finished(8);
  CHECK(meter->unanswered() == 0);
  meter->begin(9, {10, false, false});
  meter->begin(10, {10, false, true});
  meter->finished(9);
  meter->finished(10);  // its Return is still to come
  CHECK(meter->unanswered() == 1);
}

TEST_CASE("4,096 unanswered calls are borne, one more closes the connection with its reason") {
  Loop loop;
  ProbeState state;
  RpcLimits limits;
  limits.overloadAbove = 100000;  // this client's calls all stay pending
  ProbePair pair(loop.timer, state, kj::newTwoWayPipe(), limits);
  kj::Vector<kj::Promise<void>> waits;
  for (int i = 0; i < 4096; ++i) {
    waits.add(swallow(pair.process.waitRequest().send().ignoreResult()));
  }
  settle(loop);
  CHECK(pair.server->meter().unanswered() == 4096);
  CHECK(text(pair.server->closeReason()) == "(none)");

  auto last = pair.process.waitRequest().send().ignoreResult();
  settle(loop);
  CHECK(text(pair.server->closeReason()) ==
        "connection closed: 4097 unanswered calls, the limit is 4096");
  CHECK_THROWS(last.wait(loop.waitScope));
  CHECK(text(pair.client->closeReason()).find("4097 unanswered calls") != std::string::npos);
  CHECK(state.cancelled == 4096);
  auto ended = pair.server->onDisconnect();
  CHECK(ended.poll(loop.waitScope));
}

TEST_CASE("16 MiB of unanswered requests close the connection") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  kj::Vector<kj::Promise<void>> held;
  uint32_t sent = 0;
  while (pair.server->closeReason() == nullptr && sent < 40) {
    auto request = pair.process.holdRequest();
    request.initBytes(512 * 1024);
    held.add(swallow(request.send().ignoreResult()));
    ++sent;
    settle(loop, 40);
  }
  CHECK(sent == 32);  // 32 half mebibytes and their headers
  CHECK(text(pair.server->closeReason())
            .find("octets of unanswered requests, the limit is "
                  "16777216") != std::string::npos);
}

TEST_CASE("a client that asks and never reads is closed") {
  Loop loop;
  ProbeState state;
  auto pipe = kj::newTwoWayPipe();
  RpcLimits limits;
  limits.maxQueuedOctets = 1 << 20;
  auto server =
      RpcConnection::serve(loop.timer, kj::mv(pipe.ends[0]), test::probeBootstrap(state), limits);
  // The client reads through a stream that stalls after the first answer.
  auto client = RpcConnection::connect(loop.timer,
                                       kj::heap<test::StallingStream>(kj::mv(pipe.ends[1]), 1024));
  auto process = client->bootstrap().castAs<probe::Process>();
  auto resolved = process.whenResolved();  // else later calls wait for an embargo, unsent
  settle(loop);
  resolved.wait(loop.waitScope);
  kj::Vector<kj::Promise<void>> asked;
  for (int i = 0; i < 40; ++i) {
    auto request = process.bigRequest();
    request.setOctets(64 * 1024);
    asked.add(swallow(request.send().ignoreResult()));
    settle(loop, 20);
  }
  CHECK(text(server->closeReason()).find("the peer does not read") != std::string::npos);

  // Its abort cannot be written either: the grace bounds how long that may take.
  auto ended = server->onDisconnect();
  settle(loop);
  CHECK_FALSE(ended.poll(loop.waitScope));
  loop.advance(1 * kj::SECONDS);
  CHECK(ended.poll(loop.waitScope));
}

TEST_CASE("messages above the traversal limit are refused, long replies are not") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  auto request = pair.process.bigRequest();
  request.setOctets(8 << 20);
  auto reply = request.send();
  settle(loop);
  CHECK(reply.wait(loop.waitScope).getBytes().size() == 8 << 20);

  auto tooBig = pair.process.holdRequest();
  tooBig.initBytes((1 << 20) + 8);
  auto refused = tooBig.send().ignoreResult();
  settle(loop);
  CHECK_THROWS(refused.wait(loop.waitScope));
  CHECK(text(pair.server->closeReason()).find("too large") != std::string::npos);
}

TEST_CASE("a connection that has become busy reads the same and refuses the same") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  // More than what is read without a buffer.
  for (int i = 0; i < 100; ++i) {
    auto request = pair.process.bigRequest();
    request.setOctets(i);
    auto reply = request.send();
    settle(loop);
    REQUIRE(reply.wait(loop.waitScope).getBytes().size() == static_cast<size_t>(i));
  }
  auto tooBig = pair.process.holdRequest();
  tooBig.initBytes((1 << 20) + 8);
  auto refused = tooBig.send().ignoreResult();
  settle(loop);
  CHECK_THROWS(refused.wait(loop.waitScope));
  CHECK(text(pair.server->closeReason()).find("exceeds size limit") != std::string::npos);
}

TEST_CASE("a turn hands over 16 messages, then timers and sockets run") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  for (int i = 0; i < 100; ++i) {
    pair.process.pingRequest().send().ignoreResult().detach([](kj::Exception&&) {});
  }

  // The clock stands still, so each zero delay ends a turn; the first message is the bootstrap.
  loop.waitScope.poll();
  CHECK(state.pings == 15);
  loop.advance(0 * kj::NANOSECONDS);
  loop.waitScope.poll();
  CHECK(state.pings == 31);
  loop.advance(0 * kj::NANOSECONDS);
  loop.waitScope.poll();
  CHECK(state.pings == 47);
}

kj::Promise<void> tick(kj::Timer& timer, uint32_t& ticks) {
  for (;;) {
    co_await timer.afterDelay(1 * kj::NANOSECONDS);
    ++ticks;
  }
}

TEST_CASE("a flood of messages does not hold up a timer") {
  IoLoop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state, loop.io.provider->newTwoWayPipe());
  uint32_t ticks = 0;
  auto ticking = tick(loop.timer, ticks);
  kj::Vector<kj::Promise<void>> pings;
  for (int i = 0; i < 3000; ++i) {
    pings.add(pair.process.pingRequest().send().ignoreResult());
  }
  kj::joinPromises(pings.releaseAsArray()).wait(loop.waitScope);
  CHECK(state.pings == 3000);
  CHECK(ticks >= 3000 / 16);  // one turn of the timers for every 16 messages, or more
}

TEST_CASE("fragmented reads, one octet at a time") {
  Loop loop;
  ProbeState state;
  auto pipe = kj::newTwoWayPipe();
  pipe.ends[0] = kj::heap<test::OneByteStream>(kj::mv(pipe.ends[0]));
  pipe.ends[1] = kj::heap<test::OneByteStream>(kj::mv(pipe.ends[1]));
  ProbePair pair(loop.timer, state, kj::mv(pipe));
  auto wait = pair.process.selfRequest().send().getProcess().waitRequest().send();
  auto kill = pair.process.killRequest().send().ignoreResult();
  settle(loop);
  kill.wait(loop.waitScope);
  CHECK(wait.wait(loop.waitScope).getCode() == 9);
}

TEST_CASE("a connection cut at any octet ends both sides and leaves no call behind") {
  for (size_t cutAfter: {size_t(0), size_t(1), size_t(7), size_t(8), size_t(60), size_t(200),
                         size_t(400), size_t(1000)}) {
    Loop loop;
    ProbeState state;
    auto pipe = kj::newTwoWayPipe();
    pipe.ends[1] = kj::heap<test::CutStream>(kj::mv(pipe.ends[1]), cutAfter);
    ProbePair pair(loop.timer, state, kj::mv(pipe));
    kj::Vector<kj::Promise<void>> calls;
    uint32_t failed = 0;
    for (int i = 0; i < 10; ++i) {
      auto request = pair.process.holdRequest();
      request.initBytes(300);
      calls.add(request.send()
                    .ignoreResult()
                    .catch_([&](kj::Exception&& e) {
                      if (e.getType() == kj::Exception::Type::DISCONNECTED) ++failed;
                    })
                    .eagerlyEvaluate(nullptr));
    }
    settle(loop);
    loop.advance(2 * kj::SECONDS);
    settle(loop);
    INFO("cut after " << cutAfter);
    CHECK(failed == 10);
    CHECK(pair.server->onDisconnect().poll(loop.waitScope));
    CHECK(text(pair.server->closeReason()) != "(none)");
  }
}

TEST_CASE("dropping the server cuts the client at once; bad octets end a connection") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  auto wait = pair.process.waitRequest().send().ignoreResult();
  settle(loop);
  auto ended = pair.server->onDisconnect();
  pair.server = nullptr;
  settle(loop);
  CHECK(state.cancelled == 1);
  CHECK_THROWS(wait.wait(loop.waitScope));
  CHECK(ended.poll(loop.waitScope));

  auto pipe = kj::newTwoWayPipe();
  auto server = RpcConnection::serve(loop.timer, kj::mv(pipe.ends[0]), test::probeBootstrap(state));
  auto garbage = pipe.ends[1]->write("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 26);
  settle(loop);
  loop.advance(1 * kj::SECONDS);
  CHECK(server->onDisconnect().poll(loop.waitScope));
  CHECK(text(server->closeReason()) != "(none)");
}

TEST_CASE("a peer that aborts and then stays silent is let go after the grace") {
  Loop loop;
  ProbeState state;
  auto pipe = kj::newTwoWayPipe();
  auto server = RpcConnection::serve(loop.timer, kj::mv(pipe.ends[0]), test::probeBootstrap(state));
  pipe.ends[1]->shutdownWrite();  // half-closed, never reads
  loop.waitScope.poll();
  CHECK(text(server->closeReason()) == "the peer closed the connection");
  loop.advance(1 * kj::SECONDS);
  CHECK(server->onDisconnect().poll(loop.waitScope));
}

TEST_CASE("a generated streaming client gets a window of 1 MiB over an in-memory pipe") {
  Loop loop;
  ProbeState state;
  ProbePair pair(loop.timer, state);
  auto sink = pair.process.sinkRequest().send().getSink();
  uint64_t sent = 0;
  kj::Promise<void> pending = kj::READY_NOW;
  while (pending.poll(loop.waitScope) && sent < (4 << 20)) {
    auto request = sink.writeRequest();
    request.initBytes(16 * 1024);
    pending = request.send();
    sent += 16 * 1024;
    settle(loop, 10);
  }
  CHECK(sent >= (1 << 20) - 16 * 1024);
  CHECK(sent <= (1 << 20) + 64 * 1024);
}

}  // namespace
}  // namespace capstan
