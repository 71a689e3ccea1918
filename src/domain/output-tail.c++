#include "domain/output-tail.h"

#include "base/json-writer.h"

#include <algorithm>
#include <cstring>

namespace capstan {

namespace {

constexpr kj::StringPtr MASK = "***"_kj;
constexpr kj::StringPtr REPLACEMENT = "\xef\xbf\xbd"_kj;
constexpr size_t LINE_BYTES = 300;
constexpr size_t LONG_LINE = 8;  // Shorter lines of a secret are no secret by themselves.

using Text = kj::ArrayPtr<const char>;

bool isContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The end of `text` with at most `limit` octets, not begun within a character.
Text tailOf(Text text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t begin = text.size() - limit;
  for (int i = 0; i < 3 && begin < text.size() && isContinuation(text[begin]); ++i)
    ++begin;
  return text.slice(begin, text.size());
}

// Whether `rest` may become a character when more follows.
bool isUnfinished(Text rest) {
  auto lead = static_cast<unsigned char>(rest[0]);
  size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
  if (lead > 0xf4 || rest.size() >= size) return false;
  for (size_t i = 1; i < rest.size(); ++i) {
    if (!isContinuation(rest[i])) return false;
  }
  return true;
}

}  // namespace

OutputTail::OutputTail(kj::ArrayPtr<const kj::String> given, size_t limit): limit(limit) {
  auto add = [this](Text secret) {
    if (secret.size() == 0) return;
    firsts.set(static_cast<unsigned char>(secret[0]));
    secrets.add(kj::heapString(secret));
  };
  for (auto& secret: given) {
    add(secret);
    Text rest = secret.asArray();
    while (rest.size() > 0) {
      size_t length = 0;
      while (length < rest.size() && rest[length] != '\n' && rest[length] != '\r')
        ++length;
      if (length < secret.size() && length >= LONG_LINE) add(rest.slice(0, length));
      rest = rest.slice(kj::min(length + 1, rest.size()), rest.size());
    }
  }
  std::sort(secrets.begin(), secrets.end(), [](const kj::String& a, const kj::String& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
}

void OutputTail::add(kj::ArrayPtr<const kj::byte> bytes) {
  pending.addAll(bytes.asChars());
  unmask();
}

void OutputTail::gap(uint64_t octets) {
  finish();
  finished = false;
  mode = Mode::TEXT;
  carriage = false;
  for (char c: kj::str("\n[", octets, " octets were lost]\n"))
    take(c);
}

void OutputTail::finish() {
  finished = true;
  unmask();
}

// Moves from `pending` what is decided.
void OutputTail::unmask() {
  size_t at = 0;
  while (at < pending.size()) {
    if (!firsts.test(static_cast<unsigned char>(pending[at]))) {
      take(pending[at++]);
      continue;
    }
    auto rest = pending.slice(at, pending.size());
    size_t masked = 0;
    bool waits = false;
    for (auto& secret: secrets) {
      auto common = kj::min(rest.size(), secret.size());
      if (std::memcmp(rest.begin(), secret.begin(), common) != 0) continue;
      if (common == secret.size()) {
        masked = common;
        break;
      }
      // A longer one may still come to be here.
      waits = !finished;
      if (waits) break;
    }
    if (waits) break;
    if (masked > 0) {
      for (char c: MASK)
        take(c);
      at += masked;
    } else {
      take(pending[at++]);
    }
  }
  if (at > 0) {
    auto left = kj::heapArray<char>(pending.slice(at, pending.size()));
    pending.clear();
    pending.addAll(left);
  }
}

void OutputTail::take(char c) {
  switch (mode) {
    case Mode::ESCAPE:
      mode = c == '[' ? Mode::SEQUENCE : c == ']' ? Mode::STRING : Mode::TEXT;
      return;
    case Mode::SEQUENCE:
      // ESC [ parameters final: whatever breaks the form ends it.
      if (c < 0x20 || c >= 0x40) mode = Mode::TEXT;
      if (c >= 0x20) return;
      break;
    case Mode::STRING:
      if (c == '\x07') mode = Mode::TEXT;
      if (c == '\x1b') mode = Mode::ESCAPE;
      if (c != '\n') return;
      mode = Mode::TEXT;  // A title of several lines is none.
      break;
    case Mode::TEXT:
      break;
  }
  if (c == '\x1b') {
    mode = Mode::ESCAPE;
    return;
  }
  if (c == '\r') {
    carriage = true;
    return;
  }
  if (c == '\n') {
    carriage = false;
    kept.add(c);
    lineBegin = kept.size();
    trim();
    return;
  }
  if ((c >= 0 && c < 0x20 && c != '\t') || c == 0x7f) return;
  if (carriage) {
    carriage = false;
    kept.resize(lineBegin);
  }
  kept.add(c);
  trim();
}

void OutputTail::trim() {
  if (kept.size() < 2 * limit) return;
  auto dropped = kept.size() - limit;
  auto tail = kj::heapArray<char>(kept.slice(dropped, kept.size()));
  kept.clear();
  kept.addAll(tail);
  lineBegin = lineBegin > dropped ? lineBegin - dropped : 0;
}

kj::String OutputTail::text() const {
  auto rest = tailOf(kept.asPtr(), limit);
  kj::Vector<char> out(rest.size());
  while (rest.size() > 0) {
    uint32_t point = 0;
    auto size = decodeUtf8(rest, point);
    if (size == 0) {
      if (!finished && isUnfinished(rest)) break;
      out.addAll(REPLACEMENT);
      size = 1;
    } else if (point < 0x80 || point >= 0xa0) {
      out.addAll(rest.slice(0, size));
    }
    rest = rest.slice(size, rest.size());
  }
  return kj::heapString(tailOf(out.asPtr(), limit));
}

kj::String OutputTail::lastLine() const {
  auto all = text();
  Text rest = all.asArray();
  auto isBlank = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
  while (rest.size() > 0 && isBlank(rest.back()))
    rest = rest.slice(0, rest.size() - 1);
  size_t begin = rest.size();
  while (begin > 0 && rest[begin - 1] != '\n')
    --begin;
  auto line = rest.slice(begin, rest.size());
  if (line.size() > LINE_BYTES) {
    size_t cut = LINE_BYTES;
    while (cut > 0 && isContinuation(line[cut]))
      --cut;
    line = line.slice(0, cut);
  }
  return kj::heapString(line);
}

}  // namespace capstan
