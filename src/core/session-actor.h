#pragma once

#include "base/async.h"
#include "core/process-actor.h"

namespace capstan {

// One conversation in an environment with its latest run. Counted; owned by its environment.
class SessionActor final: public kj::Refcounted {
public:
  // `run` is created and configured, not started.
  SessionActor(kj::String id, kj::Own<ProcessActor> run);

  kj::StringPtr id() const { return name; }
  ProcessActor& run() { return *process; }
  SessionState state() const;
  // True while its process may still run or be started.
  bool isLive() const;

  // What core itself knows: without positions and descendants.
  SessionStatus status() const;
  // Also asks the helper for those; without an answer they stay zero.
  kj::Promise<SessionStatus> statusWithReport();

  // After a launch that stopped before the start.
  kj::Promise<Outcome> start();
  // Ends the run with all its descendants. Idempotent. Survivors: internal, with their number.
  kj::Promise<Outcome> stop(kj::Duration grace, StopMode mode);

private:
  kj::String name;
  kj::Own<ProcessActor> process;
  bool stopRequested = false;
  bool stoppedUnstarted = false;
  kj::Maybe<Problem> startFailure;
  AsyncLock turns;  // A stop waits for a start in progress, then ends what it started.

  kj::Promise<void> startInTurn(Outcome& outcome);
  kj::Promise<void> stopInTurn(kj::Duration grace, StopMode mode, Outcome& outcome);
};

}  // namespace capstan
