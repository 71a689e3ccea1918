#include "core/supervisor.h"

#include "domain/executors.h"

#include <kj/debug.h>

namespace capstan {

kj::String Supervisor::taskKey(kj::StringPtr owner, kj::StringPtr taskId) {
  return kj::str(owner, '\n', taskId);
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

ChangeHub& Supervisor::changesOf(kj::StringPtr owner) {
  return *hubs.findOrCreate(owner, [&]() {
    return decltype(hubs)::Entry{kj::str(owner), kj::refcounted<ChangeHub>(kj::String())};
  });
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
    bool known = entry.status.checkedAt > 0 && now - entry.checked <= HEALTH_AGE;
    if (!known) {
      checks.add(entry.checking.run([&]() { return check(*backend, entry); }));
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
  Health health;
  health.reason = Problem(ErrorCode::TIMEOUT, kj::str("the runtime's health check did not end"))
                      .retryable(RetryHint::SAME_REQUEST_LATER);
  auto asking = RuntimeRegistry::healthOf(backend).then(
      [&health](Health&& answer) { health = kj::mv(answer); });
  co_await within(services.timer, services.limits.deadlines.health, kj::mv(asking));
  entry.checked = services.timer.now();
  entry.status.healthy = health.healthy;
  entry.status.version = kj::mv(health.version);
  entry.status.reason = kj::mv(health.reason);
  entry.status.checkedAt = services.now();
}

kj::Promise<void> Supervisor::expireLogs() {
  auto before = services.now() - services.limits.deadlines.outputKept / kj::MILLISECONDS;
  kj::Vector<kj::Own<EnvironmentActor>> all(byId.size());
  for (auto& entry: byId)
    all.add(kj::addRef(*entry.value));
  for (auto& environment: all)
    co_await environment->expireLogs(before);
}

kj::Promise<void> Supervisor::expireLogsHourly() {
  for (;;) {
    co_await services.timer.afterDelay(1 * kj::HOURS);
    co_await expireLogs();
  }
}

bool Supervisor::isBusy() const {
  for (auto& entry: byId) {
    if (entry.value->isBusy()) return true;
  }
  return false;
}

kj::Promise<void> Supervisor::close() {
  closing = true;
  kj::Vector<kj::Promise<void>> ends;
  for (auto& entry: byId)
    ends.add(entry.value->close().catch_(
        [](kj::Exception&& e) { KJ_LOG(ERROR, "an environment did not close in order", e); }));
  co_await kj::joinPromises(ends.releaseAsArray());
  closedFulfiller->fulfill();
  for (auto& link: links.live()) {
    auto listed = co_await link->list();
    if (listed.is<Problem>() || listed.get<kj::Array<InstanceReport>>().size() > 0) continue;
    KJ_IF_MAYBE (problem, co_await link->shutdown(0 * kj::SECONDS)) {
      KJ_LOG(WARNING, "a helper did not end cleanly, ignoring", *problem);
    }
  }
}

void Supervisor::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "background work of the supervisor failed", exception);
}

kj::Promise<Outcome> Supervisor::recheck(kj::Own<EnvironmentActor> environment) {
  Outcome outcome;
  auto& turn = rechecks[nextRecheck++ % RECHECKS];
  co_await turn.with([&]() {
    return environment->recheck().then([&outcome](Outcome&& result) { outcome = kj::mv(result); });
  });
  co_return kj::mv(outcome);
}

}  // namespace capstan
