#include "base/json-writer.h"

#include "support/test.h"

#include <limits>

namespace capstan {
namespace {

kj::String quoted(kj::ArrayPtr<const char> text) {
  kj::Vector<char> out;
  appendJsonString(out, text);
  return kj::str(out);
}

TEST_CASE("JSON strings are escaped") {
  CHECK(quoted("a\"b\\c\n\t\r"_kj) == "\"a\\\"b\\\\c\\n\\t\\r\"");
  CHECK(quoted(kj::arrayPtr("\0\x1f\x7f", 3)) == "\"\\u0000\\u001f\\u007f\"");
  CHECK(quoted("h\xc3\xa9 \xf0\x9f\x90\xb3"_kj) == "\"h\xc3\xa9 \xf0\x9f\x90\xb3\"");
  CHECK(quoted("\xe2\x80\xa8\xc2\x85"_kj) == "\"\\u2028\\u0085\"");
}

TEST_CASE("invalid UTF-8 never reaches the output") {
  CHECK(quoted("\xff"_kj) == "\"\xef\xbf\xbd\"");
  CHECK(quoted("\xc3"_kj) == "\"\xef\xbf\xbd\"");                                  // cut short
  CHECK(quoted("\xc0\xaf"_kj) == "\"\xef\xbf\xbd\xef\xbf\xbd\"");                  // overlong
  CHECK(quoted("\xed\xa0\x80"_kj) == "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");  // surrogate
  CHECK(quoted("\xf4\x90\x80\x80"_kj).size() == 2 + 4 * 3);  // beyond U+10FFFF
}

TEST_CASE("objects and arrays get their commas, compact and indented") {
  JsonWriter json;
  json.beginObject();
  json.member("name", "x").member("count", 3u).member("yes", true);
  json.key("list").beginArray().value(int64_t(-1)).null().beginObject().endObject().endArray();
  json.key("none").beginArray().endArray().endObject();
  CHECK(json.finish() ==
        "{\"name\":\"x\",\"count\":3,\"yes\":true,\"list\":[-1,null,{}],\"none\":[]}");

  JsonWriter wide(JsonWriter::Layout::INDENTED);
  wide.beginObject().key("a").beginArray().value(1).value(2).endArray().endObject();
  CHECK(wide.finish() == "{\n  \"a\": [\n    1,\n    2\n  ]\n}");
}

TEST_CASE("numbers keep their value; what is no number becomes null") {
  JsonWriter json;
  json.beginArray();
  json.value(std::numeric_limits<uint64_t>::max()).value(std::numeric_limits<int64_t>::min());
  json.value(0.5).value(std::numeric_limits<double>::infinity()).endArray();
  CHECK(json.finish() == "[18446744073709551615,-9223372036854775808,0.5,null]");
}

TEST_CASE("misuse throws instead of writing broken JSON") {
  JsonWriter json;
  CHECK_THROWS(json.finish());
  json.beginObject();
  CHECK_THROWS(json.value("no key"));
  CHECK_THROWS(json.endArray());
  CHECK_THROWS(json.finish());
  json.key("k");
  CHECK_THROWS(json.key("twice"));
  CHECK_THROWS(json.endObject());
  json.value(1).endObject();
  CHECK_THROWS(json.value(2));
  CHECK(json.finish() == "{\"k\":1}");
}

}  // namespace
}  // namespace capstan
