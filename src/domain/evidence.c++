#include "domain/evidence.h"

#include "domain/output-tail.h"

#include <kj/vector.h>

namespace capstan {

namespace {

constexpr kj::StringPtr HIDDEN = "<hidden>"_kj;
constexpr kj::StringPtr PATH = "<path>"_kj;

// What such a word names is never shown.
constexpr kj::StringPtr SECRET_WORDS[] = {
    "token"_kj,  "password"_kj,      "passwd"_kj, "secret"_kj, "apikey"_kj,
    "bearer"_kj, "authorization"_kj, "cookie"_kj, "nonce"_kj,  "credential"_kj,
};
// How tokens of widely used services begin.
constexpr kj::StringPtr TOKEN_FORMS[] = {
    "ghp_"_kj, "gho_"_kj,  "ghs_"_kj,  "github_pat_"_kj, "glpat-"_kj,
    "sk-"_kj,  "xoxb-"_kj, "xoxp-"_kj, "AKIA"_kj,        "eyJ"_kj,
};
constexpr size_t TOKEN_BYTES = 16;  // Shorter words are no tokens.

using Text = kj::ArrayPtr<const char>;

bool isBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool isNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
// What may stand around a word without belonging to it.
bool isBracket(char c) {
  return c == '"' || c == '\'' || c == '`' || c == '(' || c == ')' || c == '[' || c == ']' ||
         c == '{' || c == '}' || c == '<' || c == '>' || c == ',' || c == ';';
}

bool startsWith(Text text, kj::StringPtr begin) {
  return text.size() >= begin.size() && text.slice(0, begin.size()) == begin.asArray();
}

// Letters only and in lower case: "API-Key:" is "apikey".
kj::String plainWord(Text word) {
  kj::Vector<char> out;
  for (char c: word) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c >= 'a' && c <= 'z') out.add(c);
  }
  return kj::heapString(out.asPtr());
}

bool namesSecret(Text word) {
  auto plain = plainWord(word);
  for (auto each: SECRET_WORDS) {
    if (plain == each || plain.endsWith(each) || plain == kj::str(each, "s")) return true;
  }
  return plain.endsWith("key") && plain != "key";
}

bool isToken(Text word) {
  if (word.size() < TOKEN_BYTES) return false;
  for (auto form: TOKEN_FORMS) {
    if (startsWith(word, form)) return true;
  }
  return false;
}

// Where `what` stands in `word`; null = nowhere.
kj::Maybe<size_t> findIn(Text word, kj::StringPtr what) {
  for (size_t i = 0; i + what.size() <= word.size(); ++i) {
    if (startsWith(word.slice(i, word.size()), what)) return i;
  }
  return nullptr;
}

// A value that stands for itself, without blanks.
void addValue(kj::Vector<char>& out, Text value) {
  KJ_IF_MAYBE (colon, findIn(value, "://")) {
    auto rest = value.slice(*colon + 3, value.size());
    size_t end = 0, begin = 0;
    while (end < rest.size() && rest[end] != '/' && rest[end] != '?' && rest[end] != '#') {
      if (rest[end] == '@') begin = end + 1;
      ++end;
    }
    out.addAll(value.slice(0, *colon + 3));
    if (begin > 0) {
      out.addAll(HIDDEN);
      out.add('@');
    }
    out.addAll(rest.slice(begin, end));
    if (end < rest.size()) out.addAll(kj::StringPtr("/..."));
    return;
  }
  bool isPath = value.size() > 1 && (value[0] == '/' || startsWith(value, "~/"));
  if (isPath) {
    out.addAll(PATH);
    // What follows a path after a colon is a line number or a message.
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i] != ':') continue;
      out.add(':');
      if (i + 1 < value.size()) addValue(out, value.slice(i + 1, value.size()));
      break;
    }
    return;
  }
  if (isToken(value)) {
    out.addAll(HIDDEN);
    return;
  }
  out.addAll(value);
}

// One word between blanks and brackets. True when the word after it is a secret.
bool addWord(kj::Vector<char>& out, Text word) {
  size_t name = 0;
  while (name < word.size() && (isNameChar(word[name]) || word[name] == '-'))
    ++name;
  bool assigns = name > 0 && name < word.size() && (word[name] == '=' || word[name] == ':');
  if (assigns && startsWith(word.slice(name, word.size()), "://")) assigns = false;
  if (!assigns) {
    addValue(out, word);
    auto plain = plainWord(word);
    return plain == "bearer" || plain == "basic";
  }
  auto key = word.slice(0, name);
  auto value = word.slice(name + 1, word.size());
  bool isVariable = word[name] == '=';
  for (char c: key)
    isVariable = isVariable && !(c >= 'a' && c <= 'z');
  out.addAll(word.slice(0, name + 1));
  bool secret = isVariable || namesSecret(key);
  if (value.size() == 0) return secret;
  if (secret) {
    out.addAll(HIDDEN);
    // "Authorization:Bearer x"
    auto scheme = plainWord(value);
    return scheme == "bearer" || scheme == "basic";
  }
  addValue(out, value);
  return false;
}

}  // namespace

kj::String evidenceText(kj::StringPtr text, size_t limit) {
  // Whatever is longer is cut later: a bound of the work.
  constexpr size_t MOST = 64 * 1024;
  OutputTail cleaned(nullptr, MOST);
  cleaned.add(text.asBytes().slice(0, kj::min(text.size(), MOST)));
  cleaned.finish();
  auto clean = cleaned.text();
  kj::Vector<char> out;
  bool hideNext = false;
  auto rest = clean.asArray().asConst();
  for (size_t i = 0; i < rest.size();) {
    if (isBlank(rest[i]) || isBracket(rest[i])) {
      char c = isBlank(rest[i]) ? ' ' : rest[i];
      if (c != ' ' || (out.size() > 0 && out.back() != ' ')) out.add(c);
      ++i;
      continue;
    }
    size_t end = i;
    while (end < rest.size() && !isBlank(rest[end]) && !isBracket(rest[end]))
      ++end;
    auto word = rest.slice(i, end);
    i = end;
    auto plain = plainWord(word);
    if (hideNext && (plain == "bearer" || plain == "basic")) {
      out.addAll(word);  // The secret comes next.
    } else if (hideNext) {
      out.addAll(HIDDEN);
      hideNext = false;
    } else {
      hideNext = addWord(out, word);
    }
  }
  while (out.size() > 0 && out.back() == ' ')
    out.removeLast();
  if (out.size() <= limit) return kj::heapString(out.asPtr());
  constexpr kj::StringPtr DOTS = "..."_kj;
  size_t cut = limit - DOTS.size();
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xc0) == 0x80)
    --cut;
  return kj::str(out.asPtr().slice(0, cut), DOTS);
}

Problem evidenceOf(const Problem& problem, size_t limit) {
  auto words = problem.cause.size() == 0 ? kj::str(problem.message)
                                         : kj::str(problem.message, ": ", problem.cause);
  Problem result(problem.code, evidenceText(words, limit));
  result.source = kj::str(problem.source);
  result.upstreamCode = kj::str(problem.upstreamCode);
  return result;
}

}  // namespace capstan
