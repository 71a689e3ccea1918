#include "core/place-process.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr kj::Duration SHOW_INTERVAL = 500 * kj::MILLISECONDS;
constexpr size_t WRITE_BYTES = 64u << 10;
// The end of the output comes over another connection than the exit, but at once.
constexpr kj::Duration OUTPUT_END = 5 * kj::SECONDS;
// How long after a failed write the end of the process explains it.
constexpr kj::Duration EXIT_AFTER_WRITE = 2 * kj::SECONDS;

class StepOutput final: public OutputReceiver {
public:
  StepOutput(kj::Own<ShownStep> step, kj::Own<kj::PromiseFulfiller<void>> ended)
      : step(kj::mv(step)), ended(kj::mv(ended)) {}
  // Nothing comes after a lost connection either.
  ~StepOutput() noexcept(false) { ended->fulfill(); }
  KJ_DISALLOW_COPY_AND_MOVE(StepOutput);

  kj::Promise<void> write(uint64_t, OutputStream, kj::ArrayPtr<const kj::byte> bytes) override {
    step->output(bytes);
    return kj::READY_NOW;
  }
  kj::Promise<void> gap(uint64_t from, uint64_t to) override {
    step->gap(to - from);
    return kj::READY_NOW;
  }
  kj::Promise<void> end(uint64_t) override {
    ended->fulfill();
    return kj::READY_NOW;
  }

private:
  kj::Own<ShownStep> step;
  kj::Own<kj::PromiseFulfiller<void>> ended;
};

kj::Promise<Outcome> writeAll(kj::Own<AgentInstance> instance, kj::String input) {
  auto opened = co_await instance->link().openStdin(kj::str(instance->id()), TakeOver::NO);
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  auto writer = kj::mv(opened.get<kj::Own<StdinWriter>>());
  auto rest = input.asBytes();
  while (rest.size() > 0) {
    auto piece = kj::min(rest.size(), WRITE_BYTES);
    co_await writer->write(rest.slice(0, piece));
    rest = rest.slice(piece, rest.size());
  }
  co_await writer->end();
  co_return nullptr;
}

// Resolves only when the input cannot be had and the process does not end for it.
kj::Promise<Result<ExitStatus>> feed(kj::Timer& timer, kj::Own<AgentInstance> instance,
                                     kj::String input) {
  auto outcome =
      co_await writeAll(kj::mv(instance), kj::mv(input)).catch_([](kj::Exception&& e) -> Outcome {
        return asProblem(e);
      });
  KJ_IF_MAYBE (problem, outcome) {
    co_await timer.afterDelay(EXIT_AFTER_WRITE);
    co_return kj::mv(*problem);
  }
  co_return co_await kj::Promise<Result<ExitStatus>>(kj::NEVER_DONE);
}

kj::Promise<Result<ExitStatus>> drive(kj::Timer& timer, kj::Own<AgentInstance> instance,
                                      PlaceProcess process, kj::Own<ShownStep> step) {
  InstanceConfig config;
  config.command = kj::mv(process.command);
  config.variables = kj::mv(process.variables);
  config.workingDirectory = kj::mv(process.directory);
  KJ_IF_MAYBE (problem, co_await instance->configure(kj::mv(config))) {
    co_return kj::mv(*problem);
  }
  auto ended = kj::newPromiseAndFulfiller<void>();
  auto opened = co_await instance->link().readOutput(
      kj::mv(process.id), OutputRequest{0, true, true},
      kj::heap<StepOutput>(kj::mv(step), kj::mv(ended.fulfiller)));
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  auto reading = kj::mv(opened.get<kj::Own<OutputReading>>());
  auto started = co_await instance->start();
  if (started.is<Problem>()) co_return kj::mv(started.get<Problem>());
  auto result = co_await instance->wait().exclusiveJoin(
      feed(timer, kj::addRef(*instance), kj::mv(process.input)));
  // A delivery that broke off shows what it had; the exit is what counts.
  co_await within(timer, OUTPUT_END, kj::mv(ended.promise));
  co_return kj::mv(result);
}

