#include "domain/environment.h"

#include "domain/records.h"

namespace capstan {

Variable Variable::clone() const {
  Variable result;
  result.key = kj::str(key);
  result.literal = kj::str(literal);
  result.secret = kj::str(secret);
  result.origin = origin;
  result.otherOrigin = kj::str(otherOrigin);
  result.repository = kj::str(repository);
  result.tenantId = kj::str(tenantId);
  return result;
}

kj::Array<Label> cloneAll(kj::ArrayPtr<const Label> labels) {
  return KJ_MAP(each, labels) { return each.clone(); };
}

LaunchSpec LaunchSpec::clone() const {
  LaunchSpec result;
  result.requestId = kj::heapArray<kj::byte>(requestId);
  result.command = KJ_MAP(word, command) { return kj::str(word); };
  result.resumeCommand = KJ_MAP(word, resumeCommand) { return kj::str(word); };
  result.variables = KJ_MAP(variable, variables) { return variable.clone(); };
  result.workingDirectory = kj::str(workingDirectory);
  KJ_IF_MAYBE (t, terminal) {
    result.terminal = t->clone();
  }
  result.pauseWhenFull = pauseWhenFull;
  result.wait = wait;
  result.start = start;
  result.deadline = deadline;
  return result;
}

EnvironmentSpec EnvironmentSpec::clone() const {
  EnvironmentSpec result;
  result.requestId = kj::heapArray<kj::byte>(requestId);
  result.taskId = kj::str(taskId);
  result.title = kj::str(title);
  result.tenantId = kj::str(tenantId);
  result.executor = kj::str(executor);
  result.profile = kj::str(profile);
  result.workspace = workspace.clone();
  for (auto& label: labels)
    result.labels.add(label.clone());
  return result;
}

PrepareStep PrepareStep::clone() const {
  PrepareStep result;
  result.name = kj::str(name);
  result.command = kj::str(command);
  result.status = status;
  result.output = kj::str(output);
  result.error = kj::str(error);
  result.warning = kj::str(warning);
  result.warningDetail = kj::str(warningDetail);
  result.startedAt = startedAt;
  result.endedAt = endedAt;
  return result;
}

InventoryItem InventoryItem::clone() const {
  InventoryItem result;
  result.environmentId = kj::str(environmentId);
  result.seq = seq;
  result.runtime = kj::str(runtime);
  result.step = kj::str(step);
  result.kind = kj::str(kind);
  result.name = kj::str(name);
  result.identity = kj::str(identity);
  result.state = state;
  result.details = cloneAll(details);
  result.createdAt = createdAt;
  result.changedAt = changedAt;
  return result;
}

}  // namespace capstan
