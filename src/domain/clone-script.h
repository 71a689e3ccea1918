#pragma once
// How a repository gets into a workspace: a script for any POSIX sh with git, run inside the place.

#include "domain/variables.h"
#include "domain/workspace.h"

namespace capstan {

enum class CloneMode {
  MAKE,   // Clone unless a clone of the same url is there.
  REUSE,  // A clone of the same url must be there.
  CHECK,  // It was made once: it must not have vanished, whatever became of it since.
};

// The same text for every clone: all that differs comes in variables and is never shell text. The
// clone is made under a name of its own beside its place and moved there when it is complete, so
// that nothing unfinished can be taken for a clone; what such an attempt left is cleared away or
// finished by the next one. Whatever is there already is not touched.
kj::StringPtr cloneScript();

// Its variables: those of the process beside. `attempt` is unique among attempts.
kj::Array<ProcessVariable> cloneVariables(const Repository& repository, kj::StringPtr workspace,
                                          CloneMode mode, Caller caller, kj::StringPtr attempt);

// What its exit code says.
enum class CloneEnd { MADE, KEPT, FAILED };
CloneEnd cloneEnd(int exitCode);
// The Problem of a FAILED one: wrongState for another repository or other files in the place,
// workspaceLost for a clone that had to be there, else prepareFailed. `field` is the repository's,
// `lastLine` what it said last.
Problem cloneProblem(int exitCode, const Repository& repository, kj::StringPtr field,
                     kj::String lastLine);

}  // namespace capstan
