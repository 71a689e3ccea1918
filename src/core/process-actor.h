#pragma once

#include "agent-link/link.h"
#include "core/services.h"
#include "domain/environment.h"

#include <kj/refcount.h>

namespace capstan {

// One process under a helper, seen from core: a run's agent or an exec. Counted. It watches the
// process until its end; dropping it leaves the process alone.
class ProcessActor final: public kj::Refcounted {
public:
  // Services outlive it.
  ProcessActor(Services& services, kj::Own<AgentInstance> instance, kj::Array<kj::String> command);
  ~ProcessActor() noexcept(false);

  kj::StringPtr id() const { return instance->id(); }
  kj::ArrayPtr<const kj::String> command() const { return words; }

  // Starts the configured process and begins to watch it. Once.
  kj::Promise<Outcome> start();
  // It was started for an earlier daemon, and perhaps it has ended since: watches it.
  void takeOver(int pid, UnixMs startedAt);
  // False after a start that failed, true from its answer on.
  bool started() const { return pid != 0; }
  int processId() const { return pid; }
  UnixMs startedAt() const { return startMs; }

  // Null while it runs.
  kj::Maybe<const ExitStatus&> exit() const { return exitStatus; }
  // Set when the process was lost instead of having ended.
  kj::Maybe<const Problem&> lost() const { return loss; }
  // Lost because the link to its helper was: it may run on.
  bool isOutOfSight() { return loss != nullptr && instance->link().isLost(); }
  bool ended() const { return exitStatus != nullptr || loss != nullptr; }

  // Resolves when the process has ended or was lost; look at exit() and lost() then.
  kj::Promise<void> onEnd();
  // The exit, or why it cannot be told. Waits for a start that has not happened yet.
  kj::Promise<Result<ExitStatus>> wait();

  kj::Promise<Outcome> signal(kj::String name);
  kj::Promise<Outcome> resize(uint16_t columns, uint16_t rows);
  kj::Promise<Result<kj::Own<OutputReading>>> output(OutputRequest what,
                                                     kj::Own<OutputReceiver> receiver);
  kj::Promise<Result<kj::Own<StdinWriter>>> openStdin(TakeOver takeOver);
  // Ends the whole tree, also of a start in progress; one that was not started never will be.
  // Resolves to the survivors, when there are none after the end was seen.
  kj::Promise<Result<uint32_t>> stop(kj::Duration grace, StopMode mode);
  // Ends it by force, whatever its state, and deletes its entry and its log. For unwinding and for
  // execs. Repeating it is fine.
  kj::Promise<Outcome> discard();
  kj::Promise<Result<InstanceReport>> report() { return instance->report(); }
  // How it ended is written down: the helper need not remember it.
  kj::Promise<Outcome> acknowledge() { return instance->link().acknowledge(kj::str(id())); }

private:
  Services& services;
  kj::Own<AgentInstance> instance;
  kj::Array<kj::String> words;
  int pid = 0;
  UnixMs startMs = 0;
  kj::Maybe<ExitStatus> exitStatus;
  kj::Maybe<Problem> loss;
  kj::Own<kj::PromiseFulfiller<void>> finish;
  kj::ForkedPromise<void> endFork;
  kj::Promise<void> watching = nullptr;  // Last: it uses all of the above.

  kj::Promise<void> watch();
};

}  // namespace capstan
