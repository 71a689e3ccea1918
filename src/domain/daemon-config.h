#pragma once
// What an administrator sets for a daemon: the configuration file's content as values.

#include "base/log.h"
#include "domain/limits.h"

#include <kj/string.h>

namespace capstan {

struct DaemonConfig {
  kj::Maybe<kj::String> stateDirectory;   // Absolute; null = by the user's variables.
  kj::Maybe<kj::String> socket;           // Absolute; null = capstan.sock in the runtime folder.
  kj::Maybe<kj::String> helperDirectory;  // Absolute; null = beside the program.
  bool localAdmin = true;
  LogFormat logFormat = LogFormat::TEXT;
  bool dockerEnabled = false;
  // Absolute: the folder of the sockets of this machine's helpers; null = the runtime folder. A
  // folder, because several helpers are alive while older ones drain.
  kj::Maybe<kj::String> standaloneSocketDirectory;
  Limits limits;
};

}  // namespace capstan
