#include "codec/yaml-tree.h"

#include "base/json-writer.h"

#include <kj/map.h>

#include <yaml.h>
#include <cstring>

namespace capstan {

namespace {

constexpr size_t SHOWN_BYTES = 64;

YamlPosition positionOf(const yaml_mark_t& mark) {
  return {static_cast<uint32_t>(mark.line + 1), static_cast<uint32_t>(mark.column + 1)};
}

// Where the octet at `offset` stands.
YamlPosition positionOf(kj::ArrayPtr<const char> text, size_t offset) {
  YamlPosition result;
  for (char c: text.slice(0, kj::min(offset, text.size()))) {
    if (c == '\n') {
      ++result.line;
      result.column = 1;
    } else if ((c & 0xc0) != 0x80) {
      ++result.column;
    }
  }
  return result;
}

// libyaml's parser and its last event.
class Events {
public:
  explicit Events(kj::ArrayPtr<const char> text) {
    KJ_ASSERT(yaml_parser_initialize(&parser), "out of memory");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, text.asBytes().begin(), text.size());
  }
  ~Events() {
    yaml_event_delete(&event);
    yaml_parser_delete(&parser);
  }
  KJ_DISALLOW_COPY_AND_MOVE(Events);

  bool next() {
    yaml_event_delete(&event);
    std::memset(&event, 0, sizeof(event));
    return yaml_parser_parse(&parser, &event) != 0;
  }

  yaml_parser_t parser;
  yaml_event_t event{};
};

class Reader {
public:
  Reader(kj::StringPtr file, kj::ArrayPtr<const char> text, YamlLimits limits)
      : file(file), text(text), limits(limits), events(text), event(events.event) {}

  Result<YamlValue> read() {
    YamlValue result;
    if (document(result)) return kj::mv(result);
    return kj::mv(KJ_ASSERT_NONNULL(problem));
  }

private:
  kj::StringPtr file;
  kj::ArrayPtr<const char> text;
  YamlLimits limits;
  Events events;
  const yaml_event_t& event;
  uint32_t nodes = 0;
  kj::Maybe<Problem> problem;

  bool refuse(YamlPosition at, kj::StringPtr what, kj::StringPtr cure) {
    problem = yamlProblem(file, at, what).advise(kj::str(cure));
    return false;
  }

  // Takes the next event.
  bool next() {
    if (events.next()) return true;
    auto& parser = events.parser;
    KJ_ASSERT(parser.error != YAML_MEMORY_ERROR, "out of memory");
    kj::StringPtr what = parser.problem == nullptr ? "it cannot be read" : parser.problem;
    if (parser.error == YAML_READER_ERROR) {
      return refuse(positionOf(text, parser.problem_offset), kj::str("no text: ", what),
                    "the file has to be UTF-8 without control characters");
    }
    problem =
        yamlProblem(file, positionOf(parser.problem_mark), kj::str("not valid YAML: ", what))
            .advise(kj::str("indent with spaces, and write `key: value` with a space behind the "
                            "colon"));
    if (parser.context != nullptr) {
      KJ_ASSERT_NONNULL(problem).cause =
          kj::str(parser.context, " that begins in line ", positionOf(parser.context_mark).line);
    }
    return false;
  }

  bool document(YamlValue& into) {
    if (!next() || !next()) return false;  // The stream's start, then what is in it.
    if (event.type == YAML_STREAM_END_EVENT) return true;
    auto& start = event.data.document_start;
    if (start.tag_directives.start != start.tag_directives.end) {
      return refuse(positionOf(event.start_mark), "%TAG is not taken", "remove the line");
    }
    if (!next() || !node(into, 0)) return false;
    if (!next() || !next()) return false;  // The document's end, then what is behind it.
    if (event.type != YAML_STREAM_END_EVENT) {
      return refuse(positionOf(event.start_mark), "a second document begins",
                    "one file holds one document: remove what is behind `---` or `...`");
    }
    return true;
  }

  // Reads the value that the current event begins; its last event is then the current one.
  bool node(YamlValue& into, uint32_t depth) {
    into.at = positionOf(event.start_mark);
    if (++nodes > limits.nodes) {
      return refuse(into.at, kj::str("more than ", limits.nodes, " values"),
                    "make the file shorter");
    }
    if (depth > limits.depth) {
      return refuse(into.at, kj::str("more than ", limits.depth, " levels within each other"),
                    "make the file flatter");
    }
    switch (event.type) {
      case YAML_SCALAR_EVENT:
        return scalar(into);
      case YAML_SEQUENCE_START_EVENT: {
        auto& start = event.data.sequence_start;
        return plain(into.at, start.anchor, start.tag) && list(into, depth);
      }
      case YAML_MAPPING_START_EVENT: {
        auto& start = event.data.mapping_start;
        return plain(into.at, start.anchor, start.tag) && map(into, depth);
      }
      case YAML_ALIAS_EVENT:
        return refuse(into.at, kj::str("an alias (*", shown(event.data.alias.anchor), ")"),
                      "write the value out: anchors and aliases are not taken");
      default:
        KJ_FAIL_ASSERT("no event of a value", static_cast<int>(event.type));
    }
  }

  static kj::String shown(const yaml_char_t* name) {
    return shownText(reinterpret_cast<const char*>(name));
  }

  bool plain(YamlPosition at, const yaml_char_t* anchor, const yaml_char_t* tag) {
    if (anchor != nullptr) {
      return refuse(at, kj::str("an anchor (&", shown(anchor), ")"),
                    "remove it: anchors and aliases are not taken");
    }
    if (tag != nullptr) {
      return refuse(at, kj::str("a tag (", shown(tag), ")"), "remove it: tags are not taken");
    }
    return true;
  }

