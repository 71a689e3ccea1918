// agentctl, the helper that runs agent processes.

#include "agentctl/command-line.h"
#include "base/descriptors.h"
#include "base/memory.h"

#include <kj/vector.h>

#include <cstdio>

int main(int argc, char** argv) {
  capstan::openStandardStreams();
  capstan::keepHeapForStreams();
  kj::Vector<kj::StringPtr> words;
  for (int i = 1; i < argc; ++i) {
    words.add(argv[i]);
  }
  auto parsed = capstan::parseCommandLine(words);
  KJ_IF_MAYBE (problem, parsed.tryGet<capstan::Problem>()) {
    std::fprintf(stderr, "agentctl: %s\n", kj::str(*problem).cStr());
    return 2;
  }
  auto& line = parsed.get<capstan::CommandLine>();
  switch (line.action) {
    case capstan::CommandLine::Action::HELP:
      std::fputs(capstan::helpText().cStr(), stdout);
      return 0;
    case capstan::CommandLine::Action::VERSION:
      std::printf("agentctl\n%s", capstan::helperNoteText().cStr());
      return 0;
    case capstan::CommandLine::Action::SERVE:
      return capstan::runHelper(kj::mv(line));
  }
  return 2;
}
