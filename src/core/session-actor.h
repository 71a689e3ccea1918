#pragma once

#include "core/run-actor.h"

#include <kj/vector.h>

namespace capstan {

// One conversation in an environment: its runs, one after the other, of which only the latest may
// be live. What is said of the session is said of that one. Counted; owned by its environment.
class SessionActor final: public kj::Refcounted {
public:
  // `runs`: at least one, oldest first.
  SessionActor(kj::String id, kj::Vector<kj::Own<RunActor>> runs);
  SessionActor(kj::String id, kj::Own<RunActor> run);

  kj::StringPtr id() const { return name; }
  RunActor& run() { return *runs.back(); }
  const RunActor& run() const { return *runs.back(); }
  // By exact id, also an earlier one.
  kj::Maybe<kj::Own<RunActor>> findRun(kj::StringPtr runId);
  // The run that a request with this id, given at or after `notBefore`, has started.
  kj::Maybe<kj::Own<RunActor>> findRequest(kj::ArrayPtr<const kj::byte> requestId,
                                           UnixMs notBefore);
  // `next` is the latest one from now on. The one before has ended.
  void follow(kj::Own<RunActor> next);
  size_t runCount() const { return runs.size(); }
  kj::Own<RunActor> oldestRun() { return kj::addRef(*runs.front()); }
  // Never the latest.
  void forgetRun(const RunActor& run);

  kj::StringPtr runId() const { return run().id(); }
  SessionState state() const { return run().state(); }
  bool isLive() const { return run().isLive(); }
  bool isUnsettled() const { return run().isUnsettled(); }
  void losesSight() { run().losesSight(); }
  kj::Maybe<const ExitStatus&> exit() const { return run().exit(); }
  Result<kj::Own<ProcessActor>> process() { return run().process(); }
  SessionStatus status() const { return run().status(); }
  kj::Promise<SessionStatus> statusWithReport() { return run().statusWithReport(); }
  kj::Promise<Outcome> start() { return run().start(); }
  kj::Promise<Result<ExitStatus>> wait() { return run().wait(); }
  kj::Promise<void> lose(Problem why) { return run().lose(kj::mv(why)); }
  kj::Promise<Outcome> stop(kj::Duration grace, StopMode mode);
  // How often it was to be stopped: what began before a stop does not start after it.
  uint32_t stops() const { return stopped; }

  // Of every run.
  kj::Promise<void> expireLogs(UnixMs before);
  // The first Problem of several; the others are dealt with all the same.
  kj::Promise<Outcome> discard();

private:
  kj::String name;
  kj::Vector<kj::Own<RunActor>> runs;
  uint32_t stopped = 0;
};

}  // namespace capstan
