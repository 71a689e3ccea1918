#pragma once
// From the command line and the configuration file to what holds for this daemon.

#include "client/command-line.h"
#include "client/paths.h"
#include "domain/daemon-config.h"

namespace capstan {

// The file of --config, if any, overridden by the other options, and with every path that holds by
// default filled in: all of them absolute. Reads the file and nothing else. Problems: those of
// readDaemonConfig(), of the options, and of a file that cannot be read.
Result<DaemonConfig> effectiveConfig(const Arguments& arguments, GetVariable& get, uint32_t uid);

}  // namespace capstan
