#include "base/async.h"
#include "client/stdio.h"
#include "domain/process.h"
#include "tools/capstan/run.h"

#include <kj/async-unix.h>

#include <csignal>
#include <cstdio>
#include <unistd.h>

namespace capstan::cli {

namespace {

constexpr kj::Duration SECOND_INTERRUPT = 2 * kj::SECONDS;

// First Ctrl-C: SIGINT to the process. A second one within 2 s: stop.
kj::Promise<void> watchInterrupts(kj::AsyncIoContext& io, rpc::Instance::Client instance,
                                  kj::Function<kj::Promise<void>()>& onStop) {
  auto& timer = io.provider->getTimer();
  kj::Maybe<kj::TimePoint> last;
  for (;;) {
    co_await io.unixEventPort.onSignal(SIGINT);
    bool again = false;
    KJ_IF_MAYBE (before, last) {
      again = timer.now() - *before <= SECOND_INTERRUPT;
    }
    last = timer.now();
    if (again) {
      co_await onStop();
    } else {
      auto request = instance.signalRequest();
      request.setName("INT");
      co_await request.send();
    }
  }
}

kj::Promise<void> feed(kj::AsyncInputStream& input,
                       kj::Promise<kj::Maybe<rpc::ByteStream::Client>> granted) {
  auto stream = co_await granted;
  KJ_IF_MAYBE (peer, stream) {
    co_await feedStdin(input, kj::mv(*peer));
  }
  // What waits for the process must not end with its stdin.
  co_await kj::Promise<void>(kj::NEVER_DONE);
}

// The process's exit code once all its output is written, 128 + SIGPIPE when our own reader has
// gone away, or why the exit is not known. A Failure must not be thrown in a coroutine: kj would
// make it an exception without a text.
using Ended = Result<int>;
kj::Promise<Ended> finish(rpc::Instance::Client instance, OutputTarget& output) {
  auto exit = instance.waitRequest().send();
  bool readerGone = false;
  try {
    co_await output.onEnd();
  } catch (const kj::Exception& exception) {
    if (!output.readerGone() || exception.getType() != kj::Exception::Type::DISCONNECTED) throw;
    readerGone = true;
  }
  if (readerGone) {
    // As a local process would find out at its next write.
    auto request = instance.signalRequest();
    request.setName("PIPE");
    co_await request.send();
    co_return 128 + SIGPIPE;
  }
  auto response = co_await exit;
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return Ended(kj::mv(*problem));
  }
  auto status = response.getExit();
  switch (status.which()) {
    case rpc::ExitStatus::CODE:
      co_return status.getCode();
    case rpc::ExitStatus::SIGNAL:
      KJ_IF_MAYBE (number, signalNumber(status.getSignal())) {
        co_return 128 + *number;
      }
      break;
    case rpc::ExitStatus::UNKNOWN:
      break;
  }
  co_return CAPSTAN_FAILED;
}

}  // namespace

int attach(Context& context, rpc::Instance::Client instance,
           kj::Promise<kj::Maybe<rpc::ByteStream::Client>> stdinStream, OutputTarget& output,
           kj::Function<kj::Promise<void>()> onStop) {
  auto input = openInput(*context.io.lowLevelProvider, context.timer(), STDIN_FILENO);
  auto side = feed(*input, kj::mv(stdinStream))
                  .exclusiveJoin(watchInterrupts(context.io, instance, onStop))
                  .then([]() -> Ended { return CAPSTAN_FAILED; });
  auto code = context.wait(finish(instance, output).exclusiveJoin(kj::mv(side)));
  if (output.lost() > 0) {
    std::fprintf(stderr, "capstan: %llu bytes of output were no longer kept\n",
                 static_cast<unsigned long long>(output.lost()));
  }
  if (code.is<Problem>()) fail(kj::mv(code.get<Problem>()));
  return code.get<int>();
}

}  // namespace capstan::cli
