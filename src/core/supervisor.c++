#include "core/supervisor.h"

#include "domain/executors.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// Health answers are shown for this long before a new check is made.
constexpr kj::Duration HEALTH_AGE = 10 * kj::SECONDS;

}  // namespace

Supervisor::Supervisor(Services& services): services(services), links(services), tasks(*this) {}

Supervisor::~Supervisor() noexcept(false) {}

kj::String Supervisor::taskKey(kj::StringPtr owner, kj::StringPtr taskId) {
  return kj::str(owner, '\n', taskId);
}

Outcome Supervisor::compare(EnvironmentActor& present, const EnvironmentSpec& asked) {
  auto cures = [&]() {
    return kj::str(
        "leave it out, use another --task, or remove the environment first: "
        "capstan env destroy ",
        present.id());
  };
  if (asked.executor.size() > 0) {
    auto chosen = chooseExecutor(asked.executor);
    if (chosen.is<Problem>()) return kj::mv(chosen.get<Problem>());
    auto& executor = *chosen.get<const Executor*>();
    if (executor.id != present.executorId()) {
      return Problem(ErrorCode::EXECUTOR_MISMATCH,
                     kj::str("the task's environment uses executor ", present.executorId(),
                             ", not ", executor.id))
          .at(kj::str("spec.executorId"))
          .advise(cures());
    }
  }
  auto& has = present.asked().workspace;
  if (!asked.workspace.isLeftOut() && !asked.workspace.isSamePlace(has)) {
    return Problem(ErrorCode::WRONG_STATE, kj::str("the task's environment has the workspace ", has,
                                                   ", not ", asked.workspace))
        .at(kj::str("spec.workspace"))
        .advise(cures());
  }
  return nullptr;
}

