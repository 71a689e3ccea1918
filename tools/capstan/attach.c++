#include "base/async.h"
#include "client/standard-streams.h"
#include "domain/process.h"
#include "tools/capstan/run.h"

#include <kj/async-unix.h>

#include <csignal>
#include <cstdio>
#include <unistd.h>

namespace capstan::cli {

namespace {

constexpr kj::Duration SECOND_INTERRUPT = 2 * kj::SECONDS;
// From the cut of a delivery until the daemon has told that the process is lost.
constexpr kj::Duration LOSS_TOLD = 2 * kj::SECONDS;

using ExitResponse = capnp::Response<rpc::Instance::WaitResults>;

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

// The process's exit code once all its output is written; null when our own reader has gone away.
kj::Promise<Result<kj::Maybe<int>>> finish(kj::Timer& timer, rpc::Instance::Client instance,
                                           OutputTarget& output) {
  auto exit = instance.waitRequest().send();
  kj::Maybe<kj::Exception> failure;
  try {
    co_await output.onEnd();
  } catch (const kj::Exception& exception) {
    failure = kj::Exception(exception);
  }
  KJ_IF_MAYBE (exception, failure) {
    if (exception->getType() != kj::Exception::Type::DISCONNECTED) {
      kj::throwFatalException(kj::mv(*exception));
    }
    if (output.readerGone()) {
      // As a local process would find out at its next write.
      auto request = instance.signalRequest();
      request.setName("PIPE");
      co_await request.send();
      co_return kj::Maybe<int>(nullptr);
    }
    // The delivery was cut. If that is because the process is lost, its end says more.
    auto tooLate = timer.afterDelay(LOSS_TOLD).then([]() -> ExitResponse {
      kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "the delivery of the output was cut"));
    });
    auto response = co_await exit.exclusiveJoin(kj::mv(tooLate));
    KJ_IF_MAYBE (problem, readProblem(response.getError())) {
      co_return kj::mv(*problem);
    }
    kj::throwFatalException(kj::mv(*exception));
  }
  auto response = co_await exit;
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return kj::mv(*problem);
  }
  auto status = response.getExit();
  switch (status.which()) {
    case rpc::ExitStatus::CODE:
      co_return kj::Maybe<int>(status.getCode());
    case rpc::ExitStatus::SIGNAL:
      KJ_IF_MAYBE (number, signalNumber(status.getSignal())) {
        co_return kj::Maybe<int>(128 + *number);
      }
      break;
    case rpc::ExitStatus::UNKNOWN:
      break;
  }
  co_return kj::Maybe<int>(CAPSTAN_FAILED);
}

}  // namespace

int attach(Context& context, rpc::Instance::Client instance,
           kj::Promise<kj::Maybe<rpc::ByteStream::Client>> stdinStream, OutputTarget& output,
           kj::Function<kj::Promise<void>()> onStop) {
  auto input = openInput(*context.io.lowLevelProvider, context.timer(), STDIN_FILENO);
  auto side = feed(*input, kj::mv(stdinStream))
                  .exclusiveJoin(watchInterrupts(context.io, instance, onStop))
                  .then([]() -> Result<kj::Maybe<int>> { return kj::Maybe<int>(nullptr); });
  auto ended = context.wait(finish(context.timer(), instance, output).exclusiveJoin(kj::mv(side)));
  if (output.lost() > 0) {
    std::fprintf(stderr, "capstan: %llu bytes of output were no longer kept\n",
                 static_cast<unsigned long long>(output.lost()));
  }
  KJ_IF_MAYBE (problem, ended.tryGet<Problem>()) {
    fail(kj::mv(*problem));
  }
  KJ_IF_MAYBE (number, ended.get<kj::Maybe<int>>()) {
    return *number;
  }
  return 128 + SIGPIPE;
}

}  // namespace capstan::cli
