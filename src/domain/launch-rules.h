#pragma once
// The pure rules of a launch: what a spec may hold, and which variables a process starts with.

#include "domain/environment.h"
#include "domain/limits.h"

namespace capstan {

// Refuses a spec that no runtime could start, naming the field and the cure; null = fine.
Outcome checkLaunch(const LaunchSpec& spec, const Limits& limits);

// Refuses an environment that could not be kept or shown; null = fine. The task id's form is
// checked by base/ids.
Outcome checkEnvironment(const EnvironmentSpec& spec, const Limits& limits);

// A variable as a process gets it.
struct ProcessVariable {
  kj::String key;
  kj::String value;
};

// Who a process belongs to; becomes CAPSTAN_* variables.
struct ProcessIdentity {
  kj::StringPtr taskId;
  kj::StringPtr environmentId;
  kj::StringPtr sessionId;  // Empty for an exec.
  kj::StringPtr runId;      // Of an exec: its own id.
};

// The names a local agent takes over from the daemon, and nothing else does: HOME USER LOGNAME
// SHELL LANG LC_* TZ TMPDIR PATH.
bool isInheritedName(kj::StringPtr name);

// The variables of one process, ordered by key: what the place offers (`inherited`), then Capstan's
// own, then the spec's definitions, later ones stronger. Two definitions of one key with different
// values in the spec, or one that contradicts a CAPSTAN_* variable: variableConflict, which names
// the key and never a value. A definition by secret: notFound, as no secret is bound.
Result<kj::Array<ProcessVariable>> assembleVariables(kj::ArrayPtr<const ProcessVariable> inherited,
                                                     const ProcessIdentity& identity,
                                                     kj::ArrayPtr<const Variable> definitions);

}  // namespace capstan
