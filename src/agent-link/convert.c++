#include "agent-link/convert.h"

namespace capstan {

Outcome readError(rpc::Error::Reader error) {
  if (error.getCode() == ErrorCode::NONE) return nullptr;
  Problem problem(error.getCode(), kj::str(error.getMessage()));
  problem.cause = kj::str(error.getCause());
  problem.hint = kj::str(error.getHint());
  problem.field = kj::str(error.getField());
  problem.source = kj::str(error.getSource());
  problem.upstreamCode = kj::str(error.getUpstreamCode());
  problem.retry = error.getRetry();
  problem.retryAfterMs = error.getRetryAfterMs();
  return kj::mv(problem);
}

Outcome readHelperError(rpc::Error::Reader error) {
  auto outcome = readError(error);
  KJ_IF_MAYBE (problem, outcome) {
    if (problem->source.size() == 0) problem->source = kj::str("agentctl");
  }
  return outcome;
}

ExitStatus readExit(rpc::ExitStatus::Reader exit) {
  ExitStatus status;
  status.at = exit.getAt();
  switch (exit.which()) {
    case rpc::ExitStatus::CODE:
      status.kind = ExitStatus::Kind::CODE;
      status.code = exit.getCode();
      break;
    case rpc::ExitStatus::SIGNAL:
      status.kind = ExitStatus::Kind::SIGNAL;
      status.signal = kj::str(exit.getSignal());
      break;
    case rpc::ExitStatus::UNKNOWN:
      break;
  }
  return status;
}

void write(rpc::Terminal::Builder out, const Terminal& terminal) {
  out.setColumns(terminal.columns);
  out.setRows(terminal.rows);
  out.setTerm(terminal.term);
}

InstanceReport readReport(agentctl::InstanceInfo::Reader info) {
  InstanceReport report;
  report.id = kj::str(info.getId());
  report.sessionId = kj::str(info.getSessionId());
  report.environmentId = kj::str(info.getEnvironmentId());
  report.taskId = kj::str(info.getTaskId());
  report.running = info.getState() == agentctl::InstanceState::RUNNING;
  report.acknowledged = info.getAcknowledged();
  report.ephemeral = info.getEphemeral();
  report.pid = info.getPid();
  report.startedAt = info.getStartedAt();
  if (info.hasExit()) report.exit = readExit(info.getExit());
  report.descendants = info.getDescendants();
  report.outputBegin = info.getOutputBegin();
  report.outputEnd = info.getOutputEnd();
  report.error = readHelperError(info.getError());
  return report;
}

HelperInfo readHelperInfo(agentctl::ServerInfo::Reader info) {
  HelperInfo result;
  result.serverId = kj::heapArray<kj::byte>(info.getServerId());
  result.build = kj::str(info.getBuild());
  result.capabilities = KJ_MAP(name, info.getCapabilities())->kj::String { return kj::str(name); };
  result.pid = info.getPid();
  result.platform = kj::str(info.getPlatform());
  result.draining = info.getDraining();
  return result;
}

}  // namespace capstan