Result<Supervisor::Ensured> Supervisor::ensure(kj::StringPtr owner, EnvironmentSpec spec) {
  if (!isTaskId(spec.taskId)) {
    return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("'", spec.taskId, "' is no task id"))
        .at(kj::str("spec.taskId"))
        .advise(kj::str("1 to 63 of A-Z a-z 0-9 . _ -, the first and last a letter or digit"));
  }
  // Everybody who can ask is an administrator so far (D28).
  KJ_IF_MAYBE (problem, checkEnvironment(spec, services.limits, Caller::ADMINISTRATOR)) {
    return kj::mv(*problem);
  }
  if (closing) {
    return Problem(ErrorCode::SHUTTING_DOWN, kj::str("the daemon is ending"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  auto key = taskKey(owner, spec.taskId);
  KJ_IF_MAYBE (present, byTask.find(key)) {
    KJ_IF_MAYBE (problem, compare(**present, spec)) {
      return kj::mv(*problem);
    }
    (*present)->begin();
    return Ensured{kj::addRef(**present), false};
  }
  if (spec.workspace.reuseRequired && spec.workspace.kind != WorkspaceSpec::Kind::DIRECTORY) {
    return Problem(ErrorCode::WORKSPACE_LOST,
                   kj::str("the task has no environment whose workspace could be used again"))
        .at(kj::str("spec.workspace.reuseRequired"))
        .advise(kj::str("leave reuseRequired out to make one"));
  }
  if (spec.workspace.kind == WorkspaceSpec::Kind::REPOSITORIES) {
    return Problem(ErrorCode::UNSUPPORTED, kj::str("this version of Capstan does not carry out "
                                                   "spec.workspace.repositories"))
        .at(kj::str("spec.workspace.repositories"))
        .advise(kj::str("leave it out"));
  }
  if (byId.size() >= services.limits.environments) {
    return Problem(
               ErrorCode::RESOURCE_EXHAUSTED,
               kj::str("this daemon keeps at most ", services.limits.environments, " environments"))
        .advise(kj::str("remove some: capstan env list, capstan env destroy"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  if (spec.profile.size() > 0) {
    return Problem(ErrorCode::NOT_FOUND, kj::str("no profile '", spec.profile, "'"))
        .at(kj::str("spec.profileId"))
        .advise(kj::str("leave --profile out"));
  }
  auto chosen = chooseExecutor(spec.executor);
  if (chosen.is<Problem>()) return kj::mv(chosen.get<Problem>());
  auto& executor = *chosen.get<const Executor*>();
  auto runtime = runtimeOf(executor.type);
  if (runtime.is<Problem>()) return kj::mv(runtime.get<Problem>());
  auto found = services.runtimes.find(runtime.get<kj::StringPtr>(), executor.type);
  if (found.is<Problem>()) return kj::mv(found.get<Problem>());

  auto id = newId(IdKind::ENVIRONMENT, services.entropy);
  auto made = kj::refcounted<EnvironmentActor>(services, links, *found.get<Backend*>(), kj::str(id),
                                               kj::str(owner), kj::str(executor.id),
                                               kj::str(executor.type), kj::mv(spec));
  byTask.insert(kj::mv(key), made.get());
  auto result = kj::addRef(*made);
  byId.insert(kj::mv(id), kj::mv(made));
  KJ_LOG(INFO, "environment made", result->id(), result->taskId(), result->owner());
  result->begin();
  return Ensured{kj::mv(result), true};
}

Result<kj::Own<EnvironmentActor>> Supervisor::find(kj::StringPtr owner, kj::StringPtr name) {
  KJ_IF_MAYBE (exact, byTask.find(taskKey(owner, name))) {
    return kj::addRef(**exact);
  }
  KJ_IF_MAYBE (exact, byId.find(name)) {
    if ((*exact)->owner() == owner) return kj::addRef(**exact);
  }
  kj::Vector<EnvironmentActor*> matching;
  if (name.size() > 0) {
    for (auto& entry: byId) {
      auto& each = *entry.value;
      if (each.owner() != owner) continue;
      if (each.id().startsWith(name) || each.taskId().startsWith(name)) matching.add(&each);
    }
  }
  if (matching.size() == 1) return kj::addRef(*matching[0]);
  if (matching.size() > 1) {
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("'", name, "' stands for ", matching.size(), " environments"))
        .at(kj::str("id"))
        .advise(kj::str("give more characters of the id or the task"));
  }
  return Problem(ErrorCode::NOT_FOUND, kj::str("no environment '", name, "'"))
      .advise(kj::str("capstan env list shows them"));
}

Result<kj::Own<EnvironmentActor>> Supervisor::findById(kj::StringPtr id) {
  KJ_IF_MAYBE (exact, byId.find(id)) {
    return kj::addRef(**exact);
  }
  return Problem(ErrorCode::NOT_FOUND, kj::str("no environment '", id, "'"));
}

kj::Vector<kj::Own<EnvironmentActor>> Supervisor::list(kj::StringPtr owner, kj::StringPtr after,
                                                       size_t limit) {
  kj::Vector<kj::Own<EnvironmentActor>> result;
  auto all = byId.range(kj::str(after), kj::str("\xff"));
  for (auto& entry: all) {
    if (result.size() == limit) break;
    if (entry.key == after || entry.value->owner() != owner) continue;
    result.add(kj::addRef(*entry.value));
  }
  return result;
}

kj::Promise<CleanupReport> Supervisor::cleanUp(kj::Own<EnvironmentActor> environment,
                                               CleanupScope scope) {
  auto pair = kj::newPromiseAndFulfiller<CleanupReport>();
  tasks.add(deliver(remove(kj::mv(environment), scope), kj::mv(pair.fulfiller)));
  return kj::mv(pair.promise);
}

kj::Promise<CleanupReport> Supervisor::remove(kj::Own<EnvironmentActor> environment,
                                              CleanupScope scope) {
  auto report = co_await environment->cleanUp(scope);
  if (environment->isGone()) {
    // Two clean-ups at once both come here; the second finds nothing of this environment.
    KJ_IF_MAYBE (present, byId.find(environment->id())) {
      if (present->get() == environment.get()) {
        byTask.erase(taskKey(environment->owner(), environment->taskId()));
        byId.erase(environment->id());
        KJ_LOG(INFO, "environment removed", environment->id(), environment->taskId());
      }
    }
  }
  co_return report;
}

kj::Promise<kj::Vector<RuntimeStatus>> Supervisor::runtimes() {
  auto now = services.timer.now();
  kj::Vector<kj::Promise<void>> checks;
  for (auto* backend: services.runtimes.list()) {
    auto& entry = *health.findOrCreate(backend->name(), [&]() {
      return decltype(health)::Entry{kj::str(backend->name()), kj::heap<HealthEntry>()};
    });
    if (entry.status.checkedAt == 0 || now - entry.asked > HEALTH_AGE) {
      entry.asked = now;
      checks.add(check(*backend, entry));
    }
  }
  co_await kj::joinPromises(checks.releaseAsArray());

  kj::Vector<RuntimeStatus> result;
  for (auto& runtime: RUNTIMES) {
    RuntimeStatus status;
    status.runtime = kj::str(runtime);
    KJ_IF_MAYBE (entry, health.find(runtime)) {
      auto& known = (*entry)->status;
      status.builtIn = true;
      status.configured = true;
      status.healthy = known.healthy;
      status.version = kj::str(known.version);
      status.checkedAt = known.checkedAt;
      KJ_IF_MAYBE (reason, known.reason) {
        status.reason = reason->clone();
      }
    } else {
      for (auto& name: services.configured) {
        if (name == runtime) status.configured = true;
      }
      status.reason = Problem(ErrorCode::RUNTIME_UNAVAILABLE,
                              kj::str("this build of Capstan does not contain the runtime"))
                          .retryable(RetryHint::AFTER_USER_ACTION);
    }
    result.add(kj::mv(status));
  }
  co_return result;
}

kj::Promise<void> Supervisor::check(Backend& backend, HealthEntry& entry) {
  auto health = co_await backend.healthCheck();
  entry.status.healthy = health.healthy;
  entry.status.version = kj::mv(health.version);
  entry.status.reason = kj::mv(health.reason);
  entry.status.checkedAt = services.now();
}

bool Supervisor::isBusy() const {
  for (auto& entry: byId) {
    if (entry.value->isBusy()) return true;
  }
  return false;
}

kj::Promise<void> Supervisor::close() {
  closing = true;
  auto grace = services.limits.deadlines.stopGrace;
  kj::Vector<kj::Promise<void>> stops;
  for (auto& entry: byId) {
    stops.add(entry.value->close(grace).then([](Outcome&& outcome) {
      KJ_IF_MAYBE (problem, outcome) {
        KJ_LOG(WARNING, "an environment did not stop cleanly, ignoring", *problem);
      }
    }));
  }
  co_await kj::joinPromises(stops.releaseAsArray());
  for (auto& link: links.live()) {
    KJ_IF_MAYBE (problem, co_await link->shutdown(grace)) {
      KJ_LOG(WARNING, "a helper did not end cleanly, ignoring", *problem);
    }
  }
}

void Supervisor::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "background work of the supervisor failed", exception);
}

}  // namespace capstan
