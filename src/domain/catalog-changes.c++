#include "domain/catalog-changes.h"

#include "domain/executors.h"
#include "domain/variables-assembly.h"
#include "domain/variables.h"

#include <kj/map.h>

#include <algorithm>
#include <cstdlib>

namespace capstan {

namespace {

constexpr size_t MOST_NAME = 100;
constexpr size_t MOST_KEY = 128;
constexpr size_t MOST_SECRET_NAME = 128;
// Only a probe that saw the key may write it.
constexpr kj::StringPtr FINGERPRINT = "ssh_host_fingerprint"_kj;

Problem invalid(kj::String field, kj::String message) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(message)).at(kj::mv(field));
}

bool isLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool isControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// An empty text may have no octets to look at.
bool hasNul(kj::StringPtr text) { return text.size() > 0 && text.findFirst('\0') != nullptr; }

// Null = fine.
Outcome checkName(kj::StringPtr name) {
  auto refused = [&](kj::StringPtr cause) {
    return invalid(kj::str("name"), kj::str("the name cannot be used")).because(kj::str(cause));
  };
  if (name.size() == 0) return refused("it is empty");
  if (name.size() > MOST_NAME) return refused("it is longer than 100 bytes");
  if (std::any_of(name.begin(), name.end(), isControl)) {
    return refused("it holds control characters");
  }
  if (name[0] == ' ' || name[name.size() - 1] == ' ') {
    return refused("it begins or ends with a blank");
  }
  if (name[0] == '-') return refused("it begins with '-', like an option");
  if (name.startsWith("exec-") || name.startsWith("prof-")) {
    return refused("it begins like an id");
  }
  return nullptr;
}

// ---- config

bool isWholeNumber(kj::StringPtr text, uint32_t least, uint32_t most) {
  if (text.size() == 0 || text.size() > 6) return false;
  for (char c: text) {
    if (c < '0' || c > '9') return false;
  }
  auto number = std::strtoul(text.cStr(), nullptr, 10);
  return number >= least && number <= most;
}

bool isPort(kj::StringPtr text) { return isWholeNumber(text, 1, 65535); }
bool isRequestTimeout(kj::StringPtr text) { return isWholeNumber(text, 1, 300); }
bool isAuthMode(kj::StringPtr text) { return text == "kubeconfig" || text == "in_cluster"; }
bool isAbsolutePath(kj::StringPtr text) { return text.startsWith("/"); }
bool isIdentitySource(kj::StringPtr text) { return text == "agent" || text == "file"; }
bool isPrepareFailure(kj::StringPtr text) { return text == "fail" || text == "warn"; }

// RFC 1123: what a cluster takes as a namespace.
bool isDnsLabel(kj::StringPtr text) {
  if (text.size() == 0 || text.size() > 63) return false;
  for (char c: text) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-') return false;
  }
  return text[0] != '-' && text[text.size() - 1] != '-';
}

// Keys whose form is known. Others are the business of the runtime that reads them.
struct KeyRule {
  kj::StringPtr type;  // Of the executor; empty = a profile's key.
  kj::StringPtr key;
  bool (*fits)(kj::StringPtr value);
  kj::StringPtr form;
};
constexpr KeyRule KEYS[] = {
    {"ssh"_kj, "ssh_port"_kj, isPort, "a port from 1 to 65535"_kj},
    {"remote_docker"_kj, "ssh_port"_kj, isPort, "a port from 1 to 65535"_kj},
    {"ssh"_kj, "ssh_identity_source"_kj, isIdentitySource, "agent or file"_kj},
    {"k8s"_kj, "auth_mode"_kj, isAuthMode, "kubeconfig or in_cluster"_kj},
    {"k8s"_kj, "kubeconfig_path"_kj, isAbsolutePath, "an absolute path"_kj},
    {"k8s"_kj, "namespace"_kj, isDnsLabel, "1 to 63 of a-z 0-9 -, no '-' at either end"_kj},
    {"k8s"_kj, "request_timeout_seconds"_kj, isRequestTimeout, "seconds from 1 to 300"_kj},
    {""_kj, "prepare_failure"_kj, isPrepareFailure, "fail or warn"_kj},
};

