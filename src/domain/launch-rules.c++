#include "domain/launch-rules.h"

#include "domain/variables-assembly.h"

#include <kj/map.h>
#include <kj/vector.h>

#include <cstring>

namespace capstan {

namespace {

// A NUL would silently cut the text where the kernel reads it.
bool hasNul(kj::StringPtr text) { return std::memchr(text.begin(), 0, text.size()) != nullptr; }

Problem invalid(kj::StringPtr field, kj::String message) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(message)).at(kj::str(field));
}

// A token becomes a variable of a process: the kernel takes 128 KiB.
constexpr size_t PROGRESS_BYTES = 64u << 10;
constexpr kj::StringPtr RESUME_TOKEN = "CAPSTAN_RESUME_TOKEN"_kj;

Outcome checkCommand(kj::StringPtr field, kj::ArrayPtr<const kj::String> command,
                     const Limits& limits) {
  if (command.size() == 0 || command[0].size() == 0) {
    return invalid(field, kj::str("no command given"))
        .advise(kj::str("name the program and its arguments"));
  }
  if (command.size() > limits.commandWords) {
    return invalid(field, kj::str("the command has ", command.size(), " words, at most ",
                                  limits.commandWords, " are taken"));
  }
  size_t total = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    if (hasNul(command[i])) {
      return invalid(kj::str(field, "[", i, "]"), kj::str("a word holds a NUL character"));
    }
    total += command[i].size() + 1;
  }
  if (total > limits.commandBytes) {
    return invalid(field, kj::str("the command has ", total, " bytes, at most ",
                                  limits.commandBytes, " are taken"));
  }
  return nullptr;
}

Outcome checkOrigin(const Variable& variable, kj::StringPtr field, const Limits& limits) {
  if (variable.origin == Origin::UNSET) {
    return invalid(kj::str(field, ".origin"), kj::str("the variable's origin is not set"));
  }
  if (variable.origin == Origin::REPOSITORY && variable.secret.size() == 0) {
    return invalid(kj::str(field, ".secret"),
                   kj::str("a repository can give ", variable.key, " by secret only"));
  }
  struct Part {
    kj::StringPtr name;
    kj::StringPtr text;
  };
  for (auto& part:
       {Part{".secret", variable.secret}, Part{".otherOrigin", variable.otherOrigin},
        Part{".repository", variable.repository}, Part{".tenantId", variable.tenantId}}) {
    if (hasNul(part.text) || part.text.size() > limits.textBytes) {
      return invalid(
          kj::str(field, part.name),
          kj::str("a name holds no NUL character and at most ", limits.textBytes, " bytes"));
    }
  }
  return nullptr;
}

Outcome checkVariables(kj::ArrayPtr<const Variable> variables, const Limits& limits) {
  if (variables.size() > limits.variables) {
    return invalid("spec.variables", kj::str(variables.size(), " variables given, at most ",
                                             limits.variables, " are taken"));
  }
  size_t total = 0;
  for (size_t i = 0; i < variables.size(); ++i) {
    auto& variable = variables[i];
    auto field = kj::str("spec.variables[", i, "]");
    KJ_IF_MAYBE (problem, checkVariableShape(variable, field)) {
      return kj::mv(*problem);
    }
    KJ_IF_MAYBE (problem, checkOrigin(variable, field, limits)) {
      return kj::mv(*problem);
    }
    total += variable.key.size() + variable.literal.size() + 2;
  }
  if (total > limits.commandBytes) {
    return invalid("spec.variables", kj::str("the variables have ", total, " bytes, at most ",
                                             limits.commandBytes, " are taken"));
  }
  return nullptr;
}

// Capstan's own variables.
void addManaged(kj::Vector<Variable>& definitions, kj::StringPtr key, kj::StringPtr value) {
  if (value.size() == 0) return;
  auto& definition = definitions.add();
  definition.key = kj::str(key);
  definition.literal = kj::str(value);
  definition.origin = Origin::MANAGED_RUNTIME;
}

}  // namespace

