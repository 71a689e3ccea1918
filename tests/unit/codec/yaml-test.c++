#include "codec/yaml-tree.h"

#include "support/test.h"

#include <string>

namespace capstan {

namespace {

// The tree on one line: {key@line:column=value} [a, b] 'quoted' plain _.
kj::String shape(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::EMPTY:
      return kj::str("_");
    case YamlValue::Kind::SCALAR:
      return value.quoted ? kj::str("'", value.text, "'") : kj::str(value.text);
    case YamlValue::Kind::LIST:
      return kj::str("[",
                     kj::strArray(KJ_MAP(each, value.list) { return shape(each); }, ", "), "]");
    case YamlValue::Kind::MAP:
      break;
  }
  auto entries = KJ_MAP(each, value.map) {
    return kj::str(each.key, '@', each.at.line, ':', each.at.column, '=', shape(each.value));
  };
  return kj::str("{", kj::strArray(entries, ", "), "}");
}

kj::String read(kj::StringPtr text, YamlLimits limits = YamlLimits()) {
  auto result = readYaml("f.yaml", text, limits);
  if (result.is<YamlValue>()) return shape(result.get<YamlValue>());
  CHECK(result.get<Problem>().code == ErrorCode::INVALID_ARGUMENT);
  return kj::str(result.get<Problem>());
}

}  // namespace

TEST_CASE("maps, lists and scalars are read with their places") {
  CHECK(read("a: 1\nb:\n  c: [x, 'y']\n  d:\n    - p\n    - q: r\n") ==
        "{a@1:1=1, b@2:1={c@3:3=[x, 'y'], d@4:3=[p, {q@6:7=r}]}}");
  CHECK(read("# only a comment\n") == "_");
  CHECK(read("") == "_");
  CHECK(read("---\n") == "_");
  CHECK(read("a:\nb: ~\nc: null\nd: ''\ne: 'null'\n") ==
        "{a@1:1=_, b@2:1=_, c@3:1=_, d@4:1='', "
        "e@5:1='null'}");
  CHECK(read("{a: 1, \"b c\": 2}") == "{a@1:2=1, b c@1:8=2}");
  CHECK(read("\xef\xbb\xbf"
             "a: 1\r\n\xc3\xa4\xc3\xb6: 2 # c\r\n") == "{a@1:1=1, äö@2:1=2}");
  CHECK(read("ä: {b: 1, c: 2}") == "{ä@1:1={b@1:5=1, c@1:11=2}}");  // Columns of characters.
  CHECK(read("a: |\n  two\n  lines\nb: >\n  fol\n  ded\n") ==
        "{a@1:1='two\nlines\n', "
        "b@4:1='fol ded\n'}");
}

TEST_CASE("what a configuration does not need is refused where it stands") {
  struct Row {
    kj::StringPtr text, said;
  };
  for (auto row: {
           Row{"a: 1\nb: 2\na: 3\n",
               "f.yaml:3:1: the key 'a' is repeated (it stands in line 1 "
               "already: keep one of them)"},
           Row{"a: {b: 1, 'b': 2}",
               "f.yaml:1:11: the key 'b' is repeated (it stands in line 1 "
               "already: keep one of them)"},
           Row{"a: &x 1\nb: *x\n",
               "f.yaml:1:4: an anchor (&x) (remove it: anchors and aliases are "
               "not taken)"},
           Row{"a: &x {b: 1}",
               "f.yaml:1:4: an anchor (&x) (remove it: anchors and aliases are not "
               "taken)"},
           Row{"a: &x [1]",
               "f.yaml:1:4: an anchor (&x) (remove it: anchors and aliases are not "
               "taken)"},
           Row{"a: 1\nb: *x\n",
               "f.yaml:2:4: an alias (*x) (write the value out: anchors and "
               "aliases are not taken)"},
           Row{"a: !!int 1",
               "f.yaml:1:4: a tag (tag:yaml.org,2002:int) (remove it: tags are not "
               "taken)"},
           Row{"a: ! 1", "f.yaml:1:4: a tag (!) (remove it: tags are not taken)"},
           Row{"!x {a: 1}", "f.yaml:1:1: a tag (!x) (remove it: tags are not taken)"},
           Row{"%TAG ! tag:x,2000:\n---\na: 1\n",
               "f.yaml:1:1: %TAG is not taken (remove the line)"},
           Row{"<<: {a: 1}\n",
               "f.yaml:1:1: a merge key (<<) (write the keys out: merging is not "
               "taken)"},
           Row{"a: 1\n---\nb: 1\n",
               "f.yaml:2:1: a second document begins (one file holds one "
               "document: remove what is behind `---` or `...`)"},
           Row{"? [a, b]\n: 1\n", "f.yaml:1:3: a key that is no single word (write `key: value`)"},
           Row{"'': 1", "f.yaml:1:1: an empty key (write `key: value`)"},
           Row{"a: \"x\\0y\"", "f.yaml:1:4: a NUL character in a text (remove it)"},
       }) {
    INFO(row.text.cStr());
    CHECK(read(row.text) == row.said);
  }
}

