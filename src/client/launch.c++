#include "client/launch.h"

namespace capstan {

kj::Maybe<Problem> readProblem(rpc::Error::Reader error) {
  if (error.getCode() == ErrorCode::NONE) return nullptr;
  Problem problem(error.getCode(), kj::str(error.getMessage()));
  problem.cause = kj::str(error.getCause());
  problem.hint = kj::str(error.getHint());
  problem.field = kj::str(error.getField());
  problem.source = kj::str(error.getSource());
  problem.upstreamCode = kj::str(error.getUpstreamCode());
  problem.retry = error.getRetry();
  problem.retryAfterMs = error.getRetryAfterMs();
  return problem;
}

Command::Command(std::initializer_list<kj::StringPtr> command) {
  for (auto word: command)
    words.add(kj::str(word));
}

kj::Promise<Result<rpc::TaskEnvironment::Client>> ensureEnvironment(
    rpc::Supervisor::Client supervisor, kj::String taskId) {
  auto request = supervisor.ensureRequest();
  request.initSpec().setTaskId(taskId);
  auto response = co_await request.send();
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return kj::mv(*problem);
  }
  co_return response.getEnvironment();
}

kj::Promise<Result<Launched>> launch(rpc::TaskEnvironment::Client environment, Command command) {
  auto request = environment.launchRequest();
  auto spec = request.initSpec();
  auto words = spec.initCommand(command.words.size());
  for (auto i: kj::indices(command.words))
    words.set(i, command.words[i]);
  auto variables = spec.initVariables(command.variables.size());
  for (auto i: kj::indices(command.variables)) {
    variables[i].setKey(command.variables[i].name);
    variables[i].setLiteral(command.variables[i].value);
    variables[i].setOrigin(rpc::Origin::MANAGED_RUNTIME);
  }
  spec.setWorkingDirectory(command.directory);
  spec.setPauseWhenFull(command.whenFull == Command::WhenFull::PAUSE);
  auto response = co_await request.send();
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return kj::mv(*problem);
  }
  co_return Launched{response.getSession(), response.getRun()};
}

kj::String KJ_STRINGIFY(const ProcessExit& exit) {
  KJ_IF_MAYBE (code, exit.code) {
    return kj::str("exit code ", *code);
  }
  KJ_IF_MAYBE (signal, exit.signal) {
    return kj::str("signal ", *signal);
  }
  return kj::str("an unknown end");
}

ProcessExit readExit(rpc::ExitStatus::Reader status) {
  ProcessExit exit;
  switch (status.which()) {
    case rpc::ExitStatus::CODE:
      exit.code = status.getCode();
      break;
    case rpc::ExitStatus::SIGNAL:
      exit.signal = kj::str(status.getSignal());
      break;
    case rpc::ExitStatus::UNKNOWN:
      break;
  }
  return exit;
}

kj::Promise<Result<ProcessExit>> exitOf(rpc::Instance::Client instance) {
  auto response = co_await instance.waitRequest().send();
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return kj::mv(*problem);
  }
  co_return readExit(response.getExit());
}

kj::Promise<Result<ProcessExit>> stop(rpc::Session::Client session, kj::Duration grace) {
  auto request = session.stopRequest();
  request.setGraceMs(grace / kj::MILLISECONDS);
  auto response = co_await request.send();
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return kj::mv(*problem);
  }
  co_return readExit(response.getExit());
}

}  // namespace capstan
