#pragma once
// Executor types, the runtimes that serve them, and the rows every daemon has.

#include "base/problem.h"

#include <kj/string.h>

namespace capstan {

// A configured target.
struct Executor {
  kj::String id;
  kj::String name;
  kj::String type;
  bool isSystem = false;
};

// The runtimes Capstan knows, also those that a build leaves out.
inline constexpr kj::StringPtr RUNTIMES[] = {"standalone"_kj, "docker"_kj, "ssh"_kj,
                                             "kubernetes"_kj, "sprites"_kj};

// The runtime that serves an executor type ("local" is an alias of "local_pc"). Unknown types are
// refused with the known ones: work meant for isolation never falls back to the host.
Result<kj::StringPtr> runtimeOf(kj::StringPtr executorType);

// The system rows: Local PC and Local Docker.
kj::ArrayPtr<const Executor> systemExecutors();

// By id, then name, then unique prefix of an id. Empty = Local PC.
Result<const Executor*> chooseExecutor(kj::StringPtr name);

}  // namespace capstan
