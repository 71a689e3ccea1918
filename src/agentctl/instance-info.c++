#include "agentctl/instance.h"

#include <csignal>
#include <cstring>

namespace capstan {

kj::Promise<HelperInstance::Info> HelperInstance::info() {
  auto self = kj::addRef(*this);
  uint32_t descendants = 0;
  KJ_IF_MAYBE (reaper, link) {
    if (stateNow == agentctl::InstanceState::EXITED && !(*reaper)->isEmpty()) {
      descendants = co_await (*reaper)->descendants();
    }
  }
  Info result;
  result.id = kj::str(idText);
  result.sessionId = kj::str(sessionId);
  result.environmentId = kj::str(environmentId);
  result.taskId = kj::str(taskId);
  result.state = stateNow;
  result.pid = pid;
  result.startTicks = startTicks;
  result.startedAtMs = startedAtMs;
  if (stateNow == agentctl::InstanceState::EXITED) result.exit = exit;
  result.descendants = descendants;
  result.outputBegin = log.beginOffset();
  result.outputEnd = log.endOffset();
  result.ephemeral = ephemeral;
  result.acknowledged = acknowledged;
  KJ_IF_MAYBE (problem, failure) {
    result.error = problem->clone();
  } else if (log.lost().error != 0) {
    result.error = Problem(ErrorCode::RESOURCE_EXHAUSTED,
                           kj::str(log.lost().bytes, " octets of output were not kept"))
                       .because(kj::str("the session directory could not be written"))
                       .from("agentctl", errnoName(log.lost().error));
  }
  co_return kj::mv(result);
}

void HelperInstance::Info::write(agentctl::InstanceInfo::Builder builder) const {
  builder.setId(id);
  builder.setSessionId(sessionId);
  builder.setEnvironmentId(environmentId);
  builder.setTaskId(taskId);
  builder.setState(state);
  builder.setPid(pid);
  builder.setStartTicks(startTicks);
  builder.setStartedAt(startedAtMs);
  KJ_IF_MAYBE (record, exit) {
    record->write(builder.initExit());
  }
  builder.setDescendants(descendants);
  builder.setOutputBegin(outputBegin);
  builder.setOutputEnd(outputEnd);
  builder.setEphemeral(ephemeral);
  builder.setAcknowledged(acknowledged);
  KJ_IF_MAYBE (problem, error) {
    writeProblem(*problem, builder.initError());
  }
}

void ExitRecord::write(rpc::ExitStatus::Builder builder) const {
  switch (kind) {
    case Kind::CODE:
      builder.setCode(value);
      break;
    case Kind::SIGNAL: {
      const char* name = sigabbrev_np(value);
      builder.setSignal(name == nullptr ? kj::str(value) : kj::str(name));
      break;
    }
    case Kind::UNKNOWN:
      builder.setUnknown();
      break;
  }
  builder.setAt(atMs);
}

void writeProblem(const Problem& problem, rpc::Error::Builder builder) {
  builder.setCode(problem.code);
  if (problem.message != nullptr) builder.setMessage(problem.message);
  if (problem.cause != nullptr) builder.setCause(problem.cause);
  if (problem.hint != nullptr) builder.setHint(problem.hint);
  if (problem.field != nullptr) builder.setField(problem.field);
  builder.setSource(problem.source == nullptr ? "agentctl"_kj : problem.source.asPtr());
  if (problem.upstreamCode != nullptr) builder.setUpstreamCode(problem.upstreamCode);
  builder.setRetry(problem.retry);
  builder.setRetryAfterMs(problem.retryAfterMs);
}

kj::Maybe<int> signalNumber(kj::StringPtr name) {
  for (int number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return nullptr;
}

}  // namespace capstan
