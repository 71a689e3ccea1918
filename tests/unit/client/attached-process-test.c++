#include "client/attached-process.h"

#include "client/lines.h"
#include "support/test.h"

#include <string>

namespace capstan {
namespace {

using test::Loop;

// What the daemon's side of a process got and can do.
struct Process {
  std::string input;
  bool inputEnded = false;
  bool refuseStdin = false;
  kj::Maybe<rpc::OutputSink::Client> sink;
  kj::Own<kj::PromiseFulfiller<int>> exit;
  uint64_t offset = 0;

  kj::Promise<void> say(rpc::OutputStream stream, kj::StringPtr text) {
    auto request = KJ_ASSERT_NONNULL(sink).writeRequest();
    request.setOffset(offset);
    request.setStream(stream);
    request.setBytes(text.asBytes());
    offset += text.size();
    return request.send();
  }
  kj::Promise<void> end() {
    auto request = KJ_ASSERT_NONNULL(sink).endRequest();
    request.setOffset(offset);
    return request.send().ignoreResult();
  }
};

class StdinServer final: public rpc::ByteStream::Server {
public:
  explicit StdinServer(Process& process): process(process) {}
  kj::Promise<void> write(WriteContext context) override {
    auto bytes = context.getParams().getBytes();
    process.input.append(bytes.asChars().begin(), bytes.size());
    return kj::READY_NOW;
  }
  kj::Promise<void> end(EndContext) override {
    process.inputEnded = true;
    return kj::READY_NOW;
  }

private:
  Process& process;
};

class SubscriptionServer final: public rpc::Subscription::Server {};

class InstanceServer final: public rpc::Instance::Server {
public:
  explicit InstanceServer(Process& process): process(process) {}
  kj::Promise<void> output(OutputContext context) override {
    CHECK(context.getParams().getFollow());
    CHECK(context.getParams().getOffset() == 0);
    process.sink = context.getParams().getSink();
    context.getResults().setSubscription(kj::heap<SubscriptionServer>());
    return kj::READY_NOW;
  }
  kj::Promise<void> stdin(StdinContext context) override {
    if (process.refuseStdin) {
      auto error = context.getResults().initError();
      error.setCode(ErrorCode::WRONG_STATE);
      error.setMessage("another client writes");
    } else {
      context.getResults().setStdin(kj::heap<StdinServer>(process));
    }
    return kj::READY_NOW;
  }
  kj::Promise<void> wait(WaitContext context) override {
    auto pair = kj::newPromiseAndFulfiller<int>();
    process.exit = kj::mv(pair.fulfiller);
    return pair.promise.then(
        [context](int code) mutable { context.getResults().initExit().setCode(code); });
  }

private:
  Process& process;
};

kj::Own<AttachedProcess> attached(Loop& loop, Process& process) {
  auto result = AttachedProcess::attach(kj::heap<InstanceServer>(process)).wait(loop.waitScope);
  return kj::mv(result.get<kj::Own<AttachedProcess>>());
}

}  // namespace

TEST_CASE("a dialogue with an attached process") {
  Loop loop;
  Process process;
  auto client = attached(loop, process);
  LineReader lines(client->output());

  client->input().write("question\n", 9).wait(loop.waitScope);
  auto answer = lines.next();
  CHECK_FALSE(answer.poll(loop.waitScope));
  CHECK(process.input == "question\n");
  process.say(rpc::OutputStream::STDERR, "thinking\n").wait(loop.waitScope);
  CHECK_FALSE(answer.poll(loop.waitScope));
  process.say(rpc::OutputStream::STDOUT, "answer\n").wait(loop.waitScope);
  CHECK(KJ_ASSERT_NONNULL(answer.wait(loop.waitScope)) == "answer");
  CHECK(client->errors() == "thinking\n");

  client->endInput().wait(loop.waitScope);
  CHECK(process.inputEnded);
  auto last = lines.next();
  process.end().wait(loop.waitScope);
  CHECK(last.wait(loop.waitScope) == nullptr);
  CHECK(client->errors() == "thinking\n");
  CHECK(client->lost() == 0);

  auto exit = client->exit();
  CHECK_FALSE(exit.poll(loop.waitScope));
  process.exit->fulfill(3);
  auto status = exit.wait(loop.waitScope);
  CHECK(kj::str(status.get<ProcessExit>()) == "exit code 3");
  CHECK_FALSE(status.get<ProcessExit>().succeeded());
}

TEST_CASE("an attached process whose stdin is taken is a Problem") {
  Loop loop;
  Process process;
  process.refuseStdin = true;
  auto result = AttachedProcess::attach(kj::heap<InstanceServer>(process)).wait(loop.waitScope);
  REQUIRE(result.is<Problem>());
  CHECK(result.get<Problem>().code == ErrorCode::WRONG_STATE);
  CHECK(result.get<Problem>().message == "another client writes");
}

TEST_CASE("a reader that waits holds the process, and dropping it fails the delivery") {
  Loop loop;
  Process process;
  auto client = attached(loop, process);
  auto said = process.say(rpc::OutputStream::STDOUT, "unread");
  CHECK_FALSE(said.poll(loop.waitScope));
  client = nullptr;
  CHECK_THROWS_AS(said.wait(loop.waitScope), kj::Exception);
}

TEST_CASE("a delivery that is cut is no end of file") {
  Loop loop;
  Process process;
  auto client = attached(loop, process);
  LineReader lines(client->output());
  auto line = lines.next();
  CHECK_FALSE(line.poll(loop.waitScope));
  process.sink = nullptr;
  kj::Maybe<kj::Exception> failure;
  try {
    line.wait(loop.waitScope);
  } catch (const kj::Exception& e) {
    failure = kj::Exception(e);
  }
  CHECK(KJ_ASSERT_NONNULL(failure).getType() == kj::Exception::Type::DISCONNECTED);
}

TEST_CASE("an output target tells a cut delivery from a reader that is gone") {
  Loop loop;
  SECTION("cut") {
    auto target = kj::refcounted<OutputTarget>(nullptr, nullptr);
    auto ended = target->onEnd();
    kj::Maybe<rpc::OutputSink::Client> first = target->sink(), second = target->sink();
    first = nullptr;
    CHECK_FALSE(ended.poll(loop.waitScope));
    second = nullptr;
    CHECK_THROWS_AS(ended.wait(loop.waitScope), kj::Exception);
    CHECK_FALSE(target->readerGone());
  }
  SECTION("reader gone") {
    auto pipe = kj::newOneWayPipe();
    auto target = kj::refcounted<OutputTarget>(kj::mv(pipe.out), nullptr);
    pipe.in = nullptr;
    Process process;
    process.sink = target->sink();
    CHECK_THROWS_AS(process.say(rpc::OutputStream::STDOUT, "x").wait(loop.waitScope),
                    kj::Exception);
    CHECK_THROWS_AS(target->onEnd().wait(loop.waitScope), kj::Exception);
    CHECK(target->readerGone());
  }
}

TEST_CASE("collect keeps both streams apart and within the bound") {
  Loop loop;
  Process process;
  auto collecting = collect(kj::heap<InstanceServer>(process), 4);
  CHECK_FALSE(collecting.poll(loop.waitScope));
  process.say(rpc::OutputStream::STDOUT, "123456").wait(loop.waitScope);
  process.say(rpc::OutputStream::STDERR, "err").wait(loop.waitScope);
  process.end().wait(loop.waitScope);
  CHECK_FALSE(collecting.poll(loop.waitScope));
  process.exit->fulfill(0);
  auto result = collecting.wait(loop.waitScope);
  auto& collected = result.get<Collected>();
  CHECK(collected.out == "3456");
  CHECK(collected.err == "err");
  CHECK(collected.dropped == 2);
  CHECK(collected.exit.succeeded());
}

TEST_CASE("collect fails when the delivery is cut") {
  Loop loop;
  Process process;
  auto collecting = collect(kj::heap<InstanceServer>(process));
  CHECK_FALSE(collecting.poll(loop.waitScope));
  process.sink = nullptr;
  CHECK_THROWS_AS(collecting.wait(loop.waitScope), kj::Exception);
}

}  // namespace capstan
