#include "client/command-line.h"

#include "base/nearest.h"

#include <cstring>

namespace capstan {

kj::Maybe<kj::StringPtr> Arguments::get(kj::StringPtr option) const {
  auto given = all(option);
  if (given.size() == 0) return nullptr;
  return given.back().asPtr();
}

kj::ArrayPtr<const kj::String> Arguments::all(kj::StringPtr option) const {
  KJ_IF_MAYBE (given, values.find(option)) {
    return given->asPtr();
  }
  return nullptr;
}

kj::Maybe<kj::ArrayPtr<const kj::String>> Arguments::rest() const {
  KJ_IF_MAYBE (words, afterDashes) {
    return words->asPtr().asConst();
  }
  return nullptr;
}

namespace {

Problem unknownOption(kj::StringPtr name, kj::ArrayPtr<const OptionRule> rules) {
  auto problem = Problem(ErrorCode::INVALID_ARGUMENT, kj::str("unknown option ", name));
  auto known = KJ_MAP(rule, rules) { return rule.name; };
  auto near = nearestWord(name, known);
  problem.hint = near.map([](kj::StringPtr word) { return kj::str("did you mean ", word, "?"); })
                     .orDefault([]() { return kj::str("--help shows the options"); });
  return problem;
}

}  // namespace

Result<Arguments> readArguments(kj::ArrayPtr<const char* const> argv,
                                kj::ArrayPtr<const OptionRule> rules) {
  Arguments result;
  for (size_t i = 0; i < argv.size(); ++i) {
    kj::StringPtr word = argv[i];
    if (word == "--") {
      kj::Vector<kj::String> rest;
      for (size_t j = i + 1; j < argv.size(); ++j)
        rest.add(kj::str(argv[j]));
      result.afterDashes = kj::mv(rest);
      break;
    }
    if (word == "-h") word = "--help"_kj;
    if (word.size() < 2 || word[0] != '-') {
      result.plain.add(kj::str(word));
      continue;
    }
    kj::String name = kj::str(word);
    kj::Maybe<kj::String> attached;
    KJ_IF_MAYBE (equals, word.findFirst('=')) {
      name = kj::str(word.slice(0, *equals));
      attached = kj::str(word.slice(*equals + 1));
    }
    const OptionRule* rule = nullptr;
    for (auto& known: rules) {
      if (known.name == name) rule = &known;
    }
    if (rule == nullptr) return unknownOption(name, rules);
    kj::String value;
    if (rule->value.size() == 0) {
      if (attached != nullptr) {
        return Problem(ErrorCode::INVALID_ARGUMENT, kj::str(name, " takes no value"));
      }
    } else KJ_IF_MAYBE (text, attached) {
      value = kj::mv(*text);
    } else {
      if (i + 1 == argv.size()) {
        return Problem(ErrorCode::INVALID_ARGUMENT, kj::str(name, " needs a value"))
            .advise(kj::str(name, " ", rule->value));
      }
      value = kj::str(argv[++i]);
    }
    auto& given = result.values.findOrCreate(name, [&]() {
      return decltype(result.values)::Entry{kj::str(name), kj::Vector<kj::String>()};
    });
    if (given.size() > 0 && !rule->repeated && rule->value.size() > 0) {
      return Problem(ErrorCode::INVALID_ARGUMENT, kj::str(name, " is given twice"));
    }
    given.add(kj::mv(value));
  }
  return kj::mv(result);
}

kj::String helpOf(kj::ArrayPtr<const OptionRule> rules) {
  size_t width = 0;
  auto titles = KJ_MAP(rule, rules) {
    auto title = rule.value.size() > 0 ? kj::str(rule.name, ' ', rule.value) : kj::str(rule.name);
    width = kj::max(width, title.size());
    return title;
  };
  kj::Vector<kj::String> lines;
  for (auto i: kj::indices(rules)) {
    if (rules[i].help.size() == 0) continue;  // For programs, not for people.
    auto gap = kj::heapString(width - titles[i].size() + 2);
    std::memset(gap.begin(), ' ', gap.size());
    lines.add(kj::str("  ", titles[i], gap, rules[i].help, "\n"));
  }
  return kj::strArray(lines, "");
}

}  // namespace capstan
