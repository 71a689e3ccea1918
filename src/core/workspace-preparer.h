#pragma once
// Makes an environment's workspace ready for work: clones its repositories, then runs the profile's
// prepare script; and runs the clean-up script before it goes. Everything happens inside the place,
// through its helper, and is the same for every runtime.

#include "agent-link/link.h"
#include "backends/backend.h"
#include "base/entropy.h"
#include "domain/environment.h"
#include "domain/limits.h"
#include "domain/variables.h"

#include <kj/time.h>

namespace capstan {

// What is to be prepared, and with what. A snapshot: nothing in it is borrowed.
struct PreparePlan {
  kj::String environmentId;
  kj::String taskId;
  kj::String title;
  kj::String sessionId;  // Empty where no session is meant.
  WorkspaceSpec workspace;
  kj::String path;  // Of the workspace, absolute, inside the place: Attachment::workspace().
  Caller caller = Caller::ORDINARY;

  kj::Array<Label> config;  // The profile's: shell, prepare_failure, git_user_name, git_user_email.
  kj::String prepareScript;  // As written; empty = none.
  kj::String cleanupScript;
  // Every variable of the processes but those that the scripts' own are: what the place offers, and
  // the profile's, resolved. The values of those marked secret are kept out of all that is shown.
  kj::Array<ProcessVariable> variables;

  // True once prepareWorkspace() succeeded for this place: nothing is made or run again, and a
  // clone that has vanished since is workspaceLost. The environment's record remembers it.
  bool prepared = false;
  uint16_t firstStep = 0;  // Steps that are shown before these.
};

// What the work is done with. All of it outlives the promises, and `making` outlives them too: it
// ends processes whose caller has gone.
struct PreparerTools {
  kj::Timer& timer;
  const kj::Clock& clock;
  Entropy& entropy;
  const Limits& limits;
  AgentLink& link;
  kj::TaskSet& making;
};

// Prepares the workspace within deadlines.prepare and reports a step for each repository and one
// for the script to `sink`. What is there already is never overwritten, so that it can be repeated
// after a failure, a crash or a cancellation at any point. Problems: prepareFailed, timeout,
// wrongState and workspaceLost for what is or is not in the place, invalidArgument for a script or
// config that cannot be used, those of the helper. When `interrupt` resolves, all processes are
// ended and the answer is cancelled (a rejected one never resolves). Dropping the promise does the
// same unseen: `sink` is not used any more, and `making` stays busy until no process is left.
kj::Promise<Outcome> prepareWorkspace(PreparerTools tools, PreparePlan plan, ProgressSink& sink,
                                      kj::Promise<void> interrupt = kj::NEVER_DONE);

// Runs the clean-up script, if there is one, within deadlines.cleanup; otherwise as above.
kj::Promise<Outcome> runCleanupScript(PreparerTools tools, PreparePlan plan, ProgressSink& sink,
                                      kj::Promise<void> interrupt = kj::NEVER_DONE);

}  // namespace capstan