Outcome checkLaunch(const LaunchSpec& spec, const Limits& limits) {
  if (spec.requestId.size() != 0 && spec.requestId.size() != REQUEST_ID_BYTES) {
    return invalid("spec.requestId", kj::str("a request id has ", REQUEST_ID_BYTES, " octets"));
  }
  KJ_IF_MAYBE (problem, checkCommand("spec.command", spec.command, limits)) {
    return kj::mv(*problem);
  }
  if (spec.resumeCommand.size() > 0) {
    KJ_IF_MAYBE (problem, checkCommand("spec.resumeCommand", spec.resumeCommand, limits)) {
      return kj::mv(*problem);
    }
  }
  KJ_IF_MAYBE (problem, checkVariables(spec.variables, limits)) {
    return kj::mv(*problem);
  }
  if (hasNul(spec.workingDirectory) || spec.workingDirectory.size() > limits.textBytes) {
    return invalid("spec.workingDirectory", kj::str("not a usable path"));
  }
  KJ_IF_MAYBE (terminal, spec.terminal) {
    if (terminal->term.size() > 64 || hasNul(terminal->term)) {
      return invalid("spec.terminal.term", kj::str("not a usable terminal name"));
    }
  }
  return nullptr;
}

Outcome checkResume(const LaunchSpec& spec, const Limits& limits) {
  if (spec.requestId.size() != 0 && spec.requestId.size() != REQUEST_ID_BYTES) {
    return invalid("spec.requestId", kj::str("a request id has ", REQUEST_ID_BYTES, " octets"));
  }
  kj::StringPtr field;
  if (spec.command.size() > 0) field = "spec.command";
  if (spec.variables.size() > 0) field = "spec.variables";
  if (spec.workingDirectory.size() > 0) field = "spec.workingDirectory";
  if (spec.terminal != nullptr) field = "spec.terminal";
  if (spec.pauseWhenFull) field = "spec.pauseWhenFull";
  if (field.size() > 0) {
    return invalid(field, kj::str("a resume repeats the session's own launch"))
        .advise(kj::str("give resumeCommand for another command, or launch a new session"));
  }
  if (spec.resumeCommand.size() == 0) return nullptr;
  return checkCommand("spec.resumeCommand", spec.resumeCommand, limits);
}

LaunchSpec resumedLaunch(LaunchSpec stored, const LaunchSpec& wanted) {
  auto copied = [](kj::ArrayPtr<const kj::String> words) {
    return KJ_MAP(word, words) { return kj::str(word); };
  };
  if (wanted.resumeCommand.size() > 0) stored.resumeCommand = copied(wanted.resumeCommand);
  if (stored.resumeCommand.size() > 0) stored.command = copied(stored.resumeCommand);
  stored.requestId = kj::heapArray<kj::byte>(wanted.requestId);
  stored.wait = wanted.wait;
  stored.start = wanted.start;
  stored.deadline = wanted.deadline;
  return stored;
}

Outcome checkProgress(const SavedProgress& progress, const Limits& limits) {
  if (progress.runId.size() == 0) {
    return invalid("runId", kj::str("no run is named")).advise(kj::str("Run.id() tells it"));
  }
  struct Part {
    kj::StringPtr field;
    const kj::String& text;
    size_t most;
  };
  for (auto& part: {Part{"resumeToken", progress.resumeToken, PROGRESS_BYTES},
                    Part{"lastMessageId", progress.lastMessageId, limits.textBytes},
                    Part{"contextJson", progress.context, PROGRESS_BYTES}}) {
    if (part.text.size() > part.most) {
      return invalid(part.field, kj::str("more than ", part.most, " bytes"));
    }
    if (hasNul(part.text)) return invalid(part.field, kj::str("a NUL character"));
  }
  return nullptr;
}

