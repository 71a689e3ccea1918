#pragma once
// Executor types and the runtimes that serve them.

#include "base/problem.h"

#include <kj/string.h>

namespace capstan {

// The runtimes Capstan knows, also those that a build leaves out.
inline constexpr kj::StringPtr RUNTIMES[] = {"standalone"_kj, "docker"_kj, "ssh"_kj,
                                             "kubernetes"_kj, "sprites"_kj};

// The runtime that serves an executor type ("local" is an alias of "local_pc"). Unknown types are
// refused with the known ones: work meant for isolation never falls back to the host.
Result<kj::StringPtr> runtimeOf(kj::StringPtr executorType);

// The executor type that a runtime stands for when nothing else is known: of several the one that
// needs no further configuration. Unknown runtimes are refused with the known ones.
Result<kj::StringPtr> executorTypeOf(kj::StringPtr runtime);

}  // namespace capstan
