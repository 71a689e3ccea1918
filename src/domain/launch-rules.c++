#include "domain/launch-rules.h"

#include <kj/debug.h>
#include <kj/map.h>

#include <cstring>

namespace capstan {

namespace {

// A NUL would silently cut the text where the kernel reads it.
bool hasNul(kj::StringPtr text) { return std::memchr(text.begin(), 0, text.size()) != nullptr; }

Problem invalid(kj::StringPtr field, kj::String message) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(message)).at(kj::str(field));
}

Outcome checkCommand(kj::ArrayPtr<const kj::String> command, const Limits& limits) {
  if (command.size() == 0 || command[0].size() == 0) {
    return invalid("spec.command", kj::str("no command given"))
        .advise(kj::str("name the program and its arguments"));
  }
  if (command.size() > limits.commandWords) {
    return invalid("spec.command", kj::str("the command has ", command.size(), " words, at most ",
                                           limits.commandWords, " are taken"));
  }
  size_t total = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    if (hasNul(command[i])) {
      return invalid(kj::str("spec.command[", i, "]"), kj::str("a word holds a NUL character"));
    }
    total += command[i].size() + 1;
  }
  if (total > limits.commandBytes) {
    return invalid("spec.command", kj::str("the command has ", total, " bytes, at most ",
                                           limits.commandBytes, " are taken"));
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
    if (variable.origin == Origin::UNSET) {
      return invalid(kj::str(field, ".origin"), kj::str("the variable's origin is not set"));
    }
    if (hasNul(variable.key) || variable.key.findFirst('=') != nullptr) {
      return invalid(kj::str(field, ".key"),
                     kj::str("a variable's name may hold neither '=' nor a NUL character"));
    }
    if (hasNul(variable.literal)) {
      return invalid(kj::str(field, ".literal"),
                     kj::str("the value of ", variable.key, " holds a NUL character"));
    }
    total += variable.key.size() + variable.literal.size() + 2;
  }
  if (total > limits.commandBytes) {
    return invalid("spec.variables", kj::str("the variables have ", total, " bytes, at most ",
                                             limits.commandBytes, " are taken"));
  }
  return nullptr;
}

bool isBlank(kj::StringPtr text) {
  for (char c: text) {
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\v' && c != '\f') return false;
  }
  return true;
}

}  // namespace

Outcome checkLaunch(const LaunchSpec& spec, const Limits& limits) {
  if (spec.requestId.size() != 0 && spec.requestId.size() != REQUEST_ID_BYTES) {
    return invalid("spec.requestId", kj::str("a request id has ", REQUEST_ID_BYTES, " octets"));
  }
  KJ_IF_MAYBE (problem, checkCommand(spec.command, limits)) {
    return kj::mv(*problem);
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

Outcome checkEnvironment(const EnvironmentSpec& spec, const Limits& limits) {
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
  KJ_IF_MAYBE (directory, spec.directory) {
    if (!directory->startsWith("/") || hasNul(*directory) || directory->size() > limits.textBytes) {
      return invalid("spec.workspace.directory",
                     kj::str("the workspace's directory must be an absolute path"));
    }
  }
  return nullptr;
}

bool isInheritedName(kj::StringPtr name) {
  static constexpr kj::StringPtr NAMES[] = {"HOME"_kj, "USER"_kj, "LOGNAME"_kj, "SHELL"_kj,
                                            "LANG"_kj, "TZ"_kj,   "TMPDIR"_kj,  "PATH"_kj};
  for (auto& known: NAMES) {
    if (name == known) return true;
  }
  return name.startsWith("LC_");
}

Result<kj::Array<ProcessVariable>> assembleVariables(kj::ArrayPtr<const ProcessVariable> inherited,
                                                     const ProcessIdentity& identity,
                                                     kj::ArrayPtr<const Variable> definitions) {
  struct Value {
    kj::String value;
    bool fixed;  // Capstan's own or defined by the spec: must not be contradicted.
  };
  kj::TreeMap<kj::String, Value> values;
  auto set = [&](kj::StringPtr key, kj::StringPtr value, bool fixed) {
    values.upsert(kj::str(key), Value{kj::str(value), fixed},
                  [](Value& old, Value&& next) { old = kj::mv(next); });
  };
  for (auto& variable: inherited)
    set(variable.key, variable.value, false);
  set("CAPSTAN_TASK_ID", identity.taskId, true);
  set("CAPSTAN_ENVIRONMENT_ID", identity.environmentId, true);
  if (identity.sessionId.size() > 0) set("CAPSTAN_SESSION_ID", identity.sessionId, true);
  if (identity.runId.size() > 0) set("CAPSTAN_RUN_ID", identity.runId, true);

  for (auto& variable: definitions) {
    if (isBlank(variable.key)) continue;
    if (variable.secret.size() > 0) {
      return Problem(ErrorCode::NOT_FOUND,
                     kj::str("no secret named '", variable.secret, "' may be used here"))
          .at(kj::str("variables.", variable.key));
    }
    KJ_IF_MAYBE (present, values.find(variable.key)) {
      if (present->fixed && present->value != variable.literal) {
        return Problem(ErrorCode::VARIABLE_CONFLICT,
                       kj::str("the variable ", variable.key, " is defined with different values"))
            .at(kj::str("variables.", variable.key))
            .advise(kj::str("keep one definition of ", variable.key));
      }
    }
    set(variable.key, variable.literal, true);
  }

  auto result = kj::heapArrayBuilder<ProcessVariable>(values.size());
  for (auto& entry: values) {
    result.add(ProcessVariable{kj::mv(entry.key), kj::mv(entry.value.value)});
  }
  return result.finish();
}

}  // namespace capstan
