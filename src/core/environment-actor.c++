#include "core/environment-actor.h"

#include <kj/debug.h>

namespace capstan {

EnvironmentActor::EnvironmentActor(Services& services, HelperLinks& links, Backend& backend,
                                   kj::String id, kj::String owner, kj::String executorId,
                                   kj::String executorType, EnvironmentSpec specParam)
    : services(services),
      links(links),
      backend(backend),
      name(kj::mv(id)),
      principal(kj::mv(owner)),
      executor(kj::mv(executorId)),
      executorType(kj::mv(executorType)),
      spec(kj::mv(specParam)),
      createdAt(services.now()),
      changedAt(createdAt),
      tasks(*this) {}

EnvironmentActor::~EnvironmentActor() noexcept(false) {}

void EnvironmentActor::setState(EnvironmentState next) {
  if (current == next) return;
  current = next;
  changedAt = services.now();
  ++seq;
}

CreateRequest EnvironmentActor::place() const {
  CreateRequest request;
  request.environmentId = kj::str(name);
  request.taskId = kj::str(spec.taskId);
  KJ_IF_MAYBE (directory, spec.directory) {
    request.directory = kj::str(*directory);
  }
  return request;
}

EnvironmentStatus EnvironmentActor::status() const {
  EnvironmentStatus status;
  status.id = kj::str(name);
  status.taskId = kj::str(spec.taskId);
  status.title = kj::str(spec.title);
  status.tenantId = kj::str(spec.tenantId);
  status.state = current;
  status.executorId = kj::str(executor);
  status.executorType = kj::str(executorType);
  status.runtime = kj::str(backend.name());
  KJ_IF_MAYBE (place, attachment) {
    status.workspace = kj::str((*place)->workspace());
  }
  status.createdAt = createdAt;
  status.changedAt = changedAt;
  for (auto& entry: sessions)
    status.sessions.add(entry.value->status());
  for (auto& step: progress.steps())
    status.lastSteps.add(step.clone());
  KJ_IF_MAYBE (problem, lastError) {
    status.lastError = problem->clone();
  }
  for (auto& label: spec.labels) {
    status.labels.add(Label{kj::str(label.key), kj::str(label.value)});
  }
  status.seq = seq;
  return status;
}

kj::Promise<EnvironmentStatus> EnvironmentActor::statusWithReports() {
  auto self = kj::addRef(*this);
  kj::Vector<kj::Promise<SessionStatus>> asked;
  for (auto& entry: sessions)
    asked.add(entry.value->statusWithReport());
  auto reports = co_await kj::joinPromises(asked.releaseAsArray());
  auto result = status();
  result.sessions.clear();
  for (auto& report: reports)
    result.sessions.add(kj::mv(report));
  co_return result;
}

void EnvironmentActor::begin() { tasks.add(ready().ignoreResult()); }

kj::Own<void> EnvironmentActor::showProgress(ProgressSink& sink) {
  return kj::heap<ProgressHub::Listener>(progress, sink).attach(kj::addRef(*this));
}

// ---- bring-up

// Also runs in `tasks`, so it must not hold a reference to this: that would be a cycle.
kj::Promise<Outcome> EnvironmentActor::ready() {
  KJ_IF_MAYBE (refusal, refuseNew()) {
    co_return kj::mv(*refusal);
  }
  bool linked = false;
  KJ_IF_MAYBE (present, link) {
    linked = !(*present)->isLost();
  }
  if (current == EnvironmentState::READY && linked) co_return nullptr;
  co_await bringingUp.run([this]() { return bringUp(); });
  if (current == EnvironmentState::READY) co_return nullptr;
  KJ_IF_MAYBE (problem, lastError) {
    co_return problem->clone();
  }
  co_return Problem(ErrorCode::WRONG_STATE, kj::str("the environment was stopped meanwhile"));
}

// Belongs to the single flight, hence to this object: whoever asked may go.
kj::Promise<void> EnvironmentActor::bringUp() {
  lastError = nullptr;
  progress.begin();
  setState(EnvironmentState::PREPARING);
  auto made = co_await backend.createInstance(place(), progress);
  if (made.is<Problem>()) {
    lastError = kj::mv(made.get<Problem>());
    if (current == EnvironmentState::PREPARING) setState(EnvironmentState::FAILED);
    co_return;
  }
  auto reached = kj::mv(made.get<kj::Own<Attachment>>());
  auto opened = co_await links.get(*reached);
  attachment = kj::mv(reached);
  if (opened.is<Problem>()) {
    lastError = kj::mv(opened.get<Problem>());
    if (current == EnvironmentState::PREPARING) setState(EnvironmentState::FAILED);
    co_return;
  }
  auto reachedLink = kj::mv(opened.get<kj::Own<AgentLink>>());
  tasks.add(watchLink(kj::addRef(*reachedLink)));
  link = kj::mv(reachedLink);
  // A stop that came meanwhile has the last word.
  if (current == EnvironmentState::PREPARING) setState(EnvironmentState::READY);
}

kj::Promise<void> EnvironmentActor::watchLink(kj::Own<AgentLink> watched) {
  co_await watched->onLost();
  if (current != EnvironmentState::READY) co_return;
  lastError = Problem(ErrorCode::INSTANCE_LOST, kj::str("the environment's helper is gone"))
                  .advise(kj::str("the next launch starts a new one"))
                  .retryable(RetryHint::SAME_REQUEST_LATER);
  setState(EnvironmentState::LOST);
}

Outcome EnvironmentActor::refuseNew() const {
  if (gone || current == EnvironmentState::CLEANING) {
    return Problem(ErrorCode::NOT_FOUND, kj::str("the environment '", name, "' is being removed"));
  }
  if (current == EnvironmentState::STOPPING) {
    return Problem(ErrorCode::WRONG_STATE, kj::str("the environment is being stopped"))
        .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
  }
  return nullptr;
}

// ---- processes

kj::Promise<Result<kj::Own<ProcessActor>>> EnvironmentActor::makeProcess(LaunchSpec launch,
                                                                         kj::String processId,
                                                                         kj::String sessionId) {
  auto& place = *KJ_ASSERT_NONNULL(attachment);
  auto& helper = *KJ_ASSERT_NONNULL(link);

  auto inherited = place.inheritedVariables();
  auto variables = assembleVariables(
      inherited, ProcessIdentity{spec.taskId, name, sessionId, processId}, launch.variables);
  if (variables.is<Problem>()) co_return kj::mv(variables.get<Problem>());

  InstanceConfig config;
  config.command = KJ_MAP(word, launch.command) { return kj::str(word); };
  config.variables = KJ_MAP(variable, variables.get<kj::Array<ProcessVariable>>()) {
    return InstanceVariable{kj::mv(variable.key), kj::mv(variable.value)};
  };
  config.workingDirectory = kj::str(place.workspace());
  if (launch.workingDirectory.startsWith("/")) {
    config.workingDirectory = kj::str(launch.workingDirectory);
  } else if (launch.workingDirectory.size() > 0) {
    config.workingDirectory = kj::str(place.workspace(), '/', launch.workingDirectory);
  }
  KJ_IF_MAYBE (terminal, launch.terminal) {
    config.terminal = terminal->clone();
  }

  InstanceSpec instance;
  instance.ephemeral = sessionId.size() == 0;
  instance.directory = instance.ephemeral ? kj::String() : place.runDirectory(processId);
  instance.id = kj::mv(processId);
  instance.sessionId = kj::mv(sessionId);
  instance.environmentId = kj::str(name);
  instance.taskId = kj::str(spec.taskId);
  instance.pauseWhenFull = launch.pauseWhenFull || instance.ephemeral;
  instance.spoolLimitBytes = services.limits.outputSpoolBytes;
  instance.stopGrace = services.limits.deadlines.stopGrace;

  auto created = co_await helper.create(kj::mv(instance));
  if (created.is<Problem>()) co_return kj::mv(created.get<Problem>());
  auto made = kj::mv(created.get<kj::Own<AgentInstance>>());
  auto process = kj::refcounted<ProcessActor>(services, kj::addRef(*made), kj::mv(launch.command));
  KJ_IF_MAYBE (problem, co_await made->configure(kj::mv(config))) {
    tasks.add(discardQuietly(kj::mv(process)));
    co_return kj::mv(*problem);
  }
  co_return kj::mv(process);
}

// Shared by the task that works and the caller who may leave.
struct EnvironmentActor::Launching final: public kj::Refcounted {
  kj::Own<kj::PromiseFulfiller<Result<kj::Own<SessionActor>>>> answer;
  bool cancelled = false;
};

kj::Promise<Result<kj::Own<SessionActor>>> EnvironmentActor::launch(LaunchSpec launch) {
  auto self = kj::addRef(*this);
  KJ_IF_MAYBE (problem, checkLaunch(launch, services.limits)) {
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (refusal, refuseNew()) {
    co_return kj::mv(*refusal);
  }
  if (!launch.wait && current != EnvironmentState::READY) {
    begin();
    co_return Problem(ErrorCode::ENVIRONMENT_PREPARING,
                      kj::str("the environment is being prepared"))
        .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
  }
  if (sessions.size() + launching >= services.limits.sessionsPerEnvironment) {
    co_return Problem(ErrorCode::RESOURCE_EXHAUSTED,
                      kj::str("the environment has ", sessions.size(), " sessions, at most ",
                              services.limits.sessionsPerEnvironment, " are kept"))
        .advise(kj::str("use another task, or destroy the environment"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  auto limit = services.limits.deadlines.launch;
  KJ_IF_MAYBE (asked, launch.deadline) {
    limit = *asked;
  }

  auto pair = kj::newPromiseAndFulfiller<Result<kj::Own<SessionActor>>>();
  auto work = kj::refcounted<Launching>();
  work->answer = kj::mv(pair.fulfiller);
  KJ_DEFER(work->cancelled = true);
  tasks.add(runLaunch(kj::addRef(*work), kj::mv(launch)));
  auto result = co_await pair.promise.exclusiveJoin(
      services.timer.afterDelay(limit).then([limit]() -> Result<kj::Own<SessionActor>> {
        return Problem(ErrorCode::TIMEOUT, kj::str("the launch took longer than its deadline of ",
                                                   limit / kj::SECONDS, " s"))
            .retryable(RetryHint::SAME_REQUEST_LATER);
      }));
  co_return kj::mv(result);
}

kj::Promise<void> EnvironmentActor::runLaunch(kj::Own<Launching> work, LaunchSpec launch) {
  ++launching;
  KJ_DEFER(--launching);
  bool startNow = launch.start;
  auto stopsBefore = stops;
  auto cancellation = [&]() -> kj::Maybe<Problem> {
    if (work->cancelled) return Problem(ErrorCode::CANCELLED, kj::str("the launch was cancelled"));
    if (stops != stopsBefore) {
      return Problem(ErrorCode::CANCELLED, kj::str("the environment was stopped meanwhile"));
    }
    return refuseNew();
  };

  KJ_IF_MAYBE (problem, co_await ready()) {
    work->answer->fulfill(kj::mv(*problem));
    co_return;
  }
  KJ_IF_MAYBE (problem, cancellation()) {
    work->answer->fulfill(kj::mv(*problem));
    co_return;
  }
  auto sessionId = newId(IdKind::SESSION, services.entropy);
  auto made = co_await makeProcess(kj::mv(launch), newId(IdKind::RUN, services.entropy),
                                   kj::str(sessionId));
  if (made.is<Problem>()) {
    work->answer->fulfill(kj::mv(made.get<Problem>()));
    co_return;
  }
  auto process = kj::mv(made.get<kj::Own<ProcessActor>>());
  auto session = kj::refcounted<SessionActor>(kj::str(sessionId), kj::addRef(*process));
  auto failure = cancellation();
  if (failure == nullptr) {
    // In the map before the start, so that a stop meanwhile finds it.
    sessions.insert(kj::str(sessionId), kj::addRef(*session));
    if (startNow) {
      KJ_IF_MAYBE (problem, co_await session->start()) {
        failure = kj::mv(*problem);
        sessions.erase(sessionId);
      }
    }
  }
  KJ_IF_MAYBE (problem, failure) {
    co_await discardQuietly(kj::mv(process));
    work->answer->fulfill(kj::mv(*problem));
    co_return;
  }
  ++seq;
  work->answer->fulfill(kj::mv(session));
}

kj::Promise<Result<kj::Own<ProcessActor>>> EnvironmentActor::exec(LaunchSpec launch) {
  auto self = kj::addRef(*this);
  KJ_IF_MAYBE (problem, checkLaunch(launch, services.limits)) {
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, co_await ready()) {
    co_return kj::mv(*problem);
  }
  auto made =
      co_await makeProcess(kj::mv(launch), newId(IdKind::EXEC, services.entropy), kj::String());
  if (made.is<Problem>()) co_return kj::mv(made.get<Problem>());
  auto process = kj::mv(made.get<kj::Own<ProcessActor>>());
  execs.insert(kj::str(process->id()), kj::addRef(*process));
  co_return kj::mv(process);
}

void EnvironmentActor::reap(kj::Own<ProcessActor> process) {
  execs.erase(process->id());
  tasks.add(discardQuietly(kj::mv(process)));
}

kj::Promise<void> EnvironmentActor::discardQuietly(kj::Own<ProcessActor> process) {
  KJ_IF_MAYBE (problem, co_await process->discard()) {
    // A lost helper took the process with it; anything else is worth a line.
    if (problem->code != ErrorCode::UNREACHABLE) {
      KJ_LOG(WARNING, "could not discard a process, ignoring", name, process->id(), *problem);
    }
  }
}

Result<kj::Own<SessionActor>> EnvironmentActor::findSession(kj::StringPtr idOrPrefix) {
  KJ_IF_MAYBE (exact, sessions.find(idOrPrefix)) {
    return kj::addRef(**exact);
  }
  SessionActor* found = nullptr;
  uint32_t count = 0;
  if (idOrPrefix.size() > 0) {
    for (auto& entry: sessions) {
      if (entry.key.startsWith(idOrPrefix)) {
        found = entry.value.get();
        ++count;
      }
    }
  }
  if (count == 1) return kj::addRef(*found);
  if (count > 1) {
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("'", idOrPrefix, "' stands for ", count, " sessions"))
        .at(kj::str("id"))
        .advise(kj::str("give more characters of the id"));
  }
  return Problem(ErrorCode::NOT_FOUND, kj::str("no session '", idOrPrefix, "'"))
      .advise(kj::str("capstan session list shows them"));
}

bool EnvironmentActor::isBusy() const {
  if (launching > 0 || execs.size() > 0) return true;
  for (auto& entry: sessions) {
    if (entry.value->isLive()) return true;
  }
  return false;
}

void EnvironmentActor::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "background work of an environment failed", name, exception);
}

}  // namespace capstan
