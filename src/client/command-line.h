#pragma once
// Options of our programs: declared once, read before or after the command, shown by --help.

#include "base/problem.h"

#include <kj/map.h>
#include <kj/vector.h>

namespace capstan {

struct OptionRule {
  kj::StringPtr name;   // "--json"
  kj::StringPtr value;  // What its value is called in the help; empty = a switch.
  kj::StringPtr help;
  bool repeated = false;  // May be given several times.
};

// What was given. Values keep their order.
class Arguments {
public:
  bool has(kj::StringPtr option) const { return values.find(option) != nullptr; }
  // The value, the last one of several; null when not given.
  kj::Maybe<kj::StringPtr> get(kj::StringPtr option) const;
  kj::ArrayPtr<const kj::String> all(kj::StringPtr option) const;

  // Words that are no options, in order.
  kj::ArrayPtr<const kj::String> words() const { return plain; }
  // What stood after "--"; null without one.
  kj::Maybe<kj::ArrayPtr<const kj::String>> rest() const;

  kj::HashMap<kj::String, kj::Vector<kj::String>> values;
  kj::Vector<kj::String> plain;
  kj::Maybe<kj::Vector<kj::String>> afterDashes;
};

// Reads the words after the program's name: "--name value", "--name=value", "-h" for --help, "--"
// ends the options. invalidArgument for an unknown option (with the nearest known one), a missing
// value, a value for a switch, a repetition.
Result<Arguments> readArguments(kj::ArrayPtr<const char* const> argv,
                                kj::ArrayPtr<const OptionRule> rules);

// The options as lines of help, aligned.
kj::String helpOf(kj::ArrayPtr<const OptionRule> rules);

}  // namespace capstan
