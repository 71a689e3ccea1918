#include "codec/daemon-config.h"

#include "base/nearest.h"
#include "codec/daemon-config-keys.h"
#include "codec/yaml-tree.h"

#include <kj/debug.h>
#include <kj/vector.h>

namespace capstan {

namespace {

using namespace config;

// Picks what to do by the kind of a rule.
template <typename... Fs>
struct Cases: Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Cases(Fs...) -> Cases<Fs...>;

kj::String rangeText(const DurationRule& rule) {
  return kj::str(durationText(rule.least), " to ", durationText(rule.most));
}
kj::String rangeText(const SizeRule& rule) {
  return kj::str(sizeText(rule.least), " to ", sizeText(rule.most));
}
kj::String rangeText(const CountRule& rule) { return kj::str(rule.least, " to ", rule.most); }

// What a key takes, for a hint and the table.
kj::String takes(const Key& key) {
  return std::visit(
      Cases{
          [](const DurationRule& rule) { return kj::str("a duration, ", rangeText(rule)); },
          [](const SizeRule& rule) { return kj::str("a size, ", rangeText(rule)); },
          [](const CountRule& rule) { return kj::str("a whole number, ", rangeText(rule)); },
          [](const SwitchRule&) { return kj::str("true or false"); },
          [](const PathRule& rule) {
            return kj::str("an absolute path of at most ", rule.mostBytes, " octets");
          },
          [](const LogFormatRule&) { return kj::str("text or json"); },
          [](const FixedRule& rule) { return kj::str(rule.value); },
      },
      key.rule);
}

// The value as the file has it; null = not set.
kj::Maybe<kj::String> valueText(const Key& key, const DaemonConfig& config) {
  return std::visit(
      Cases{
          [&](const DurationRule& rule) -> kj::Maybe<kj::String> {
            return durationText(config.limits.deadlines.*rule.field);
          },
          [&](const SizeRule& rule) -> kj::Maybe<kj::String> {
            return sizeText(config.limits.*rule.field);
          },
          [&](const CountRule& rule) -> kj::Maybe<kj::String> {
            return kj::str(config.limits.*rule.field);
          },
          [&](const SwitchRule& rule) -> kj::Maybe<kj::String> {
            return kj::str(config.*rule.field);
          },
          [&](const PathRule& rule) -> kj::Maybe<kj::String> {
            return (config.*rule.field).map([](const kj::String& path) {
              return yamlString(path);
            });
          },
          [&](const LogFormatRule&) -> kj::Maybe<kj::String> {
            return kj::str(config.logFormat == LogFormat::JSON ? "json" : "text");
          },
          [](const FixedRule& rule) -> kj::Maybe<kj::String> { return kj::str(rule.value); },
      },
      key.rule);
}

kj::StringPtr kindText(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::EMPTY:
      return "there is no value"_kj;
    case YamlValue::Kind::LIST:
      return "a list stands here"_kj;
    case YamlValue::Kind::MAP:
      return "further keys stand here"_kj;
    case YamlValue::Kind::SCALAR:
      return value.quoted ? "a text stands here"_kj : "a single value stands here"_kj;
  }
  KJ_UNREACHABLE;
}

class Filler {
public:
  explicit Filler(kj::StringPtr file): file(file) {}

  DaemonConfig config;

  // Takes all keys of `section`, whose path with its last dot is `prefix`.
  Outcome fill(const YamlValue& section, kj::StringPtr prefix) {
    if (section.kind == YamlValue::Kind::EMPTY) return nullptr;
    if (section.kind != YamlValue::Kind::MAP) {
      auto path = prefix == "" ? kj::String() : kj::heapString(prefix.slice(0, prefix.size() - 1));
      auto who = path == "" ? kj::str() : kj::str(path, ": ");
      return yamlProblem(file, section.at,
                         kj::str(who, "keys belong here, but ", kindText(section)))
          .at(kj::mv(path))
          .advise(kj::str("known here: ", knownText(prefix)));
    }
    for (auto& entry: section.map) {
      KJ_IF_MAYBE (problem, take(kj::str(prefix, entry.key), prefix, entry)) {
        return kj::mv(*problem);
      }
    }
    return nullptr;
  }

private:
  kj::StringPtr file;

