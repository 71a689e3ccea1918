#include "core/process-actor.h"

#include "base/async.h"

namespace capstan {

ProcessActor::ProcessActor(Services& services, kj::Own<AgentInstance> instanceParam,
                           kj::Array<kj::String> command)
    : services(services),
      instance(kj::mv(instanceParam)),
      words(kj::mv(command)),
      endFork(nullptr) {
  auto end = kj::newPromiseAndFulfiller<void>();
  finish = kj::mv(end.fulfiller);
  endFork = end.promise.fork();
}

ProcessActor::~ProcessActor() noexcept(false) {}

kj::Promise<Outcome> ProcessActor::start() {
  auto self = kj::addRef(*this);
  auto started = co_await instance->start();
  if (started.is<Problem>()) co_return kj::mv(started.get<Problem>());
  pid = started.get<int>();
  startMs = services.now();
  watching = watch().eagerlyEvaluate(nullptr);
  co_return nullptr;
}

void ProcessActor::takeOver(int itsPid, UnixMs startedAt) {
  pid = itsPid;
  startMs = startedAt;
  watching = watch().eagerlyEvaluate(nullptr);
}

kj::Promise<void> ProcessActor::watch() {
  // A single answer that fails is no end of the process.
  constexpr int TRIES = 5;
  constexpr kj::Duration PAUSE = 1 * kj::SECONDS;
  for (int left = TRIES; exitStatus == nullptr && loss == nullptr; --left) {
    auto outcome = co_await instance->wait();
    if (outcome.is<ExitStatus>()) {
      exitStatus = kj::mv(outcome.get<ExitStatus>());
      break;
    }
    // The link's own end may be told a moment later.
    auto waited = co_await within(services.timer, PAUSE, instance->link().onLost());
    if (waited == Waited::TOO_LATE && left > 1) continue;
    loss = Problem(ErrorCode::INSTANCE_LOST, kj::str("the process's helper is gone"))
               .because(kj::str(outcome.get<Problem>()))
               .from("agentctl", kj::String());
  }
  finish->fulfill();
}

kj::Promise<void> ProcessActor::onEnd() { return endFork.addBranch(); }

kj::Promise<Result<ExitStatus>> ProcessActor::wait() {
  auto self = kj::addRef(*this);
  co_await onEnd();
  KJ_IF_MAYBE (status, exitStatus) {
    co_return status->clone();
  }
  co_return KJ_ASSERT_NONNULL(loss).clone();
}

kj::Promise<Outcome> ProcessActor::signal(kj::String name) {
  if (signalNumber(name) == nullptr) {
    return Outcome(Problem(ErrorCode::INVALID_ARGUMENT, kj::str("no signal is named '", name, "'"))
                       .at(kj::str("name"))
                       .advise(kj::str("use a name without SIG, such as TERM or INT")));
  }
  return instance->signal(kj::mv(name));
}

kj::Promise<Outcome> ProcessActor::resize(uint16_t columns, uint16_t rows) {
  return instance->resize(columns, rows);
}

kj::Promise<Result<kj::Own<OutputReading>>> ProcessActor::output(OutputRequest what,
                                                                 kj::Own<OutputReceiver> receiver) {
  return instance->link().readOutput(kj::str(id()), what, kj::mv(receiver));
}

kj::Promise<Result<kj::Own<StdinWriter>>> ProcessActor::openStdin(TakeOver takeOver) {
  return instance->link().openStdin(kj::str(id()), takeOver);
}

kj::Promise<Result<uint32_t>> ProcessActor::stop(kj::Duration grace, StopMode mode) {
  auto self = kj::addRef(*this);
  auto stopped = co_await instance->stop(grace, mode);
  if (stopped.is<Problem>() || stopped.get<uint32_t>() > 0 || !started()) {
    co_return kj::mv(stopped);
  }
  auto waited = co_await within(services.timer, services.limits.deadlines.control, onEnd());
  if (waited == Waited::TOO_LATE) {
    co_return Problem(ErrorCode::TIMEOUT, kj::str("the helper does not report the process's end"))
        .from("agentctl", kj::String())
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  co_return kj::mv(stopped);
}

kj::Promise<Outcome> ProcessActor::discard() {
  auto self = kj::addRef(*this);
  // Also without a pid: a start whose answer was lost may have made a process, and the helper
  // deletes only what has ended.
  auto stopped = co_await instance->stop(0 * kj::SECONDS, StopMode::FORCED);
  if (stopped.is<Problem>()) co_return kj::mv(stopped.get<Problem>());
  auto removed = co_await instance->link().remove(kj::str(id()));
  KJ_IF_MAYBE (problem, removed) {
    if (problem->code != ErrorCode::NOT_FOUND) co_return kj::mv(*problem);
  }
  co_return nullptr;
}

}  // namespace capstan
