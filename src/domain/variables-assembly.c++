#include "domain/variables-assembly.h"

#include "domain/variables.h"

#include <kj/map.h>
#include <kj/vector.h>

namespace capstan {

namespace {

bool isBlankEntry(const Variable& entry) {
  return entry.literal.size() == 0 && entry.secret.size() == 0;
}

bool namesShell(kj::StringPtr key) { return key == "SHELL" || key == "AGENTCTL_SHELL_COMMAND"; }

Problem refused(size_t index, kj::StringPtr part, kj::String message) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(message))
      .at(kj::str("variables[", index, "]", part));
}

}  // namespace

bool isBlankProfileEntry(const Variable& definition) {
  bool ofProfile =
      definition.origin == Origin::EXECUTOR_PROFILE || definition.origin == Origin::AGENT_PROFILE;
  return ofProfile && isBlankEntry(definition);
}

kj::Array<Variable> executorProfileDefinitions(kj::ArrayPtr<const Variable> entries,
                                               AssemblyPath path, PreferredShell shell) {
  bool withoutShell = path == AssemblyPath::PRIMARY && shell == PreferredShell::APPLIES;
  kj::Vector<Variable> definitions;
  for (auto& entry: entries) {
    if (isBlankEntry(entry) || (withoutShell && namesShell(entry.key))) continue;
    definitions.add(entry.clone()).origin = Origin::EXECUTOR_PROFILE;
  }
  return definitions.releaseAsArray();
}

kj::Array<Variable> agentProfileDefinitions(kj::ArrayPtr<const Variable> entries) {
  kj::Vector<Variable> definitions;
  for (auto& entry: entries) {
    if (!isBlankEntry(entry)) definitions.add(entry.clone()).origin = Origin::AGENT_PROFILE;
  }
  return definitions.releaseAsArray();
}

Outcome checkAgentProfileVariables(kj::ArrayPtr<const Variable> entries) {
  kj::HashSet<kj::StringPtr> keys;
  for (size_t i = 0; i < entries.size(); ++i) {
    auto& entry = entries[i];
    KJ_IF_MAYBE (problem, checkVariableShape(entry, kj::str("variables[", i, "]"))) {
      return kj::mv(*problem);
    }
    if (isBlankEntry(entry)) {
      return refused(i, "", kj::str("the variable ", entry.key, " has neither value nor secret"));
    }
    if (keys.contains(entry.key)) {
      return refused(i, ".key", kj::str("the variable ", entry.key, " is there twice"));
    }
    keys.insert(entry.key);
    if (entry.key == "TASK_DESCRIPTION" || entry.key.startsWith("CAPSTAN_")) {
      return refused(i, ".key",
                     kj::str("the variable ", entry.key, " is Capstan's own and not a profile's"));
    }
  }
  return nullptr;
}

}  // namespace capstan
