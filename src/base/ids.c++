#include "base/ids.h"

#include "base/encoding.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr size_t ID_CHARS = 16;
constexpr size_t TASK_CHARS = 10;
constexpr size_t MAX_TASK_ID = 63;

bool isLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

kj::StringPtr idPrefix(IdKind kind) {
  switch (kind) {
    case IdKind::ENVIRONMENT:
      return "env-"_kj;
    case IdKind::SESSION:
      return "s-"_kj;
    case IdKind::RUN:
      return "r-"_kj;
    case IdKind::GRANT:
      return "g-"_kj;
    case IdKind::EXEC:
      return "x-"_kj;
    case IdKind::PRINCIPAL:
      return "p-"_kj;
    case IdKind::EXECUTOR:
      return "exec-"_kj;
    case IdKind::PROFILE:
      return "prof-"_kj;
    case IdKind::SECRET:
      return "sec-"_kj;
    case IdKind::EPISODE:
      return "ep-"_kj;
  }
  KJ_UNREACHABLE;
}

kj::String newId(IdKind kind, Entropy& entropy) {
  kj::byte random[ID_CHARS * 5 / 8];
  entropy.fill(random);
  return kj::str(idPrefix(kind), encodeBase32(random));
}

bool isId(IdKind kind, kj::StringPtr text) {
  auto prefix = idPrefix(kind);
  return text.size() == prefix.size() + ID_CHARS && text.startsWith(prefix) &&
         isBase32(text.slice(prefix.size()));
}

kj::String newTaskId(Entropy& entropy) {
  kj::byte random[(TASK_CHARS * 5 + 7) / 8];
  entropy.fill(random);
  auto text = encodeBase32(random);
  return kj::str("t-", text.slice(0, TASK_CHARS));
}

bool isTaskId(kj::StringPtr text) {
  if (text.size() == 0 || text.size() > MAX_TASK_ID) return false;
  for (char c: text) {
    if (!isLetterOrDigit(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return isLetterOrDigit(text[0]) && isLetterOrDigit(text[text.size() - 1]);
}

}  // namespace capstan