  Outcome take(kj::String path, kj::StringPtr prefix, const YamlValue::Entry& entry) {
    auto below = kj::str(path, '.');
    if (entry.key.findFirst('.') != nullptr) {
      return yamlProblem(file, entry.at, kj::str("unknown key '", shownText(path), "'"))
          .advise(kj::str("one line for each part: what is behind a dot stands below, indented"))
          .at(kj::mv(path));
    }
    for (auto& key: keys()) {
      if (key.path == path) return set(key, entry.value);
      if (key.path.startsWith(below)) return fill(entry.value, below);
    }
    for (auto& gone: goneKeys()) {
      if (gone.path != path) continue;
      return yamlProblem(file, entry.at, kj::str(path, " ", gone.instead))
          .advise(kj::str(gone.cure))
          .at(kj::mv(path));
    }
    auto known = knownIn(prefix);
    auto problem = yamlProblem(file, entry.at, kj::str("unknown key '", shownText(path), "'"));
    auto words = KJ_MAP(word, known) { return word.asPtr(); };
    KJ_IF_MAYBE (near, nearestWord(entry.key, words)) {
      problem.hint = kj::str("did you mean '", prefix, *near, "'?");
    } else {
      problem.hint = kj::str("known here: ", kj::strArray(known, ", "));
    }
    return kj::mv(problem).at(kj::mv(path));
  }

  // The keys and sections right below `prefix`, each once.
  static kj::Vector<kj::String> knownIn(kj::StringPtr prefix) {
    kj::Vector<kj::String> result;
    for (auto& key: keys()) {
      if (!key.path.startsWith(prefix)) continue;
      auto rest = key.path.slice(prefix.size());
      auto name = kj::heapString(rest.slice(0, rest.findFirst('.').orDefault(rest.size())));
      if (result.empty() || result.back() != name) result.add(kj::mv(name));
    }
    return result;
  }
  static kj::String knownText(kj::StringPtr prefix) { return kj::strArray(knownIn(prefix), ", "); }

  Outcome refuse(const Key& key, YamlPosition at, kj::StringPtr fault) {
    return yamlProblem(file, at, kj::str(key.path, ": ", fault))
        .at(kj::str(key.path))
        .advise(kj::str("it takes ", takes(key)));
  }

