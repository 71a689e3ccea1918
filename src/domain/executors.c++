#include "domain/executors.h"

#include <kj/vector.h>

namespace capstan {

namespace {

struct TypeRow {
  kj::StringPtr type;
  kj::StringPtr runtime;
};

const TypeRow TYPES[] = {
    {"local_pc"_kj, "standalone"_kj},  {"local_docker"_kj, "docker"_kj},
    {"remote_docker"_kj, "docker"_kj}, {"ssh"_kj, "ssh"_kj},
    {"k8s"_kj, "kubernetes"_kj},       {"sprites"_kj, "sprites"_kj},
};

Executor systemRow(kj::StringPtr id, kj::StringPtr name, kj::StringPtr type) {
  return Executor{kj::str(id), kj::str(name), kj::str(type), true};
}

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

kj::ArrayPtr<const Executor> systemExecutors() {
  static const Executor ROWS[] = {
      systemRow("exec-local-pc", "Local PC", "local_pc"),
      systemRow("exec-local-docker", "Local Docker", "local_docker"),
  };
  return ROWS;
}

Result<const Executor*> chooseExecutor(kj::StringPtr name) {
  auto rows = systemExecutors();
  if (name.size() == 0) return &rows[0];
  for (auto& row: rows) {
    if (row.id == name) return &row;
  }
  for (auto& row: rows) {
    if (row.name == name) return &row;
  }
  kj::Vector<const Executor*> matching;
  for (auto& row: rows) {
    if (row.id.startsWith(name)) matching.add(&row);
  }
  if (matching.size() == 1) return matching[0];
  if (matching.size() > 1) {
    auto ids = KJ_MAP(row, matching) { return kj::str(row->id); };
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("'", name, "' stands for several executors"))
        .at(kj::str("spec.executorId"))
        .advise(kj::str("one of ", kj::strArray(ids, ", ")));
  }
  auto ids = KJ_MAP(row, rows) { return kj::str(row.id); };
  return Problem(ErrorCode::NOT_FOUND, kj::str("no executor '", name, "'"))
      .at(kj::str("spec.executorId"))
      .advise(kj::str("known executors: ", kj::strArray(ids, ", ")));
}

}  // namespace capstan