TEST_CASE("what is no YAML is told with its place") {
  constexpr auto CURE =
      " (indent with spaces, and write `key: value` with a space behind the colon)"_kj;
  CHECK(read("a:\n\tb: 1\n") ==
        kj::str("f.yaml:2:1: not valid YAML: found character that cannot start any token: while "
                "scanning for the next token that begins in line 2",
                CURE));
  CHECK(
      read("a: 1\n b: 2\n") ==
      kj::str("f.yaml:2:3: not valid YAML: mapping values are not allowed in this context", CURE));
  CHECK(read("a: [1, 2\nb: 3\n") ==
        kj::str("f.yaml:2:2: not valid YAML: did not find expected ',' or ']': while parsing a "
                "flow sequence that begins in line 1",
                CURE));
}

TEST_CASE("what is no text is told with its place") {
  constexpr auto CURE = " (the file has to be UTF-8 without control characters)"_kj;
  CHECK(read("a: 1\nb: x\xffy\n") ==
        kj::str("f.yaml:2:5: no text: invalid leading UTF-8 octet", CURE));
  CHECK(read("a: \xc3(\n") == kj::str("f.yaml:1:5: no text: invalid trailing UTF-8 octet", CURE));
  CHECK(read("a: 1\n# \0\n"_kj) ==
        kj::str("f.yaml:2:3: no text: control characters are not allowed", CURE));
  CHECK(read("a: \x1b[31m\n") ==
        kj::str("f.yaml:1:4: no text: control characters are not allowed", CURE));
  CHECK(read("\xff\xfe"
             "a\0:\0 \0"_kj) == kj::str("f.yaml:1:1: no text: invalid leading UTF-8 octet", CURE));
}

TEST_CASE("a document is taken up to its limits and no further") {
  YamlLimits limits;
  limits.bytes = 10;
  CHECK(read("a: 4567890", limits) == "{a@1:1=4567890}");
  CHECK(read("a: 45678901", limits) == "f.yaml: has more than 10 octets (make the file shorter)");

  limits = YamlLimits();
  auto nested = [](size_t depth) {
    return kj::str(kj::repeat('[', depth), kj::repeat(']', depth));
  };
  CHECK(read(nested(33)) == nested(33));
  CHECK(read(nested(34)) ==
        "f.yaml:1:34: more than 32 levels within each other (make the file "
        "flatter)");
  CHECK(read(kj::str(kj::repeat('[', 200'000))).startsWith("f.yaml:1:34: more than 32 levels"));
  CHECK(read(kj::str(kj::repeat('{', 200'000))).startsWith("f.yaml:1:"));

  limits.nodes = 3;
  CHECK(read("[1, 2]", limits) == "[1, 2]");
  CHECK(read("[1, 2,\n 3]", limits) == "f.yaml:2:2: more than 3 values (make the file shorter)");
}

TEST_CASE("a written text reads back as it was") {
  for (auto text:
       {""_kj, "plain"_kj, "a \"b\" \\ c"_kj, "\x01\n\t\r\x1b\x7f"_kj, "äöü€😀"_kj,
        "\xc2\x80\xc2\x85\xc2\x9f\xc2\xa0"_kj, "\xe2\x80\xa8\xe2\x80\xa9"_kj,
        "\xef\xbb\xbf\xef\xbf\xbe\xef\xbf\xbf\xef\xbf\xbd"_kj, "null"_kj, " # x: y"_kj}) {
    auto written = yamlString(text);
    INFO(written.cStr());
    CHECK(written.findFirst('\n') == nullptr);
    auto result = readYaml("f", written);
    REQUIRE(result.is<YamlValue>());
    CHECK(result.get<YamlValue>().kind == YamlValue::Kind::SCALAR);
    CHECK(result.get<YamlValue>().text == text);
  }
}

TEST_CASE("a text of the file is shown short and harmless") {
  CHECK(shownText("\x1b[31mred\n") == "\\u001b[31mred\\n");
  CHECK(shownText(kj::str(kj::repeat('x', 65))) == kj::str(kj::repeat('x', 64), "..."));
}

}  // namespace capstan
