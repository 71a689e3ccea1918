#include "domain/executors.h"

namespace capstan {

namespace {

struct TypeRow {
  kj::StringPtr type;
  kj::StringPtr runtime;
};

// Of rows with one runtime the first is its type.
const TypeRow TYPES[] = {
    {"local_pc"_kj, "standalone"_kj},  {"local_docker"_kj, "docker"_kj},
    {"remote_docker"_kj, "docker"_kj}, {"ssh"_kj, "ssh"_kj},
    {"k8s"_kj, "kubernetes"_kj},       {"sprites"_kj, "sprites"_kj},
};

}  // namespace

Result<kj::StringPtr> runtimeOf(kj::StringPtr executorType) {
  auto type = executorType == "local" ? "local_pc"_kj : executorType;
  for (auto& row: TYPES) {
    if (row.type == type) return row.runtime;
  }
  auto known = KJ_MAP(row, TYPES) { return kj::str(row.type); };
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("unknown executor type '", executorType, "'"))
      .at(kj::str("type"))
      .advise(kj::str("known types: ", kj::strArray(known, ", ")));
}

Result<kj::StringPtr> executorTypeOf(kj::StringPtr runtime) {
  for (auto& row: TYPES) {
    if (row.runtime == runtime) return row.type;
  }
  auto known = KJ_MAP(each, RUNTIMES) { return kj::str(each); };
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("unknown runtime '", runtime, "'"))
      .at(kj::str("runtime"))
      .advise(kj::str("known runtimes: ", kj::strArray(known, ", ")));
}

}  // namespace capstan
