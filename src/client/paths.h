#pragma once
// Where a daemon is found and keeps its state, when nothing else is said.

#include "base/problem.h"

#include <kj/function.h>
#include <kj/string.h>

namespace capstan {

// Looks a variable of the process up; null = not set.
using GetVariable = kj::Function<kj::Maybe<kj::String>(kj::StringPtr name)>;
kj::Maybe<kj::String> processVariable(kj::StringPtr name);

// Most octets of a unix socket's path: sockaddr_un holds 107, and agentctl's sockets stand beside.
inline constexpr size_t SOCKET_PATH_BYTES = 99;

// "/agentctl-" + 16 digits + ".sock", the longest that stands in the runtime folder.
inline constexpr size_t LONGEST_SOCKET_NAME = 31;

// The folder for sockets: $XDG_RUNTIME_DIR/capstan, else (or when that leaves no room for a
// socket's name) /run/capstan for root, else /tmp/.capstan-<uid>.
kj::String runtimeDirectory(GetVariable& get, uint32_t uid);
// runtimeDirectory() + "/capstan.sock".
kj::String defaultSocket(GetVariable& get, uint32_t uid);
// $XDG_STATE_HOME/capstan, else $HOME/.local/state/capstan. invalidArgument without both.
Result<kj::String> defaultStateDirectory(GetVariable& get);

// Makes `path` (and what is missing above it) a folder of mode 0700 that belongs to this user and
// is no symbolic link; denied when it is anything else, so that nobody else's folder is used.
Outcome ensurePrivateDirectory(kj::StringPtr path);

}  // namespace capstan
