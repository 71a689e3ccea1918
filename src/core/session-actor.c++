#include "core/session-actor.h"

namespace capstan {

SessionActor::SessionActor(kj::String id, kj::Own<ProcessActor> run)
    : name(kj::mv(id)), process(kj::mv(run)) {}

SessionState SessionActor::state() const {
  if (process->lost() != nullptr) return SessionState::LOST;
  if (process->exit() != nullptr) {
    return stopRequested ? SessionState::STOPPED : SessionState::EXITED;
  }
  if (startFailure != nullptr) return SessionState::FAILED;
  if (stoppedUnstarted) return SessionState::STOPPED;
  return process->started() ? SessionState::RUNNING : SessionState::STARTING;
}

bool SessionActor::isLive() const {
  auto now = state();
  return now == SessionState::RUNNING || now == SessionState::STARTING;
}

SessionStatus SessionActor::status() const {
  SessionStatus status;
  status.id = kj::str(name);
  status.state = state();
  status.runId = kj::str(process->id());
  status.command = KJ_MAP(word, process->command()) { return kj::str(word); };
  status.startedAt = process->startedAt();
  KJ_IF_MAYBE (exit, process->exit()) {
    status.exit = exit->clone();
  } else {
    status.pid = process->processId();
  }
  KJ_IF_MAYBE (problem, process->lost()) {
    status.lastError = problem->clone();
  }
  KJ_IF_MAYBE (problem, startFailure) {
    status.lastError = problem->clone();
  }
  return status;
}

kj::Promise<SessionStatus> SessionActor::statusWithReport() {
  auto self = kj::addRef(*this);
  auto report = co_await process->report();

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

kj::Promise<Outcome> SessionActor::start() {
  auto self = kj::addRef(*this);
  Outcome outcome;
  co_await turns.with([&]() { return startInTurn(outcome); });
  co_return kj::mv(outcome);
}

kj::Promise<void> SessionActor::startInTurn(Outcome& outcome) {
  if (state() != SessionState::STARTING) {
    outcome =
        Problem(ErrorCode::WRONG_STATE, kj::str("the session was started or stopped already"));
    co_return;
  }
  outcome = co_await process->start();
  KJ_IF_MAYBE (problem, outcome) {
    startFailure = problem->clone();
  }
}

kj::Promise<Outcome> SessionActor::stop(kj::Duration grace, StopMode mode) {
  auto self = kj::addRef(*this);
  Outcome outcome;
  co_await turns.with([&]() { return stopInTurn(grace, mode, outcome); });
  co_return kj::mv(outcome);
}

kj::Promise<void> SessionActor::stopInTurn(kj::Duration grace, StopMode mode, Outcome& outcome) {
  if (process->lost() != nullptr) co_return;
  if (!process->started()) {
    stoppedUnstarted = true;
  } else if (process->exit() == nullptr) {
    stopRequested = true;
  }
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
  }
}

}  // namespace capstan
