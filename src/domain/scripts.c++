#include "domain/scripts.h"

#include <kj/vector.h>

namespace capstan {

namespace {

struct Placeholder {
  kj::StringPtr name;
  kj::StringPtr variable;
  kj::StringPtr ScriptFacts::* value;
};
constexpr Placeholder PLACEHOLDERS[] = {
    {"workspace"_kj, "CAPSTAN_WORKSPACE"_kj, &ScriptFacts::workspace},
    {"task_id"_kj, "CAPSTAN_TASK_ID"_kj, &ScriptFacts::taskId},
    {"task_title"_kj, "CAPSTAN_TASK_TITLE"_kj, &ScriptFacts::taskTitle},
    {"session_id"_kj, "CAPSTAN_SESSION_ID"_kj, &ScriptFacts::sessionId},
    {"environment_id"_kj, "CAPSTAN_ENVIRONMENT_ID"_kj, &ScriptFacts::environmentId},
    {"repository_url"_kj, "CAPSTAN_REPOSITORY_URL"_kj, &ScriptFacts::repositoryUrl},
    {"branch"_kj, "CAPSTAN_BRANCH"_kj, &ScriptFacts::branch},
    {"git_user_name"_kj, "CAPSTAN_GIT_USER_NAME"_kj, &ScriptFacts::gitUserName},
    {"git_user_email"_kj, "CAPSTAN_GIT_USER_EMAIL"_kj, &ScriptFacts::gitUserEmail},
};

constexpr kj::ArrayPtr<const Placeholder> ALL(PLACEHOLDERS, kj::size(PLACEHOLDERS));

using Text = kj::ArrayPtr<const char>;

kj::Maybe<const Placeholder&> findPlaceholder(Text name) {
  for (auto& each: PLACEHOLDERS) {
    if (each.name.asArray() == name) return each;
  }
  return nullptr;
}

bool isNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool isName(Text text) {
  if (text.size() == 0 || (text[0] >= '0' && text[0] <= '9')) return false;
  for (char c: text) {
    if (!isNameCharacter(c)) return false;
  }
  return true;
}

Text trimmed(Text text) {
  auto isBlank = [](char c) { return c == ' ' || c == '\t'; };
  while (text.size() > 0 && isBlank(text[0]))
    text = text.slice(1, text.size());
  while (text.size() > 0 && isBlank(text.back()))
    text = text.slice(0, text.size() - 1);
  return text;
}

// Where "}}" begins on the same line.
kj::Maybe<size_t> closing(Text text) {
  for (size_t i = 0; i + 1 < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '}' && text[i + 1] == '}') return i;
  }
  return nullptr;
}

kj::String knownNames() {
  auto names = KJ_MAP(each, ALL) { return kj::str("{{", each.name, "}}"); };
  return kj::strArray(names, " ");
}

bool isShell(kj::StringPtr shell) {
  if (shell.size() > 255 || shell.startsWith("-")) return false;
  for (char c: shell) {
    if (!isNameCharacter(c) && c != '/' && c != '.' && c != '-' && c != '+') return false;
  }
  // A relative path would depend on the workspace's content.
  return shell.findFirst('/') == nullptr || shell.startsWith("/");
}

}  // namespace

kj::Array<ProcessVariable> scriptVariables(const ScriptFacts& facts) {
  return KJ_MAP(each, ALL) {
    return ProcessVariable{kj::str(each.variable), kj::str(facts.*each.value)};
  };
}

Result<kj::String> fillScript(kj::StringPtr script, kj::StringPtr field) {
  kj::Vector<char> out(script.size() + 64);
  Text rest = script.asArray();
  auto pass = [&](size_t count) {
    out.addAll(rest.slice(0, count));
    rest = rest.slice(count, rest.size());
  };
  while (rest.size() > 0) {
    if (rest.size() < 4 || rest[0] != '{' || rest[1] != '{') {
      pass(1);
      continue;
    }
    auto inside = rest.slice(2, rest.size());
    auto end = closing(inside);
    size_t length = 0;
    KJ_IF_MAYBE (found, end) {
      length = *found;
    }
    auto exact = inside.slice(0, length);
    auto name = trimmed(exact);
    if (exact.size() > name.size() && findPlaceholder(name) != nullptr) {
      return Problem(ErrorCode::INVALID_ARGUMENT,
                     kj::str("the script has a placeholder with blanks: {{", exact, "}}"))
          .at(kj::str(field))
          .advise(kj::str("write {{", name, "}}"));
    }
    if (!isName(exact)) {
      pass(1);
      continue;
    }
    KJ_IF_MAYBE (placeholder, findPlaceholder(exact)) {
      out.addAll(kj::str("\"$", placeholder->variable, '"'));
      rest = rest.slice(length + 4, rest.size());
    } else {
      return Problem(ErrorCode::INVALID_ARGUMENT,
                     kj::str("the script has an unknown placeholder: {{", exact, "}}"))
          .at(kj::str(field))
          .advise(kj::str("there are ", knownNames()));
    }
  }
  return kj::heapString(out.asPtr());
}

kj::String wrapScript(kj::StringPtr filled) { return kj::str("{ :; ", filled, "\n} </dev/null\n"); }

bool isEmptyScript(kj::StringPtr script) {
  for (char c: script) {
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return false;
  }
  return true;
}

Result<ScriptOptions> readScriptOptions(kj::ArrayPtr<const Label> config) {
  ScriptOptions options;
  for (auto& entry: config) {
    if (entry.key == "shell") {
      if (!isShell(entry.value)) {
        return Problem(ErrorCode::INVALID_ARGUMENT,
                       kj::str("'", entry.value, "' is no name or absolute path of a shell"))
            .at(kj::str("config.shell"))
            .advise(kj::str("give the program alone, without options"));
      }
      options.shell = kj::str(entry.value);
    } else if (entry.key == "prepare_failure") {
      if (entry.value == "warn") {
        options.prepareFailure = PrepareFailure::WARN;
      } else if (entry.value.size() > 0 && entry.value != "fail") {
        return Problem(ErrorCode::INVALID_ARGUMENT,
                       kj::str("prepare_failure is fail or warn, not '", entry.value, "'"))
            .at(kj::str("config.prepare_failure"));
      }
    } else if (entry.key == "git_user_name") {
      options.gitUserName = kj::str(entry.value);
    } else if (entry.key == "git_user_email") {
      options.gitUserEmail = kj::str(entry.value);
    }
  }
  return kj::mv(options);
}

}  // namespace capstan