  bool scalar(YamlValue& into) {
    auto& given = event.data.scalar;
    if (!plain(into.at, given.anchor, given.tag)) return false;
    auto said = kj::arrayPtr(reinterpret_cast<const char*>(given.value), given.length);
    into.quoted = given.style != YAML_PLAIN_SCALAR_STYLE;
    for (char c: said) {
      if (c == '\0') return refuse(into.at, "a NUL character in a text", "remove it");
    }
    into.text = kj::heapString(said);
    bool empty = into.text == "" || into.text == "~" || into.text == "null" ||
                 into.text == "Null" || into.text == "NULL";
    into.kind = empty && !into.quoted ? YamlValue::Kind::EMPTY : YamlValue::Kind::SCALAR;
    return true;
  }

  bool list(YamlValue& into, uint32_t depth) {
    into.kind = YamlValue::Kind::LIST;
    for (;;) {
      if (!next()) return false;
      if (event.type == YAML_SEQUENCE_END_EVENT) return true;
      if (!node(into.list.add(), depth + 1)) return false;
    }
  }

  bool map(YamlValue& into, uint32_t depth) {
    into.kind = YamlValue::Kind::MAP;
    kj::HashMap<kj::StringPtr, uint32_t> lines;  // Of the keys, which own the letters.
    for (;;) {
      if (!next()) return false;
      if (event.type == YAML_MAPPING_END_EVENT) return true;
      auto& entry = into.map.add();
      entry.at = positionOf(event.start_mark);
      if (event.type != YAML_SCALAR_EVENT) {
        return refuse(entry.at, "a key that is no single word", "write `key: value`");
      }
      YamlValue key;
      key.at = entry.at;
      if (!scalar(key)) return false;
      if (key.text == "") return refuse(entry.at, "an empty key", "write `key: value`");
      if (key.text == "<<" && !key.quoted) {
        return refuse(entry.at, "a merge key (<<)", "write the keys out: merging is not taken");
      }
      entry.key = kj::mv(key.text);
      KJ_IF_MAYBE (line, lines.find(entry.key)) {
        return refuse(entry.at, kj::str("the key '", shownText(entry.key), "' is repeated"),
                      kj::str("it stands in line ", *line, " already: keep one of them"));
      }
      lines.insert(entry.key, entry.at.line);
      if (!next() || !node(entry.value, depth + 1)) return false;
    }
  }
};

}  // namespace

Result<YamlValue> readYaml(kj::StringPtr file, kj::ArrayPtr<const char> text, YamlLimits limits) {
  if (text.size() > limits.bytes) {
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str(file, ": has more than ", limits.bytes, " octets"))
        .advise(kj::str("make the file shorter"));
  }
  // A byte order mark is no part of the text.
  bool marked = text.size() >= 3 && std::memcmp(text.begin(), "\xef\xbb\xbf", 3) == 0;
  return Reader(file, text.slice(marked ? 3 : 0, text.size()), limits).read();
}

Problem yamlProblem(kj::StringPtr file, YamlPosition at, kj::StringPtr text) {
  return Problem(ErrorCode::INVALID_ARGUMENT,
                 kj::str(file, ':', at.line, ':', at.column, ": ", text));
}

kj::String yamlString(kj::StringPtr text) {
  kj::Vector<char> result;
  result.add('"');
  for (size_t i = 0; i < text.size(); ++i) {
    auto octet = static_cast<kj::byte>(text[i]);
    auto escape = [&](kj::StringPtr kind, kj::ArrayPtr<const kj::byte> octets) {
      constexpr kj::StringPtr DIGITS = "0123456789abcdef"_kj;
      result.addAll(kind);
      for (auto each: octets) {
        result.add(DIGITS[each >> 4]);
        result.add(DIGITS[each & 15]);
      }
    };
    auto follows = [&](kj::StringPtr octets) { return text.slice(i).startsWith(octets); };
    if (octet == '"' || octet == '\\') {
      result.add('\\');
      result.add(text[i]);
    } else if (octet < 0x20 || octet == 0x7f) {
      escape("\\x", kj::arrayPtr(&octet, 1));
    } else if (octet == 0xc2 && static_cast<kj::byte>(text[i + 1]) < 0xa0) {
      octet = static_cast<kj::byte>(text[++i]);  // C1 controls: U+0080 to U+009F.
      escape("\\x", kj::arrayPtr(&octet, 1));
    } else if (follows("\xe2\x80\xa8") || follows("\xe2\x80\xa9")) {
      result.addAll(follows("\xe2\x80\xa8") ? "\\L"_kj : "\\P"_kj);
      i += 2;
    } else if (follows("\xef\xbb\xbf") || follows("\xef\xbf\xbe") || follows("\xef\xbf\xbf")) {
      // A byte order mark and the two that are no characters.
      result.addAll(follows("\xef\xbb\xbf")   ? "\\ufeff"_kj
                    : follows("\xef\xbf\xbe") ? "\\ufffe"_kj
                                              : "\\uffff"_kj);
      i += 2;
    } else {
      result.add(text[i]);
    }
  }
  result.add('"');
  result.add('\0');
  return kj::String(result.releaseAsArray());
}

kj::String shownText(kj::StringPtr text) {
  kj::Vector<char> result;
  appendPlainText(result, text.slice(0, kj::min(text.size(), SHOWN_BYTES)));
  if (text.size() > SHOWN_BYTES) result.addAll("..."_kj);
  result.add('\0');
  return kj::String(result.releaseAsArray());
}

}  // namespace capstan
