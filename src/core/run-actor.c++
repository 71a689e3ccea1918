#include "core/run-actor.h"

#include "base/backoff.h"
#include "domain/outcomes.h"

#include <kj/debug.h>

namespace capstan {

namespace {

RunOutcome outcomeOf(RunOutcome::Kind kind, UnixMs at) {
  RunOutcome outcome;
  outcome.kind = kind;
  outcome.at = at;
  return outcome;
}

RunOutcome clone(const RunOutcome& outcome) {
  RunOutcome result;
  result.kind = outcome.kind;
  result.at = outcome.at;
  KJ_IF_MAYBE (exit, outcome.exit) {
    result.exit = exit->clone();
  }
  KJ_IF_MAYBE (problem, outcome.error) {
    result.error = problem->clone();
  }
  return result;
}

}  // namespace

RunActor::RunActor(Services& services, kj::Own<EnvironmentLedger> ledgerParam,
                   kj::Own<ChangeHub> changesParam, const RunRecord& record,
                   kj::Own<ProcessActor> process)
    : services(services),
      ledger(kj::mv(ledgerParam)),
      changes(kj::mv(changesParam)),
      session(kj::str(record.sessionId)),
      run(kj::str(record.id)),
      requestId(kj::heapArray<kj::byte>(record.requestId)),
      createdAt(record.createdAt),
      command(KJ_MAP(word, process->command()) { return kj::str(word); }),
      live(kj::mv(process)),
      talk(ConversationHealth::FRESH) {
  prepareEnd();
}

RunActor::RunActor(Services& services, kj::Own<EnvironmentLedger> ledgerParam,
                   kj::Own<ChangeHub> changesParam, const RunRecord& record)
    : services(services),
      ledger(kj::mv(ledgerParam)),
      changes(kj::mv(changesParam)),
      session(kj::str(record.sessionId)),
      run(kj::str(record.id)),
      requestId(kj::heapArray<kj::byte>(record.requestId)),
      createdAt(record.createdAt),
      command(KJ_MAP(word, record.spec.command) { return kj::str(word); }),
      startedAt(record.runningAt) {
  prepareEnd();
  KJ_IF_MAYBE (outcome, record.outcome) {
    show(*outcome);
  } else {
    current = SessionState::RECOVERING;
  }
}

RunActor::~RunActor() noexcept(false) {}

void RunActor::prepareEnd() {
  auto pair = kj::newPromiseAndFulfiller<void>();
  finish = kj::mv(pair.fulfiller);
  settled = pair.promise.fork();
}

bool RunActor::isLive() const {
  return current == SessionState::RUNNING || current == SessionState::STARTING || isUnsettled();
}

void RunActor::losesSight() {
  if (ended || settling) return;
  KJ_IF_MAYBE (process, live) {
    if ((*process)->exit() != nullptr) return;  // How it ended is being written down.
  }
  if (current == SessionState::RUNNING) current = SessionState::RECONNECTING;
  // A process that was not started yet ends with the helper, or is ended when that is found again.
  if (current == SessionState::STARTING) current = SessionState::RECOVERING;
  live = nullptr;
  ending = nullptr;
}

Result<kj::Own<ProcessActor>> RunActor::process() {
  KJ_IF_MAYBE (present, live) {
    return kj::addRef(**present);
  }
  if (isUnsettled()) {
    return Problem(ErrorCode::RECOVERING, kj::str("the session is being recovered"))
        .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
  }
  if (current == SessionState::FAILED && startedAt == 0) {
    auto problem = Problem(ErrorCode::WRONG_STATE,
                           kj::str("the run was never started: it has no process and no output"));
    KJ_IF_MAYBE (why, lastError) {
      problem.cause = kj::str(*why);
    }
    return kj::mv(problem);
  }
  return Problem(ErrorCode::INSTANCE_LOST,
                 kj::str("the run's process and its output are gone with the helper that ran it"))
      .advise(kj::str("capstan session show ", session, " tells how it ended"));
}

SessionStatus RunActor::status() const {
  SessionStatus status;
  status.id = kj::str(session);
  status.state = current;
  status.runId = kj::str(run);
  status.command = KJ_MAP(word, command) { return kj::str(word); };
  status.startedAt = startedAt;
  KJ_IF_MAYBE (exit, exitStatus) {
    status.exit = exit->clone();
  }
  KJ_IF_MAYBE (present, live) {
    if (current == SessionState::RUNNING) status.pid = (*present)->processId();
  }
  KJ_IF_MAYBE (problem, lastError) {
    status.lastError = problem->clone();
  }
  return status;
}

kj::Promise<SessionStatus> RunActor::statusWithReport() {
  auto self = kj::addRef(*this);
  if (live == nullptr) co_return status();
  auto report = co_await kj::addRef(*KJ_ASSERT_NONNULL(live))->report();

  auto status = this->status();
  if (report.is<InstanceReport>()) {
    auto& seen = report.get<InstanceReport>();
    status.descendants = seen.descendants;
    status.outputBegin = seen.outputBegin;
    status.outputEnd = seen.outputEnd;
    if (status.lastError == nullptr) {
      KJ_IF_MAYBE (problem, seen.error) {
        status.lastError = problem->clone();
      }
    }
  }
  co_return status;
}

// ---- start

kj::Promise<Outcome> RunActor::start() {
  auto self = kj::addRef(*this);
  Outcome outcome;
  co_await turns.with([&]() { return startInTurn(outcome); });
  co_return kj::mv(outcome);
}

kj::Promise<void> RunActor::startInTurn(Outcome& outcome) {
  if (current != SessionState::STARTING || live == nullptr) {
    outcome =
        Problem(ErrorCode::WRONG_STATE, kj::str("the session was started or stopped already"));
    co_return;
  }
  auto process = kj::addRef(*KJ_ASSERT_NONNULL(live));
  outcome = co_await process->start();
  if (outcome == nullptr) {
    outcome = co_await ledger->runStarted(kj::str(session), kj::str(run), process->processId());
  }
  KJ_IF_MAYBE (problem, outcome) {
    // Its answer may have been lost on the way: nothing may run that counts as failed.
    KJ_IF_MAYBE (left, co_await process->discard()) {
      KJ_LOG(WARNING, "could not discard a run that did not start", session, run, *left);
    }
    if (isUnsettled()) co_return;  // The helper is lost: the recovery settles it.
    auto failed = outcomeOf(RunOutcome::Kind::FAILED, services.now());
    failed.error = problem->clone();
    settleInBackground(kj::mv(failed));
    co_await settled.addBranch();
    co_return;
  }
  startedAt = process->startedAt();
  if (isUnsettled()) co_return;  // The helper was lost since: the recovery goes on from here.
  current = SessionState::RUNNING;
  changes->changed();
  watchInBackground();
}

// ---- the end

void RunActor::watchInBackground() {
  ending = watchEnd().eagerlyEvaluate(
      [](kj::Exception&& e) { KJ_LOG(ERROR, "the end of a run was missed", e); });
}

// A member's work: holds no reference to this.
kj::Promise<void> RunActor::watchEnd() {
  auto& process = *KJ_ASSERT_NONNULL(live);
  co_await process.onEnd();
  // Whether the helper is gone is found out by whoever is linked to it.
  if (process.isOutOfSight()) co_return;
  auto outcome = outcomeOf(RunOutcome::Kind::LOST, services.now());
  KJ_IF_MAYBE (exit, process.exit()) {
    outcome.kind = stopRequested ? RunOutcome::Kind::STOPPED : RunOutcome::Kind::EXITED;
    outcome.exit = exit->clone();
    if (exit->at != 0) outcome.at = exit->at;
  }
  KJ_IF_MAYBE (problem, process.lost()) {
    outcome.error = problem->clone();
  }
  settling = true;
  co_await settle(kj::mv(outcome));
}

// The first to know of an end tells it.
void RunActor::settleInBackground(RunOutcome outcome) {
  if (settling) return;
  settling = true;
  ending = settle(kj::mv(outcome)).eagerlyEvaluate([](kj::Exception&& e) {
    KJ_LOG(ERROR, "the end of a run could not be noted", e);
  });
}

kj::Promise<void> RunActor::settle(RunOutcome outcome) {
  Backoff backoff(services.entropy, {.first = 1 * kj::SECONDS});
  for (;;) {
    auto written = co_await ledger->runEnded(kj::str(session), kj::str(run), clone(outcome));
    // A row that is gone was removed with its environment.
    bool gone = false;
    KJ_IF_MAYBE (problem, written) {
      gone = problem->code == ErrorCode::NOT_FOUND;
    }
    // Whoever waits for the process is told of its end, which is a fact, although the store is not.
    if (!ended) show(outcome);
    if (written == nullptr || gone) break;
    KJ_IF_MAYBE (problem, written) {
      KJ_LOG(ERROR, "cannot write down how a run ended, trying again", session, run, *problem);
    }
    co_await services.timer.afterDelay(backoff.next(services.timer.now()));
  }
  KJ_IF_MAYBE (process, live) {
    KJ_IF_MAYBE (problem, co_await kj::addRef(**process)->acknowledge()) {
      KJ_LOG(INFO, "a helper remembers an outcome longer than it need", session, run, *problem);
    }
  }
}

void RunActor::show(const RunOutcome& outcome) {
  ended = true;
  endedAt = outcome.at;
  current = sessionStateAfter(outcome.kind);
  KJ_IF_MAYBE (exit, outcome.exit) {
    exitStatus = exit->clone();
  }
  KJ_IF_MAYBE (problem, outcome.error) {
    lastError = problem->clone();
  }
  finish->fulfill();
  changes->changed();
}

kj::Promise<Outcome> RunActor::takeBack(kj::Own<ProcessActor> process) {
  auto self = kj::addRef(*this);
  live = kj::addRef(*process);
  if (ended) co_return nullptr;  // Its output can be read again.
  auto noted = co_await ledger->runStarted(kj::str(session), kj::str(run), process->processId());
  KJ_IF_MAYBE (problem, noted) {
    // It said so already.
    if (problem->code != ErrorCode::WRONG_STATE) co_return kj::mv(*problem);
  }
  startedAt = process->startedAt();
  current = SessionState::RUNNING;
  talk = ConversationHealth::RESTORED;
  changes->changed();
  watchInBackground();
  co_return nullptr;
}

kj::Promise<void> RunActor::whileSettling() {
  if (!settling) return kj::READY_NOW;
  return settled.addBranch();
}

kj::Promise<void> RunActor::lose(Problem why) {
  return settleNow(RunOutcome::Kind::LOST, kj::mv(why));
}

kj::Promise<void> RunActor::fail(Problem why) {
  return settleNow(RunOutcome::Kind::FAILED, kj::mv(why));
}

kj::Promise<void> RunActor::settleNow(RunOutcome::Kind kind, Problem why) {
  auto self = kj::addRef(*this);
  auto outcome = outcomeOf(kind, services.now());
  outcome.error = kj::mv(why);
  settleInBackground(kj::mv(outcome));
  co_await settled.addBranch();
}

kj::Promise<Outcome> RunActor::stop(kj::Duration grace, StopMode mode) {
  auto self = kj::addRef(*this);
  Outcome outcome;
  co_await turns.with([&]() { return stopInTurn(grace, mode, outcome); });
  co_return kj::mv(outcome);
}

kj::Promise<void> RunActor::stopInTurn(kj::Duration grace, StopMode mode, Outcome& outcome) {
  if (isUnsettled()) {
    outcome = Problem(ErrorCode::RECOVERING, kj::str("the session is being recovered"))
                  .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
    co_return;
  }
  if (live == nullptr) co_return;
  auto process = kj::addRef(*KJ_ASSERT_NONNULL(live));
  bool started = process->started();
  if (started && process->exit() == nullptr) stopRequested = true;
  // Also after the agent's own exit: its descendants end here. And also without a start that is
  // known of: one whose answer was lost is ended, and the helper forgets the variables.
  auto stopped = co_await process->stop(grace, mode);
  if (stopped.is<Problem>()) {
    outcome = kj::mv(stopped.get<Problem>());
    co_return;
  }
  auto survivors = stopped.get<uint32_t>();
  if (survivors > 0) {
    outcome =
        Problem(ErrorCode::INTERNAL,
                kj::str(survivors, " processes of the session could not be ended"))
            .because(kj::str("agentctl may not signal them (another user, or stuck in the kernel)"))
            .advise(kj::str("look for them with ps and end them as their user"));
    co_return;
  }
  if (started && process->isOutOfSight()) {
    // It has ended as it should, and the link before that was told: nothing settles it here.
    outcome = Problem(ErrorCode::UNREACHABLE, kj::str("the helper was lost while it ended the run"))
                  .retryable(RetryHint::SAME_REQUEST_LATER);
  } else if (started) {
    co_await settled.addBranch();
  } else if (isLive()) {
    lastError = Problem(ErrorCode::CANCELLED, kj::str("the run was stopped before it was started"));
    settleInBackground(outcomeOf(RunOutcome::Kind::STOPPED, services.now()));
    co_await settled.addBranch();
  }
}

kj::Promise<Result<ExitStatus>> RunActor::wait() {
  auto self = kj::addRef(*this);
  co_await settled.addBranch();
  KJ_IF_MAYBE (exit, exitStatus) {
    co_return exit->clone();
  }
  KJ_IF_MAYBE (problem, lastError) {
    co_return problem->clone();
  }
  co_return Problem(ErrorCode::INSTANCE_LOST, kj::str("the run ended, and nobody saw how"));
}

kj::Promise<void> RunActor::expireLog(UnixMs before) {
  auto self = kj::addRef(*this);
  if (!ended || endedAt >= before) co_return;
  KJ_IF_MAYBE (process, live) {
    KJ_IF_MAYBE (problem, co_await kj::addRef(**process)->discard()) {
      KJ_LOG(WARNING, "the log of an old run could not be deleted", session, run, *problem);
      co_return;
    }
  }
  live = nullptr;
}

kj::Promise<Outcome> RunActor::discard() {
  auto self = kj::addRef(*this);
  if (live == nullptr) co_return nullptr;
  co_return co_await kj::addRef(*KJ_ASSERT_NONNULL(live))->discard();
}

}  // namespace capstan
