#pragma once
// The prepare and clean-up scripts of a profile: their placeholders and how a shell is given them.
// docs/workspaces.md tells users.

#include "base/problem.h"
#include "domain/environment.h"
#include "domain/variables.h"

namespace capstan {

// What the placeholders of a script stand for; texts may be empty.
struct ScriptFacts {
  kj::StringPtr workspace;
  kj::StringPtr taskId;
  kj::StringPtr taskTitle;
  kj::StringPtr sessionId;
  kj::StringPtr environmentId;
  kj::StringPtr repositoryUrl;
  kj::StringPtr branch;
  kj::StringPtr gitUserName;
  kj::StringPtr gitUserEmail;
};

// The variables in which a script finds the facts: CAPSTAN_WORKSPACE, CAPSTAN_TASK_TITLE, ... All
// are set, those without a value to the empty text.
kj::Array<ProcessVariable> scriptVariables(const ScriptFacts& facts);

// `script` with every {{placeholder}} as a quoted reference to its variable. Thus a shell takes the
// value as one word, and in no place of a script is the value itself ever read as shell text.
// invalidArgument, naming it, for an unknown placeholder and for one with blanks inside its braces.
// Other braces are left alone. `field` is the script's.
Result<kj::String> fillScript(kj::StringPtr script, kj::StringPtr field);

// The text for `SHELL -s`: the whole script is read before any of it runs, and its commands find an
// empty standard input instead of the rest of the script.
kj::String wrapScript(kj::StringPtr filled);

// True for a script of white space only: there is nothing to run.
bool isEmptyScript(kj::StringPtr script);

enum class PrepareFailure { FAIL, WARN };

// How a profile wants its scripts run.
struct ScriptOptions {
  kj::String shell;  // A program; empty = bash, or sh where there is no bash.
  PrepareFailure prepareFailure = PrepareFailure::FAIL;
  kj::String gitUserName;
  kj::String gitUserEmail;
};

// The keys shell, prepare_failure (fail, warn), git_user_name and git_user_email of a profile;
// others are not looked at. invalidArgument for a shell that is more than a name or an absolute
// path, and for another prepare_failure.
Result<ScriptOptions> readScriptOptions(kj::ArrayPtr<const Label> config);

}  // namespace capstan
