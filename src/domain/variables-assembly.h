#pragma once
// How definitions come together before they are resolved: what a profile contributes, and what a
// profile may hold. A profile's definitions are copied when they are captured; what is edited later
// is seen by the next capture only.

#include "base/problem.h"
#include "domain/environment.h"

#include <kj/array.h>

namespace capstan {

// Whether this is an entry of a profile without a value and without a secret. Such an entry counts
// as not there on every path, so it neither sets an empty text nor hides another's value.
bool isBlankProfileEntry(const Variable& definition);

// The first launch of an environment, or its recovery.
enum class AssemblyPath { PRIMARY, RECOVERY };
// Whether the executor's runtime brings the user's preferred shell.
enum class PreferredShell { NONE, APPLIES };

// What an executor profile defines: copies of its entries in their order, with that origin whatever
// the entry says, without blank ones. On the primary path a preferred shell replaces the profile's
// SHELL and AGENTCTL_SHELL_COMMAND, which are left out.
kj::Array<Variable> executorProfileDefinitions(kj::ArrayPtr<const Variable> entries,
                                               AssemblyPath path, PreferredShell shell);

// What an agent profile defines: likewise, and shells stay.
kj::Array<Variable> agentProfileDefinitions(kj::ArrayPtr<const Variable> entries);

// Refuses to save an agent profile with an entry that has neither value nor secret, with a key
// twice, with TASK_DESCRIPTION or a key that begins with CAPSTAN_, or with a name or value that no
// process could be given; `field` names the entry. Null = fine. Executor profiles have no such
// rule.
Outcome checkAgentProfileVariables(kj::ArrayPtr<const Variable> entries);

}  // namespace capstan
