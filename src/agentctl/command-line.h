#pragma once
// agentctl's command line and its whole run; main() only calls this.

#include "agentctl/server.h"

namespace capstan {

struct CommandLine {
  enum class Action { SERVE, VERSION, HELP };
  Action action = Action::HELP;
  kj::String socketPath;
  int nonceFd = -1;
  kj::String stateDirectory;
  kj::String addressFile;
  kj::String logFile;
  kj::String lifelineFile;        // Empty = none.
  uint64_t agentDescriptors = 0;  // Soft limit of agents; 0 = the one agentctl was started with.
  HelperOptions options;
};

// Problems: invalidArgument.
Result<CommandLine> parseCommandLine(kj::ArrayPtr<const kj::StringPtr> words);

kj::StringPtr helpText();

// Serves until the helper is to end. Prints one JSON line on stdout when it listens:
// {"address":"unix:/...","serverId":"<hex>","pid":N}. Returns the exit code.
int runHelper(CommandLine commandLine);

}  // namespace capstan
