#include "base/json-writer.h"

#include <kj/debug.h>

#include <cmath>

namespace capstan {

namespace {

constexpr char HEX[] = "0123456789abcdef";

void appendEscaped(kj::Vector<char>& out, uint32_t point) {
  char text[6] = {
      '\\',           'u', HEX[point >> 12 & 15], HEX[point >> 8 & 15], HEX[point >> 4 & 15],
      HEX[point & 15]};
  out.addAll(kj::arrayPtr(text, sizeof(text)));
}

enum class Quoting { JSON, PLAIN };

void appendText(kj::Vector<char>& out, kj::ArrayPtr<const char> text, Quoting quoting) {
  while (text.size() > 0) {
    uint32_t point = 0;
    size_t size = decodeUtf8(text, point);
    if (size == 0) {
      out.addAll("\xef\xbf\xbd"_kj);
      size = 1;
    } else if (quoting == Quoting::JSON && (point == '"' || point == '\\')) {
      out.add('\\');
      out.add(static_cast<char>(point));
    } else if (point == '\n') {
      out.addAll("\\n"_kj);
    } else if (point == '\t') {
      out.addAll("\\t"_kj);
    } else if (point == '\r') {
      out.addAll("\\r"_kj);
    } else if (point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 ||
               point == 0x2029) {
      appendEscaped(out, point);
    } else {
      out.addAll(text.slice(0, size));
    }
    text = text.slice(size, text.size());
  }
}

}  // namespace

size_t decodeUtf8(kj::ArrayPtr<const char> rest, uint32_t& point) {
  auto at = [&](size_t i) { return static_cast<kj::byte>(rest[i]); };
  kj::byte lead = at(0);
  if (lead < 0x80) {
    point = lead;
    return 1;
  }
  size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || rest.size() < size) return 0;
  point = lead & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    point = point << 6 | (at(i) & 0x3fu);
  }
  bool overlong = (size == 3 && point < 0x800) || (size == 4 && point < 0x10000);
  bool surrogate = point >= 0xd800 && point < 0xe000;
  return overlong || surrogate || point > 0x10ffff ? 0 : size;
}

void appendJsonString(kj::Vector<char>& out, kj::ArrayPtr<const char> text) {
  out.add('"');
  appendText(out, text, Quoting::JSON);
  out.add('"');
}

void appendPlainText(kj::Vector<char>& out, kj::ArrayPtr<const char> text) {
  appendText(out, text, Quoting::PLAIN);
}

void JsonWriter::newLine(size_t depth) {
  if (layout == Layout::COMPACT) return;
  out.add('\n');
  for (size_t i = 0; i < depth; ++i) {
    append("  "_kj);
  }
}

void JsonWriter::before() {
  KJ_REQUIRE(!complete, "one JSON text holds one value");
  if (keyed) {
    keyed = false;
    return;
  }
  if (levels.size() == 0) return;
  auto& level = levels.back();
  KJ_REQUIRE(level.close == ']', "a value inside an object needs a key");
  if (level.count++ > 0) out.add(',');
  newLine(levels.size());
}

void JsonWriter::after() { complete = levels.size() == 0; }

JsonWriter& JsonWriter::beginObject() {
  before();
  out.add('{');
  levels.add(Level{'}'});
  return *this;
}

JsonWriter& JsonWriter::beginArray() {
  before();
  out.add('[');
  levels.add(Level{']'});
  return *this;
}

void JsonWriter::end(char close) {
  KJ_REQUIRE(levels.size() > 0 && levels.back().close == close && !keyed, "JSON ends out of order");
  bool empty = levels.back().count == 0;
  levels.removeLast();
  if (!empty) newLine(levels.size());
  out.add(close);
  after();
}

JsonWriter& JsonWriter::endObject() {
  end('}');
  return *this;
}

JsonWriter& JsonWriter::endArray() {
  end(']');
  return *this;
}

JsonWriter& JsonWriter::key(kj::StringPtr name) {
  KJ_REQUIRE(levels.size() > 0 && levels.back().close == '}' && !keyed, "a key outside an object");
  if (levels.back().count++ > 0) out.add(',');
  newLine(levels.size());
  appendJsonString(out, name);
  out.add(':');
  if (layout == Layout::INDENTED) out.add(' ');
  keyed = true;
  return *this;
}

JsonWriter& JsonWriter::value(kj::StringPtr text) {
  before();
  appendJsonString(out, text);
  after();
  return *this;
}

JsonWriter& JsonWriter::value(bool yes) { return raw(yes ? "true"_kj : "false"_kj); }
JsonWriter& JsonWriter::value(int64_t number) { return raw(kj::str(number)); }
JsonWriter& JsonWriter::value(uint64_t number) { return raw(kj::str(number)); }
JsonWriter& JsonWriter::value(double number) {
  return std::isfinite(number) ? raw(kj::str(number)) : null();
}
JsonWriter& JsonWriter::null() { return raw("null"_kj); }

JsonWriter& JsonWriter::raw(kj::StringPtr json) {
  before();
  append(json);
  after();
  return *this;
}

kj::String JsonWriter::finish() {
  KJ_REQUIRE(complete, "the JSON text is not complete");
  complete = false;
  out.add('\0');
  return kj::String(out.releaseAsArray());
}

}  // namespace capstan
