#pragma once
// The pure rules of a launch: what a spec may hold, and which variables a process starts with.

#include "domain/environment.h"
#include "domain/limits.h"
#include "domain/records.h"
#include "domain/variables.h"

namespace capstan {

// Refuses a spec that no runtime could start, naming the field and the cure; null = fine.
Outcome checkLaunch(const LaunchSpec& spec, const Limits& limits);

// Refuses what a resume cannot take: it repeats the stored launch, so that only the request id, the
// resume command, `wait`, `start` and the deadline may be given. Null = fine.
Outcome checkResume(const LaunchSpec& spec, const Limits& limits);

// What a resume of `stored` starts: the same with the wanted resume command, else the stored one,
// else the command; request id, `wait`, `start` and deadline are the wanted ones.
LaunchSpec resumedLaunch(LaunchSpec stored, const LaunchSpec& wanted);

// Refuses progress that could not be kept; null = fine. Whether the context is JSON is the store's
// to say.
Outcome checkProgress(const SavedProgress& progress, const Limits& limits);

// Refuses an environment that could not be kept or shown; null = fine. The task id's form is
// checked by base/ids.
Outcome checkEnvironment(const EnvironmentSpec& spec, const Limits& limits, Caller caller);

// Who a process belongs to; becomes CAPSTAN_* variables.
struct ProcessIdentity {
  kj::StringPtr taskId;
  kj::StringPtr environmentId;
  kj::StringPtr sessionId;               // Empty for an exec.
  kj::StringPtr runId;                   // Of an exec: its own id.
  kj::Maybe<kj::StringPtr> resumeToken;  // What the conversation saved; a secret.
};

// The names a local agent takes over from the daemon, and nothing else does: HOME USER LOGNAME
// SHELL LANG LC_* TZ TMPDIR PATH.
bool isInheritedName(kj::StringPtr name);

// The variables of one process. What the place offers (`inherited`) is below everything and takes
// no part: no conflict, no record. Above it stands what resolveVariables() makes of the definitions
// and of Capstan's own CAPSTAN_*, whose origin is managed runtime; blank entries of profiles count
// as not there. A resume token becomes CAPSTAN_RESUME_TOKEN, which nobody else may define then:
// variableConflict. Other Problems are those of resolveVariables(). The records and decisions of
// the result are those of the definitions; its variables are all that the process gets.
Result<Resolution> assembleVariables(kj::ArrayPtr<const ProcessVariable> inherited,
                                     const ProcessIdentity& identity,
                                     kj::ArrayPtr<const Variable> definitions,
                                     kj::Maybe<RevealSecret&> reveal);

}  // namespace capstan
