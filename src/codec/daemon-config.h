#pragma once
// The configuration file of capstand (YAML), read strictly, and written so that it reads back.

#include "base/problem.h"
#include "domain/daemon-config.h"

namespace capstan {

// Reads the text of the file that is shown as `file`. What it leaves out keeps its default.
// invalidArgument for anything that is not understood completely: the message begins with
// file:line:column, `field` is the key's path, the hint is the cure.
Result<DaemonConfig> readDaemonConfig(kj::StringPtr file, kj::ArrayPtr<const char> text);

// All keys with their values as a file that readDaemonConfig() reads as the same configuration.
// Paths that are not set are left out.
kj::String writeDaemonConfig(const DaemonConfig& config);

// Every key with what it takes, its default and its meaning, as rows of a Markdown table.
kj::String daemonConfigTable();

}  // namespace capstan