  Outcome set(const Key& key, const YamlValue& value) {
    if (value.kind != YamlValue::Kind::SCALAR) return refuse(key, value.at, kindText(value));
    auto shown = [&]() { return kj::str("'", shownText(value.text), "'"); };
    // A number or a switch in quotes is a text.
    auto wrong = [&](kj::StringPtr wanted) {
      return refuse(key, value.at,
                    value.quoted ? kj::str(shown(), " in quotes is a text, not ", wanted)
                                 : kj::str(shown(), " is not ", wanted));
    };
    auto measured = [&](const auto& rule, Quantity quantity, uint64_t least, uint64_t most,
                        auto&& assign) -> Outcome {
      if (quantity.fault.size() > 0) return refuse(key, value.at, quantity.fault);
      if (quantity.value < least || quantity.value > most) {
        return refuse(key, value.at, kj::str(shown(), " is out of its range, ", rangeText(rule)));
      }
      assign(quantity.value);
      return nullptr;
    };
    return std::visit(
        Cases{
            [&](const DurationRule& rule) -> Outcome {
              return measured(rule, readDuration(value.text),
                              static_cast<uint64_t>(rule.least / kj::MILLISECONDS),
                              static_cast<uint64_t>(rule.most / kj::MILLISECONDS),
                              [&](uint64_t ms) {
                                config.limits.deadlines.*rule.field =
                                    static_cast<int64_t>(ms) * kj::MILLISECONDS;
                              });
            },
            [&](const SizeRule& rule) -> Outcome {
              return measured(rule, readSize(value.text), rule.least, rule.most,
                              [&](uint64_t bytes) { config.limits.*rule.field = bytes; });
            },
            [&](const CountRule& rule) -> Outcome {
              if (value.quoted) return wrong("a number");
              return measured(rule, readCount(value.text), rule.least, rule.most,
                              [&](uint64_t count) { config.limits.*rule.field = count; });
            },
            [&](const SwitchRule& rule) -> Outcome {
              bool yes = value.text == "true";
              if (value.quoted || (!yes && value.text != "false")) return wrong("true or false");
              config.*rule.field = yes;
              return nullptr;
            },
            [&](const PathRule& rule) -> Outcome {
              if (!value.text.startsWith("/")) return wrong("an absolute path");
              if (value.text.size() > rule.mostBytes) {
                return refuse(key, value.at,
                              kj::str("the path has ", value.text.size(), " octets"));
              }
              config.*rule.field = kj::str(value.text);
              return nullptr;
            },
            [&](const LogFormatRule&) -> Outcome {
              if (value.text != "text" && value.text != "json") return wrong("text or json");
              config.logFormat = value.text == "json" ? LogFormat::JSON : LogFormat::TEXT;
              return nullptr;
            },
            [&](const FixedRule& rule) -> Outcome {
              if (value.text == rule.value) return nullptr;
              return refuse(key, value.at,
                            kj::str(shown(), " cannot be honoured: ", rule.whyNoOther));
            },
        },
        key.rule);
  }
};

// The parts of "a.b.c" but the last.
kj::Vector<kj::ArrayPtr<const char>> sectionsOf(kj::StringPtr path) {
  kj::Vector<kj::ArrayPtr<const char>> result;
  size_t start = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '.') continue;
    result.add(path.slice(start, i));
    start = i + 1;
  }
  return result;
}

}  // namespace

Result<DaemonConfig> readDaemonConfig(kj::StringPtr file, kj::ArrayPtr<const char> text) {
  auto tree = readYaml(file, text);
  if (tree.is<Problem>()) return kj::mv(tree.get<Problem>());
  Filler filler(file);
  KJ_IF_MAYBE (problem, filler.fill(tree.get<YamlValue>(), "")) {
    return kj::mv(*problem);
  }
  return kj::mv(filler.config);
}

kj::String writeDaemonConfig(const DaemonConfig& config) {
  kj::Vector<char> result;
  kj::Vector<kj::ArrayPtr<const char>> open;
  auto line = [&](size_t depth, kj::ArrayPtr<const char> name, kj::StringPtr value) {
    for (size_t i = 0; i < depth; ++i)
      result.addAll("  "_kj);
    result.addAll(name);
    result.add(':');
    if (value != "") result.addAll(kj::str(" ", value));
    result.add('\n');
  };
  for (auto& key: keys()) {
    KJ_IF_MAYBE (value, valueText(key, config)) {
      auto sections = sectionsOf(key.path);
      size_t same = 0;
      while (same < sections.size() && same < open.size() && sections[same] == open[same])
        ++same;
      for (auto depth = same; depth < sections.size(); ++depth)
        line(depth, sections[depth], nullptr);
      open = kj::mv(sections);
      auto start = key.path.findLast('.').map([](size_t dot) { return dot + 1; }).orDefault(0);
      line(open.size(), key.path.slice(start), *value);
    }
  }
  result.add('\0');
  return kj::String(result.releaseAsArray());
}

kj::String daemonConfigTable() {
  DaemonConfig standard;
  kj::Vector<kj::String> rows;
  for (auto& key: keys()) {
    auto path = std::get_if<PathRule>(&key.rule);
    auto value = path != nullptr ? kj::str(path->standard)
                                 : kj::str('`', KJ_ASSERT_NONNULL(valueText(key, standard)), '`');
    rows.add(
        kj::str("| `", key.path, "` | ", takes(key), " | ", value, " | ", key.meaning, " |\n"));
  }
  return kj::str("| key | takes | default | meaning |\n| --- | --- | --- | --- |\n",
                 kj::strArray(rows, ""));
}

}  // namespace capstan
