#pragma once
// One process that Capstan itself runs inside an environment's place, with its output in a step.

#include "agent-link/link.h"
#include "backends/backend.h"
#include "base/async.h"
#include "domain/output-tail.h"

#include <kj/refcount.h>
#include <kj/time.h>

namespace capstan {

// A step whose output people can follow. Counted: deliveries that are on their way keep it.
class ShownStep final: public kj::Refcounted {
public:
  // Reported as pending at once. Timer, clock and, until hide(), `sink` outlive it.
  ShownStep(kj::Timer& timer, const kj::Clock& clock, ProgressSink& sink, uint16_t index,
            uint16_t total, kj::StringPtr name, kj::ArrayPtr<const kj::String> secrets);
  KJ_DISALLOW_COPY_AND_MOVE(ShownStep);

  void begin(kj::String command);
  // Grows the output; what is shown follows at most twice a second.
  void output(kj::ArrayPtr<const kj::byte> bytes);
  void gap(uint64_t octets);
  // What the process said last, for a Problem.
  kj::String lastLine() const { return tail.lastLine(); }

  void complete() { finish(PrepareStep::Status::COMPLETED); }
  void skip() { finish(PrepareStep::Status::SKIPPED); }
  void fail(const Problem& problem);
  // It failed and that is let pass.
  void warn(kj::String warning, const Problem& problem);
  // Nothing is shown any more.
  void hide();

private:
  kj::Timer& timer;
  const kj::Clock& clock;
  kj::Maybe<ProgressSink&> sink;
  uint16_t index;
  uint16_t total;
  PrepareStep step;
  OutputTail tail;
  kj::TimePoint shownAt;
  bool waiting = false;  // What is new will be shown by `later`.
  kj::Promise<void> later = nullptr;

  UnixMs now() const { return (clock.now() - kj::UNIX_EPOCH) / kj::MILLISECONDS; }
  void show();
  void showSoon();
  void finish(PrepareStep::Status status);
};

struct PlaceProcess {
  kj::String id;
  kj::String environmentId;
  kj::String taskId;
  kj::Array<kj::String> command;
  kj::Array<InstanceVariable> variables;  // All of them.
  kj::String directory;                   // Absolute; where it starts.
  kj::String input;                       // All of its stdin.
};

// Runs the process as an ephemeral instance to its end; `step` takes stdout and stderr. Problems:
// timeout when `deadline` passes, cancelled when `cancelled` resolves, those of the helper. However
// it ends, the process and all it started are gone when this resolves. Dropping the promise leaves
// the process to the helper, so whoever can be dropped hands it to a task set and uses `cancelled`.
kj::Promise<Result<ExitStatus>> runInPlace(kj::Timer& timer, kj::Own<AgentLink> link,
                                           PlaceProcess process, kj::Own<ShownStep> step,
                                           Deadline deadline, kj::Promise<void> cancelled);

}  // namespace capstan