bool isConfigKey(kj::StringPtr key) {
  if (key.size() == 0 || key.size() > MOST_KEY) return false;
  for (char c: key) {
    if (!isLetterOrDigit(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

kj::StringPtr valueOf(kj::ArrayPtr<const Label> config, kj::StringPtr key) {
  for (auto& pair: config) {
    if (pair.key == key) return pair.value;
  }
  return nullptr;
}

// Sorted, without empty values, and checked. `type` is empty for a profile.
Result<kj::Array<Label>> checkedConfig(kj::ArrayPtr<const Label> given, kj::StringPtr type,
                                       const Limits& limits) {
  kj::Vector<Label> kept;
  size_t bytes = 0;
  auto config = KJ_MAP(pair, given) { return Label{kj::str(pair.key), kj::str(pair.value)}; };
  std::sort(config.begin(), config.end(),
            [](const Label& a, const Label& b) { return a.key < b.key; });
  for (auto i: kj::indices(config)) {
    auto& pair = config[i];
    auto field = kj::str("config.", pair.key);
    if (!isConfigKey(pair.key)) {
      return invalid(kj::str("config"), kj::str("a config key cannot be used"))
          .because(kj::str("keys are 1 to 128 of A-Z a-z 0-9 . _ -"));
    }
    if (i + 1 < config.size() && config[i + 1].key == pair.key) {
      return invalid(kj::mv(field), kj::str("the config key ", pair.key, " is there twice"));
    }
    if (hasNul(pair.value)) {
      return invalid(kj::mv(field), kj::str("the value holds a NUL character"));
    }
    if (pair.value.size() == 0) continue;
    for (auto& rule: KEYS) {
      if (rule.type == type && rule.key == pair.key && !rule.fits(pair.value)) {
        return invalid(kj::mv(field), kj::str(pair.key, " is to be ", rule.form));
      }
    }
    bytes += pair.key.size() + pair.value.size();
    kept.add(kj::mv(pair));
  }
  if (bytes > limits.configBytes) {
    return invalid(kj::str("config"), kj::str("the config has ", bytes, " bytes, at most ",
                                              limits.configBytes, " are kept"));
  }
  return kept.releaseAsArray();
}

Outcome checkFingerprint(kj::ArrayPtr<const Label> present, kj::ArrayPtr<const Label> next) {
  auto value = valueOf(next, FINGERPRINT);
  if (value.size() == 0 || value == valueOf(present, FINGERPRINT)) return nullptr;
  return invalid(kj::str("config.", FINGERPRINT), kj::str("a fingerprint cannot be set"))
      .because(kj::str("a host key is trusted only once it has been seen, by whoever compares it"))
      .advise(kj::str("leave ", FINGERPRINT, " out"));
}

Outcome checkVersion(kj::StringPtr what, kj::StringPtr id, uint64_t seen, uint64_t present) {
  if (seen == ANY_VERSION || seen == present) return nullptr;
  return Problem(ErrorCode::WRONG_STATE,
                 kj::str("the ", what, " '", id, "' was changed since it was read"))
      .because(kj::str("it is at version ", present, ", not ", seen))
      .advise(kj::str("read it again and repeat the change"))
      .retryable(RetryHint::AFTER_REFRESH);
}

// Refuses a change of no row that does not say it makes one.
Outcome checkNew(kj::StringPtr what, kj::StringPtr id, uint64_t ifVersion) {
  if (id.size() == 0 && ifVersion == NEW_ROW) return nullptr;
  return invalid(kj::str("id"), kj::str("a new ", what, " is given its id"))
      .advise(kj::str("give id and version of the row to be changed, or neither"));
}

bool changes(const kj::Maybe<kj::String>& to, kj::StringPtr from) {
  KJ_IF_MAYBE (text, to) {
    return *text != from;
  }
  return false;
}

// Puts what is given in the place of what is there.
void replace(kj::String& field, const kj::Maybe<kj::String>& given) {
  KJ_IF_MAYBE (value, given) {
    field = kj::str(*value);
  }
}

Outcome checkScript(kj::StringPtr field, kj::StringPtr script, const Limits& limits) {
  if (hasNul(script)) return invalid(kj::str(field), kj::str("the script holds a NUL character"));
  if (script.size() <= limits.scriptBytes) return nullptr;
  return invalid(kj::str(field), kj::str("the script has ", script.size(), " bytes, at most ",
                                         limits.scriptBytes, " are kept"));
}

size_t textBytes(const Variable& variable) {
  return variable.key.size() + variable.literal.size() + variable.secret.size() +
         variable.otherOrigin.size() + variable.repository.size() + variable.tenantId.size();
}

size_t bytesOfText(const kj::Maybe<kj::String>& text) {
  KJ_IF_MAYBE (given, text) {
    return given->size();
  }
  return 0;
}

size_t bytesOfPairs(const kj::Maybe<kj::Array<Label>>& pairs) {
  size_t bytes = 0;
  KJ_IF_MAYBE (given, pairs) {
    for (auto& pair: *given)
      bytes += sizeof(pair) + pair.key.size() + pair.value.size();
  }
  return bytes;
}

Outcome checkVariables(kj::ArrayPtr<Variable> variables, const Limits& limits) {
  if (variables.size() > limits.variables) {
    return invalid(kj::str("variables"), kj::str(variables.size(), " variables given, at most ",
                                                 limits.variables, " are kept"));
  }
  size_t bytes = 0;
  for (auto i: kj::indices(variables)) {
    auto& variable = variables[i];
    auto path = kj::str("variables[", i, "]");
    variable.origin = Origin::EXECUTOR_PROFILE;
    KJ_IF_MAYBE (problem, checkVariableShape(variable, path)) {
      return kj::mv(*problem);
    }
    if (variable.secret.size() > 0) {
      KJ_IF_MAYBE (problem, checkSecretName(variable.secret)) {
        return kj::mv(*problem).at(kj::str(path, ".secret"));
      }
    }
    bytes += textBytes(variable);
  }
  if (bytes > limits.commandBytes) {
    return invalid(kj::str("variables"), kj::str("the variables have ", bytes, " bytes, at most ",
                                                 limits.commandBytes, " are kept"));
  }
  return validateVariables(
      executorProfileDefinitions(variables, AssemblyPath::RECOVERY, PreferredShell::NONE));
}

}  // namespace

Outcome checkSecretName(kj::StringPtr name) {
  bool fits = name.size() > 0 && name.size() <= MOST_SECRET_NAME && isLetterOrDigit(name[0]);
  for (char c: name) {
    fits = fits && (isLetterOrDigit(c) || c == '.' || c == '_' || c == '-' || c == '/');
  }
  if (fits) return nullptr;
  return invalid(kj::str("name"), kj::str("the secret's name cannot be used"))
      .because(kj::str("names are 1 to 128 of A-Z a-z 0-9 . _ - /, the first a letter or digit"));
}

size_t bytesOf(const ExecutorChange& change) {
  return sizeof(change) + bytesOfText(change.name) + bytesOfPairs(change.config);
}

size_t bytesOf(const ProfileChange& change) {
  size_t bytes = sizeof(change) + bytesOfText(change.name) + bytesOfText(change.mcpPolicy) +
                 bytesOfText(change.prepareScript) + bytesOfText(change.cleanupScript) +
                 bytesOfPairs(change.config);
  KJ_IF_MAYBE (variables, change.variables) {
    for (auto& variable: *variables)
      bytes += sizeof(variable) + textBytes(variable);
  }
  return bytes;
}

Result<ExecutorRecord> applied(kj::Maybe<const ExecutorRecord&> present,
                               const ExecutorChange& change, const Limits& limits, UnixMs now) {
  ExecutorRecord row;
  KJ_IF_MAYBE (old, present) {
    KJ_IF_MAYBE (problem, checkVersion("executor", old->id, change.ifVersion, old->version)) {
      return kj::mv(*problem);
    }
    row = clone(*old);
  } else {
    KJ_IF_MAYBE (problem, checkNew("executor", change.id, change.ifVersion)) {
      return kj::mv(*problem);
    }
    row.createdAt = now;
  }
  if (present == nullptr || change.type != nullptr) {
    kj::StringPtr type;
    KJ_IF_MAYBE (given, change.type) {
      type = *given;
    }
    auto runtime = runtimeOf(type);
    if (runtime.is<Problem>()) return kj::mv(runtime.get<Problem>());
    if (type == "local") type = "local_pc"_kj;
    if (present != nullptr && type != row.type) {
      return Problem(ErrorCode::WRONG_STATE,
                     kj::str("the executor '", row.id, "' is of type ", row.type))
          .because(kj::str("a type is fixed: what was made under it would be lost sight of"))
          .at(kj::str("type"))
          .advise(kj::str("add another executor"));
    }
    row.type = kj::str(type);
  }
  KJ_IF_MAYBE (status, change.status) {
    if (*status != "active" && *status != "disabled") {
      return invalid(kj::str("status"), kj::str("a status is active or disabled"));
    }
    row.status = *status == "active" ? ExecutorStatus::ACTIVE : ExecutorStatus::DISABLED;
  }
  if (present == nullptr || changes(change.name, row.name)) {
    replace(row.name, change.name);
    KJ_IF_MAYBE (problem, checkName(row.name)) {
      return kj::mv(*problem);
    }
  }
  KJ_IF_MAYBE (config, change.config) {
    KJ_IF_MAYBE (problem, checkFingerprint(row.config, *config)) {
      return kj::mv(*problem);
    }
    auto checked = checkedConfig(*config, row.type, limits);
    if (checked.is<Problem>()) return kj::mv(checked.get<Problem>());
    row.config = kj::mv(checked.get<kj::Array<Label>>());
  }
  row.updatedAt = now;
  return kj::mv(row);
}

Result<ProfileRecord> applied(kj::Maybe<const ProfileRecord&> present, const ProfileChange& change,
                              const Limits& limits, UnixMs now) {
  ProfileRecord row;
  KJ_IF_MAYBE (old, present) {
    KJ_IF_MAYBE (problem, checkVersion("profile", old->id, change.ifVersion, old->version)) {
      return kj::mv(*problem);
    }
    row = clone(*old);
    if (changes(change.executorId, row.executorId)) {
      return Problem(
                 ErrorCode::WRONG_STATE,
                 kj::str("the profile '", row.id, "' belongs to executor '", row.executorId, "'"))
          .at(kj::str("executorId"))
          .advise(kj::str("add a profile to the other executor"));
    }
  } else {
    KJ_IF_MAYBE (problem, checkNew("profile", change.id, change.ifVersion)) {
      return kj::mv(*problem);
    }
    row.createdAt = now;
    replace(row.executorId, change.executorId);
  }
  if (present == nullptr || changes(change.name, row.name)) {
    replace(row.name, change.name);
    KJ_IF_MAYBE (problem, checkName(row.name)) {
      return kj::mv(*problem);
    }
  }
  replace(row.mcpPolicy, change.mcpPolicy);
  if (hasNul(row.mcpPolicy) || row.mcpPolicy.size() > limits.textBytes) {
    return invalid(kj::str("mcpPolicy"), kj::str("the MCP policy has no NUL character and at most ",
                                                 limits.textBytes, " bytes"));
  }
  KJ_IF_MAYBE (config, change.config) {
    auto checked = checkedConfig(*config, nullptr, limits);
    if (checked.is<Problem>()) return kj::mv(checked.get<Problem>());
    row.config = kj::mv(checked.get<kj::Array<Label>>());
  }
  replace(row.prepareScript, change.prepareScript);
  replace(row.cleanupScript, change.cleanupScript);
  KJ_IF_MAYBE (problem, checkScript("prepareScript", row.prepareScript, limits)) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, checkScript("cleanupScript", row.cleanupScript, limits)) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (variables, change.variables) {
    row.variables = KJ_MAP(variable, *variables) { return variable.clone(); };
    KJ_IF_MAYBE (problem, checkVariables(row.variables, limits)) {
      return kj::mv(*problem);
    }
  }
  row.updatedAt = now;
  return kj::mv(row);
}

}  // namespace capstan
