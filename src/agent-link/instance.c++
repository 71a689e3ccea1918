#include "agent-link/bounded.h"
#include "agent-link/link.h"

namespace capstan {

AgentInstance::AgentInstance(kj::Own<AgentLink> link, kj::String id,
                             agentctl::Instance::Client instance, kj::Timer& timer,
                             Deadlines deadlines)
    : owner(kj::mv(link)),
      name(kj::mv(id)),
      instance(kj::mv(instance)),
      timer(timer),
      deadlines(deadlines) {}

kj::Promise<Outcome> AgentInstance::configure(InstanceConfig config) {
  auto request = instance.configureRequest();
  auto out = request.initConfig();
  auto command = out.initCommand(config.command.size());
  for (auto i: kj::indices(config.command))
    command.set(i, config.command[i]);
  auto variables = out.initVariables(config.variables.size());
  for (auto i: kj::indices(config.variables)) {
    variables[i].setKey(config.variables[i].key);
    variables[i].setValue(config.variables[i].value);
  }
  out.setWorkingDirectory(config.workingDirectory);
  KJ_IF_MAYBE (terminal, config.terminal) {
    write(out.initTerminal(), *terminal);
  }
  return ask(timer, deadlines.control, kj::mv(request));
}

kj::Promise<Result<int>> AgentInstance::start() {
  auto work = instance.startRequest().send().then(
      [](capnp::Response<agentctl::Instance::StartResults>&& response) -> Result<int> {
        KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
          return kj::mv(*problem);
        }
        return int(response.getPid());
      });
  return bounded<int>(timer, deadlines.control, kj::mv(work));
}

kj::Promise<Outcome> AgentInstance::signal(kj::String signalName) {
  auto request = instance.signalRequest();
  request.setName(signalName);
  return ask(timer, deadlines.control, kj::mv(request));
}

kj::Promise<Outcome> AgentInstance::resize(uint16_t columns, uint16_t rows) {
  auto request = instance.resizeRequest();
  request.setColumns(columns);
  request.setRows(rows);
  return ask(timer, deadlines.control, kj::mv(request));
}

kj::Promise<Result<ExitStatus>> AgentInstance::wait() {
  auto work = instance.waitRequest().send().then(
      [](capnp::Response<agentctl::Instance::WaitResults>&& response) -> Result<ExitStatus> {
        KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
          return kj::mv(*problem);
        }
        return readExit(response.getExit());
      });
  return settled<ExitStatus>(kj::mv(work));
}

kj::Promise<Result<uint32_t>> AgentInstance::stop(kj::Duration grace, StopMode mode) {
  auto request = instance.stopRequest();
  request.setGraceMs(grace / kj::MILLISECONDS);
  request.setForce(mode == StopMode::FORCED);
  auto work = request.send().then(
      [](capnp::Response<agentctl::Instance::StopResults>&& response) -> Result<uint32_t> {
        KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
          return kj::mv(*problem);
        }
        return response.getSurvivors();
      });
  return bounded<uint32_t>(timer, deadlines.control + grace, kj::mv(work));
}

kj::Promise<Result<InstanceReport>> AgentInstance::report() {
  auto work = instance.infoRequest().send().then(
      [](capnp::Response<agentctl::Instance::InfoResults>&& response) -> Result<InstanceReport> {
        return readReport(response.getInfo());
      });
  return bounded<InstanceReport>(timer, deadlines.control, kj::mv(work));
}

}  // namespace capstan