kj::Promise<Outcome> discard(kj::Own<AgentInstance> instance) {
  // Also when it was not started: the answer to a start may have been lost.
  auto stopped = co_await instance->stop(0 * kj::SECONDS, StopMode::FORCED);
  if (stopped.is<Problem>()) co_return kj::mv(stopped.get<Problem>());
  if (stopped.get<uint32_t>() > 0) {
    co_return Problem(ErrorCode::INTERNAL,
                      kj::str(stopped.get<uint32_t>(), " processes could not be ended"));
  }
  auto removed = co_await instance->link().remove(kj::str(instance->id()));
  KJ_IF_MAYBE (problem, removed) {
    if (problem->code != ErrorCode::NOT_FOUND) co_return kj::mv(*problem);
  }
  co_return nullptr;
}

}  // namespace

// ---- the step

ShownStep::ShownStep(kj::Timer& timer, const kj::Clock& clock, ProgressSink& sink, uint16_t index,
                     uint16_t total, kj::StringPtr name, kj::ArrayPtr<const kj::String> secrets)
    : timer(timer),
      clock(clock),
      sink(sink),
      index(index),
      total(total),
      tail(secrets, STEP_OUTPUT_BYTES),
      shownAt(timer.now()) {
  step.name = kj::str(name);
  show();
}

void ShownStep::begin(kj::String command) {
  step.command = kj::mv(command);
  step.status = PrepareStep::Status::RUNNING;
  if (step.startedAt == 0) step.startedAt = now();
  show();
}

void ShownStep::output(kj::ArrayPtr<const kj::byte> bytes) {
  tail.add(bytes);
  showSoon();
}

void ShownStep::gap(uint64_t octets) {
  tail.gap(octets);
  showSoon();
}

void ShownStep::show() {
  KJ_IF_MAYBE (to, sink) {
    shownAt = timer.now();
    step.output = tail.text();
    to->report(step, index, total);
  }
}

void ShownStep::showSoon() {
  if (waiting || sink == nullptr || step.status != PrepareStep::Status::RUNNING) return;
  waiting = true;
  later = timer.atTime(shownAt + SHOW_INTERVAL)
              .then([this]() {
                waiting = false;
                if (step.status == PrepareStep::Status::RUNNING) show();
              })
              .eagerlyEvaluate(nullptr);
}

void ShownStep::fail(const Problem& problem) {
  step.error = kj::str(problem);
  finish(PrepareStep::Status::FAILED);
}

void ShownStep::warn(kj::String warning, const Problem& problem) {
  step.warning = kj::mv(warning);
  step.warningDetail = kj::str(problem);
  finish(PrepareStep::Status::COMPLETED);
}

void ShownStep::finish(PrepareStep::Status status) {
  tail.finish();
  step.status = status;
  step.endedAt = now();
  show();
}

void ShownStep::hide() { sink = nullptr; }

// ---- the process

kj::Promise<Result<ExitStatus>> runInPlace(kj::Timer& timer, kj::Own<AgentLink> link,
                                           PlaceProcess process, kj::Own<ShownStep> step,
                                           Deadline deadline, kj::Promise<void> cancelled) {
  InstanceSpec spec;
  spec.id = kj::str(process.id);
  spec.environmentId = kj::str(process.environmentId);
  spec.taskId = kj::str(process.taskId);
  spec.ephemeral = true;
  spec.pauseWhenFull = true;
  auto created = co_await link->create(kj::mv(spec));
  if (created.is<Problem>()) co_return kj::mv(created.get<Problem>());
  auto instance = kj::mv(created.get<kj::Own<AgentInstance>>());

  auto work = drive(timer, kj::addRef(*instance), kj::mv(process), kj::mv(step))
                  .catch_([](kj::Exception&& e) -> Result<ExitStatus> {
                    return asProblem(e).from("agentctl", kj::String());
                  })
                  .exclusiveJoin(cancelled.then([]() -> Result<ExitStatus> {
                    return Problem(ErrorCode::CANCELLED, kj::str("the preparation was cancelled"))
                        .retryable(RetryHint::SAME_REQUEST_LATER);
                  }));
  KJ_IF_MAYBE (when, deadline.when()) {
    work = work.exclusiveJoin(timer.atTime(*when).then([]() -> Result<ExitStatus> {
      return Problem(ErrorCode::TIMEOUT, kj::str("the time for it is over"));
    }));
  }
  auto result = co_await work;
  auto id = kj::str(instance->id());
  KJ_IF_MAYBE (problem, co_await discard(kj::mv(instance))) {
    // A lost helper ends it by itself; anything else is worth a line.
    if (problem->code != ErrorCode::UNREACHABLE) {
      KJ_LOG(WARNING, "could not discard a process, ignoring", id, *problem);
    }
  }
  co_return kj::mv(result);
}

}  // namespace capstan
