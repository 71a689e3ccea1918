#pragma once
// A strict reader of YAML, as far as configuration files need it: one document of maps, lists and
// scalars. Anchors, aliases, tags, merge keys and repeated keys are refused.

#include "base/problem.h"

#include <kj/array.h>
#include <kj/string.h>
#include <kj/vector.h>

#include <cstddef>
#include <cstdint>

namespace capstan {

// Where something begins in a file; lines and columns of characters from 1.
struct YamlPosition {
  uint32_t line = 1;
  uint32_t column = 1;
};

// How much of a document is taken.
struct YamlLimits {
  size_t bytes = 1u << 20;
  uint32_t depth = 32;     // Maps and lists within each other.
  uint32_t nodes = 65536;  // Values, keys not counted.
};

// One value of a document.
struct YamlValue {
  struct Entry;
  enum class Kind {
    EMPTY,  // Nothing, `null` or `~`, unquoted.
    SCALAR,
    LIST,
    MAP,
  };

  Kind kind = Kind::EMPTY;
  YamlPosition at;
  kj::String text;             // SCALAR: what it says, without NUL.
  bool quoted = false;         // SCALAR: in quotes or as a block, so surely a text.
  kj::Vector<YamlValue> list;  // LIST
  kj::Vector<Entry> map;       // MAP: in the file's order, no key twice.
};

struct YamlValue::Entry {
  kj::String key;  // Not empty, without NUL.
  YamlPosition at;
  YamlValue value;
};

// Reads one UTF-8 document; an empty one is EMPTY. invalidArgument: as yamlProblem() with what is
// wrong at the first fault. `file` is the name shown for it; nothing is opened.
Result<YamlValue> readYaml(kj::StringPtr file, kj::ArrayPtr<const char> text,
                           YamlLimits limits = YamlLimits());

// invalidArgument with the message "file:line:column: text".
Problem yamlProblem(kj::StringPtr file, YamlPosition at, kj::StringPtr text);

// `text` (UTF-8) as a YAML scalar in double quotes, on one line.
kj::String yamlString(kj::StringPtr text);

// Text of a file for a message about it: at most 64 octets, nothing that moves a terminal.
kj::String shownText(kj::StringPtr text);

}  // namespace capstan
