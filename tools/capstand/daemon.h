#pragma once

#include "base/problem.h"
#include "client/command-line.h"

namespace capstan {

struct DaemonOptions {
  kj::String socket;
  kj::String stateDirectory;
  kj::String runtimeDirectory;
  kj::String executable;                  // Path of this program.
  kj::Maybe<kj::String> helperDirectory;  // --agentctl-dir
  bool localAdmin = true;
  bool autoStarted = false;  // Ends by itself when idle.
};

// The daemon from its first lock to its orderly end; a Problem when it could not start.
Outcome runDaemon(DaemonOptions options);

}  // namespace capstan