Outcome checkEnvironment(const EnvironmentSpec& spec, const Limits& limits, Caller caller) {
  if (spec.requestId.size() != 0 && spec.requestId.size() != REQUEST_ID_BYTES) {
    return invalid("spec.requestId", kj::str("a request id has ", REQUEST_ID_BYTES, " octets"));
  }
  if (spec.title.size() > limits.textBytes) {
    return invalid("spec.title", kj::str("the title has more than ", limits.textBytes, " bytes"));
  }
  if (spec.tenantId.size() > 256) {
    return invalid("spec.tenantId", kj::str("the tenant id has more than 256 bytes"));
  }
  if (spec.labels.size() > limits.labels) {
    return invalid("spec.labels", kj::str("more than ", limits.labels, " labels"));
  }
  for (size_t i = 0; i < spec.labels.size(); ++i) {
    auto& label = spec.labels[i];
    if (isBlank(label.key) || label.key.size() + label.value.size() > limits.textBytes) {
      return invalid(kj::str("spec.labels[", i, "]"),
                     kj::str("a label needs a key and has at most ", limits.textBytes, " bytes"));
    }
  }
  return checkWorkspace(spec.workspace, limits, caller);
}

bool isInheritedName(kj::StringPtr name) {
  static constexpr kj::StringPtr NAMES[] = {"HOME"_kj, "USER"_kj, "LOGNAME"_kj, "SHELL"_kj,
                                            "LANG"_kj, "TZ"_kj,   "TMPDIR"_kj,  "PATH"_kj};
  for (auto& known: NAMES) {
    if (name == known) return true;
  }
  return name.startsWith("LC_");
}

Result<Resolution> assembleVariables(kj::ArrayPtr<const ProcessVariable> inherited,
                                     const ProcessIdentity& identity,
                                     kj::ArrayPtr<const Variable> definitions,
                                     kj::Maybe<RevealSecret&> reveal) {
  kj::Vector<Variable> all(definitions.size() + 4);
  addManaged(all, "CAPSTAN_TASK_ID", identity.taskId);
  addManaged(all, "CAPSTAN_ENVIRONMENT_ID", identity.environmentId);
  addManaged(all, "CAPSTAN_SESSION_ID", identity.sessionId);
  addManaged(all, "CAPSTAN_RUN_ID", identity.runId);
  for (auto& definition: definitions) {
    if (!isBlankProfileEntry(definition)) all.add(definition.clone());
  }
  if (identity.resumeToken != nullptr) {
    for (auto& definition: definitions) {
      if (definition.key != RESUME_TOKEN) continue;
      return Problem(ErrorCode::VARIABLE_CONFLICT,
                     kj::str("the variable ", RESUME_TOKEN, " is defined beside the saved token"))
          .because(kj::str("defined by ", originWords(definition)))
          .advise(kj::str("leave it to Capstan"));
    }
  }
  auto resolved = resolveVariables(all, reveal);
  if (resolved.is<Problem>()) return kj::mv(resolved.get<Problem>());
  auto resolution = kj::mv(resolved.get<Resolution>());

  kj::TreeMap<kj::String, ProcessVariable> byKey;
  auto set = [&](ProcessVariable variable) {
    auto key = kj::str(variable.key);
    byKey.upsert(kj::mv(key), kj::mv(variable),
                 [](ProcessVariable& old, ProcessVariable&& next) { old = kj::mv(next); });
  };
  for (auto& variable: inherited)
    set(ProcessVariable{kj::str(variable.key), kj::str(variable.value), variable.secret});
  for (auto& variable: resolution.variables)
    set(kj::mv(variable));
  KJ_IF_MAYBE (token, identity.resumeToken) {
    set(ProcessVariable{kj::str(RESUME_TOKEN), kj::str(*token), true});
  }

  auto variables = kj::heapArrayBuilder<ProcessVariable>(byKey.size());
  for (auto& entry: byKey)
    variables.add(kj::mv(entry.value));
  resolution.variables = variables.finish();
  return kj::mv(resolution);
}

}  // namespace capstan
