#include "rpc/convert-catalog.h"

namespace capstan {

namespace {

void write(capnp::List<rpc::KeyValue>::Builder out, kj::ArrayPtr<const Label> pairs) {
  for (auto i: kj::indices(pairs)) {
    out[i].setKey(pairs[i].key);
    out[i].setValue(pairs[i].value);
  }
}

kj::Array<Label> readPairs(capnp::List<rpc::KeyValue>::Reader pairs) {
  return KJ_MAP(pair, pairs) { return Label{copy(pair.getKey()), copy(pair.getValue())}; };
}

}  // namespace

void writeNames(rpc::Executor::Builder out, const ExecutorRecord& record) {
  out.setId(record.id);
  out.setName(record.name);
  out.setType(record.type);
  out.setStatus(record.status == ExecutorStatus::ACTIVE ? "active" : "disabled");
  out.setIsSystem(record.isSystem);
  out.setResumable(record.resumable);
  out.setVersion(record.version);
  out.setCreatedAt(record.createdAt);
  out.setUpdatedAt(record.updatedAt);
}

void write(rpc::Executor::Builder out, const ExecutorRecord& record) {
  writeNames(out, record);
  write(out.initConfig(record.config.size()), record.config);
}

void writeNames(rpc::Profile::Builder out, const ProfileRecord& record) {
  out.setId(record.id);
  out.setExecutorId(record.executorId);
  out.setName(record.name);
  out.setMcpPolicy(record.mcpPolicy);
  out.setVersion(record.version);
  out.setCreatedAt(record.createdAt);
  out.setUpdatedAt(record.updatedAt);
}

void write(rpc::Profile::Builder out, const ProfileRecord& record) {
  writeNames(out, record);
  write(out.initConfig(record.config.size()), record.config);
  out.setPrepareScript(record.prepareScript);
  out.setCleanupScript(record.cleanupScript);
  auto variables = out.initVariables(record.variables.size());
  for (auto i: kj::indices(record.variables)) {
    auto& variable = record.variables[i];
    variables[i].setKey(variable.key);
    if (variable.secret.size() > 0) {
      variables[i].setSecret(variable.secret);
    } else {
      variables[i].setLiteral(variable.literal);
    }
    variables[i].setOrigin(rpc::Origin::EXECUTOR_PROFILE);
  }
}

Result<ExecutorChange> readExecutorChange(rpc::Executor::Reader row) {
  ExecutorChange change;
  if (row.hasName()) change.name = copy(row.getName());
  if (row.hasType()) change.type = copy(row.getType());
  if (row.hasStatus()) change.status = copy(row.getStatus());
  if (row.hasConfig()) change.config = readPairs(row.getConfig());
  return kj::mv(change);
}

Result<ProfileChange> readProfileChange(rpc::Profile::Reader row) {
  ProfileChange change;
  if (row.hasExecutorId()) change.executorId = copy(row.getExecutorId());
  if (row.hasName()) change.name = copy(row.getName());
  if (row.hasMcpPolicy()) change.mcpPolicy = copy(row.getMcpPolicy());
  if (row.hasConfig()) change.config = readPairs(row.getConfig());
  if (row.hasPrepareScript()) change.prepareScript = copy(row.getPrepareScript());
  if (row.hasCleanupScript()) change.cleanupScript = copy(row.getCleanupScript());
  if (row.hasVariables()) {
    auto variables = row.getVariables();
    auto builder = kj::heapArrayBuilder<Variable>(variables.size());
    for (auto i: kj::indices(variables)) {
      auto variable = readVariable(variables[i], kj::str("variables[", i, "]"));
      if (variable.is<Problem>()) return kj::mv(variable.get<Problem>());
      builder.add(kj::mv(variable.get<Variable>()));
    }
    change.variables = builder.finish();
  }
  return kj::mv(change);
}

}  // namespace capstan
