#pragma once

#include "base/async.h"
#include "core/change-hub.h"
#include "core/environment-ledger.h"
#include "core/process-actor.h"

namespace capstan {

// One start of a session's agent. Counted; kept by its session, also when a later run has followed
// it. What it says of the run is what is durable: an end shows when it has been written down.
class RunActor final: public kj::Refcounted {
public:
  // A new one, created and configured, not started; its records say `starting`. Of `record` the
  // ids, the request id and the time of creation count. Services outlive it.
  RunActor(Services& services, kj::Own<EnvironmentLedger> ledger, kj::Own<ChangeHub> changes,
           const RunRecord& record, kj::Own<ProcessActor> process);
  // As the store has it, with no process that is known. One that has not ended there is
  // `recovering` until fail(), lose() or a later attachment.
  RunActor(Services& services, kj::Own<EnvironmentLedger> ledger, kj::Own<ChangeHub> changes,
           const RunRecord& record);
  ~RunActor() noexcept(false);

  kj::StringPtr id() const { return run; }
  kj::StringPtr sessionId() const { return session; }
  // The client's, empty = none, and when the run was asked for (wall clock).
  kj::ArrayPtr<const kj::byte> request() const { return requestId; }
  UnixMs requestedAt() const { return createdAt; }
  SessionState state() const { return current; }
  // True while its process may still run or be started.
  bool isLive() const;
  // While it is not known whether its process runs.
  bool isUnsettled() const {
    return current == SessionState::RECOVERING || current == SessionState::RECONNECTING;
  }
  // The helper cannot be reached: a run that has not ended is `reconnecting` until takeBack() or
  // lose().
  void losesSight();
  // How the run ended; null while it goes on, and when nobody saw how.
  kj::Maybe<const ExitStatus&> exit() const { return exitStatus; }

  // The run's process; instanceLost when it and its output are gone with its helper.
  Result<kj::Own<ProcessActor>> process();

  // The session as far as this run tells; what core itself knows: without positions and
  // descendants.
  SessionStatus status() const;
  // Also asks the helper for those; without an answer they stay zero.
  kj::Promise<SessionStatus> statusWithReport();

  // After a launch that stopped before the start. Resolves when it is durable that the run runs; a
  // run of which that cannot be written down is ended again.
  kj::Promise<Outcome> start();
  // Ends the run with all its descendants, durably. Idempotent. Survivors: internal, with their
  // number.
  kj::Promise<Outcome> stop(kj::Duration grace, StopMode mode);
  // The exit, or why it cannot be told. Waits for a start that has not happened yet.
  kj::Promise<Result<ExitStatus>> wait();
  // Of a run of an earlier daemon: this is its process, which runs or has ended since. Resolves
  // when that is durable.
  kj::Promise<Outcome> takeBack(kj::Own<ProcessActor> process);
  // Of a run of an earlier daemon: it ended, and nobody saw how. Resolves when that is settled.
  kj::Promise<void> lose(Problem why);
  // Its process got a token of the conversation before it: whether that was of use is not known.
  void wasGivenToken() { talk = ConversationHealth::UNKNOWN; }
  ConversationHealth conversation() const {
    return current == SessionState::LOST ? ConversationHealth::UNAVAILABLE : talk;
  }
  // Resolves when no end of it is being written down.
  kj::Promise<void> whileSettling();
  // Of one that has no process: it never began. Resolves when that is settled.
  kj::Promise<void> fail(Problem why);
  // Deletes the log of a run that ended before `before` (wall clock): its process cannot be had any
  // more. Nothing else changes.
  kj::Promise<void> expireLog(UnixMs before);
  // Ends the process, if any, by force, and deletes its log. Its records stay.
  kj::Promise<Outcome> discard();

private:
  Services& services;
  kj::Own<EnvironmentLedger> ledger;
  kj::Own<ChangeHub> changes;
  kj::String session;
  kj::String run;
  RequestId requestId;
  UnixMs createdAt = 0;
  kj::Array<kj::String> command;
  SessionState current = SessionState::STARTING;
  UnixMs startedAt = 0;
  kj::Maybe<ExitStatus> exitStatus;
  kj::Maybe<Problem> lastError;
  kj::Maybe<kj::Own<ProcessActor>> live;
  ConversationHealth talk = ConversationHealth::UNKNOWN;
  bool stopRequested = false;
  bool settling = false;  // Its end is known and being written down.
  bool ended = false;
  UnixMs endedAt = 0;
  AsyncLock turns;  // A stop waits for a start in progress, then ends what it started.
  kj::Own<kj::PromiseFulfiller<void>> finish;
  kj::ForkedPromise<void> settled = nullptr;  // The run's end is known.
  kj::Promise<void> ending = nullptr;         // Last: it uses all of the above.

  void prepareEnd();
  kj::Promise<void> startInTurn(Outcome& outcome);
  kj::Promise<void> stopInTurn(kj::Duration grace, StopMode mode, Outcome& outcome);
  kj::Promise<void> watchEnd();
  void watchInBackground();
  // Writes the outcome down and shows it, and shows it also when the store does not take it yet.
  kj::Promise<void> settle(RunOutcome outcome);
  // Of a run that nothing watches; replaces `ending`.
  void settleInBackground(RunOutcome outcome);
  kj::Promise<void> settleNow(RunOutcome::Kind kind, Problem why);
  void show(const RunOutcome& outcome);
};

}  // namespace capstan
