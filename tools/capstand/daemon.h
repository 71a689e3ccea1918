#pragma once

#include "base/problem.h"
#include "domain/limits.h"

namespace capstan {

struct DaemonOptions {
  kj::String socket;
  kj::String stateDirectory;
  kj::String runtimeDirectory;
  kj::String helperSocketDirectory;       // Of this machine's helpers.
  kj::String executable;                  // Path of this program.
  kj::Maybe<kj::String> helperDirectory;  // --agentctl-dir
  bool localAdmin = true;
  bool autoStarted = false;  // Ends by itself when idle.
  bool dockerEnabled = false;
  uint64_t agentDescriptors = 1024;  // Soft limit of local agents: what we were started with.
  Limits limits;
};

// The daemon from its first lock to its orderly end; a Problem when it could not start.
Outcome runDaemon(DaemonOptions options);

}  // namespace capstan
