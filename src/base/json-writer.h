#pragma once
// Writes JSON as it goes; for logs and the command line's output.

#include <kj/string.h>
#include <kj/vector.h>

#include <cstdint>

namespace capstan {

// Octets of the valid UTF-8 sequence at the start of `rest`, which is not empty, and its code
// point; 0 = there is none.
size_t decodeUtf8(kj::ArrayPtr<const char> rest, uint32_t& point);

// Appends `text` to `out` as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD, one per
// offending octet, so that the output is always valid; control characters, DEL, U+2028 and U+2029
// are escaped.
void appendJsonString(kj::Vector<char>& out, kj::ArrayPtr<const char> text);

// The same escapes without quotes, and with \" and \\ left alone: text of unknown origin for one
// line of a log or a table.
void appendPlainText(kj::Vector<char>& out, kj::ArrayPtr<const char> text);

// A streaming writer: values in order, commas and colons by itself. Misuse (a value without a key
// inside an object, an end of the wrong kind) throws.
class JsonWriter final {
public:
  enum class Layout {
    COMPACT,   // one line
    INDENTED,  // two spaces a level, for people
  };
  explicit JsonWriter(Layout layout = Layout::COMPACT): layout(layout) {}
  KJ_DISALLOW_COPY_AND_MOVE(JsonWriter);

  JsonWriter& beginObject();
  JsonWriter& endObject();
  JsonWriter& beginArray();
  JsonWriter& endArray();
  JsonWriter& key(kj::StringPtr name);

  JsonWriter& value(kj::StringPtr text);
  JsonWriter& value(const char* text) { return value(kj::StringPtr(text)); }
  JsonWriter& value(bool yes);
  JsonWriter& value(int64_t number);
  JsonWriter& value(uint64_t number);
  JsonWriter& value(int32_t number) { return value(static_cast<int64_t>(number)); }
  JsonWriter& value(uint32_t number) { return value(static_cast<uint64_t>(number)); }
  // Shortest digits that read back as the same number; not finite becomes null.
  JsonWriter& value(double number);
  JsonWriter& null();
  // `json` must be one valid JSON value.
  JsonWriter& raw(kj::StringPtr json);

  // key() and value() in one.
  template <typename T>
  JsonWriter& member(kj::StringPtr name, T&& content) {
    return key(name).value(kj::fwd<T>(content));
  }

  // The finished text; all levels must be closed. The writer is empty again afterwards.
  kj::String finish();

private:
  struct Level {
    char close;  // '}' or ']'
    uint32_t count = 0;
  };
  Layout layout;
  kj::Vector<char> out;
  kj::Vector<Level> levels;
  bool keyed = false;     // a key waits for its value
  bool complete = false;  // one whole value is there

  void before();
  void after();
  void newLine(size_t depth);
  void end(char close);
  void append(kj::ArrayPtr<const char> text) { out.addAll(text); }
};

}  // namespace capstan
