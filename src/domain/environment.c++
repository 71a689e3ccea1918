#include "domain/environment.h"

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

LaunchSpec LaunchSpec::clone() const {
  LaunchSpec result;
  result.requestId = kj::heapArray<kj::byte>(requestId);
  result.command = KJ_MAP(word, command) { return kj::str(word); };
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

}  // namespace capstan
