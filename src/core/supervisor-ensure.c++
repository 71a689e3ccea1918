// How environments come to be.
#include "core/catalog.h"
#include "core/supervisor.h"
#include "domain/executors.h"

#include <kj/debug.h>

namespace capstan {

struct Supervisor::Making final: public kj::Refcounted {
  kj::Own<EnvironmentActor> environment;
  kj::Maybe<Problem> failure;
  kj::Own<kj::PromiseFulfiller<void>> finish;
  kj::ForkedPromise<void> finished = nullptr;

  explicit Making(kj::Own<EnvironmentActor> environment): environment(kj::mv(environment)) {
    auto pair = kj::newPromiseAndFulfiller<void>();
    finish = kj::mv(pair.fulfiller);
    finished = pair.promise.fork();
  }
};

Supervisor::Supervisor(Services& services): services(services), links(services), tasks(*this) {
  auto pair = kj::newPromiseAndFulfiller<void>();
  closedFulfiller = kj::mv(pair.fulfiller);
  closed = pair.promise.fork();
}

Supervisor::~Supervisor() noexcept(false) {}

Outcome Supervisor::compare(EnvironmentActor& present, const EnvironmentSpec& asked) {
  auto cures = [&]() {
    return kj::str(
        "leave it out, use another --task, or remove the environment first: "
        "capstan env destroy ",
        present.id());
  };
  auto& rows = services.catalog.rows();
  if (asked.executor.size() > 0) {
    auto found = rows.findExecutor(asked.executor);
    if (found.is<Problem>()) return kj::mv(found.get<Problem>());
    auto& executor = *found.get<const ExecutorRecord*>();
    if (executor.id != present.executorId()) {
      return Problem(ErrorCode::EXECUTOR_MISMATCH,
                     kj::str("the task's environment uses executor ", present.executorId(),
                             ", not ", executor.id))
          .at(kj::str("spec.executorId"))
          .advise(cures());
    }
  }
  if (asked.profile.size() > 0) {
    auto found = rows.findProfile(asked.profile, {}, present.executorId());
    if (found.is<Problem>()) return kj::mv(found.get<Problem>());
    auto& profile = *found.get<const ProfileRecord*>();
    if (profile.id != present.profileId()) {
      auto has = present.profileId().size() == 0 ? kj::str("no profile")
                                                 : kj::str("profile ", present.profileId());
      return Problem(ErrorCode::EXECUTOR_MISMATCH,
                     kj::str("the task's environment uses ", has, ", not ", profile.id))
          .at(kj::str("spec.profileId"))
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

kj::Promise<Result<Supervisor::Ensured>> Supervisor::ensure(kj::String owner,
                                                            EnvironmentSpec spec) {
  if (!isTaskId(spec.taskId)) {
    co_return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("'", spec.taskId, "' is no task id"))
        .at(kj::str("spec.taskId"))
        .advise(kj::str("1 to 63 of A-Z a-z 0-9 . _ -, the first and last a letter or digit"));
  }
  // Everybody who can ask is an administrator so far (D28).
  KJ_IF_MAYBE (problem, checkEnvironment(spec, services.limits, Caller::ADMINISTRATOR)) {
    co_return kj::mv(*problem);
  }
  auto key = taskKey(owner, spec.taskId);
  bool mine = false;
  for (;;) {
    if (closing) {
      co_return Problem(ErrorCode::SHUTTING_DOWN, kj::str("the daemon is ending"))
          .retryable(RetryHint::SAME_REQUEST_LATER);
    }
    KJ_IF_MAYBE (present, byTask.find(key)) {
      auto found = kj::addRef(**present);
      if (!mine) {
        KJ_IF_MAYBE (problem, compare(*found, spec)) {
          co_return kj::mv(*problem);
        }
      }
      found->begin();
      co_return Ensured{kj::mv(found), mine};
    }
    if (mine) {
      co_return Problem(ErrorCode::NOT_FOUND, kj::str("the environment was removed meanwhile"))
          .retryable(RetryHint::SAME_REQUEST_LATER);
    }
    kj::Maybe<kj::Own<Making>> pending;
    KJ_IF_MAYBE (present, making.find(key)) {
      pending = kj::addRef(**present);
    }
    if (pending == nullptr) {
      auto planned = plan(owner, spec.clone());
      if (planned.is<Problem>()) co_return kj::mv(planned.get<Problem>());
      auto work = kj::refcounted<Making>(kj::mv(planned.get<kj::Own<EnvironmentActor>>()));
      making.insert(kj::str(key), kj::addRef(*work));
      tasks.add(make(kj::addRef(*work)));
      pending = kj::mv(work);
      mine = true;
    }
    auto& work = *KJ_ASSERT_NONNULL(pending);
    co_await work.finished.addBranch();
    KJ_IF_MAYBE (problem, work.failure) {
      co_return problem->clone();
    }
  }
}

// Who, what and where, from what is known now.
Result<kj::Own<EnvironmentActor>> Supervisor::plan(kj::StringPtr owner, EnvironmentSpec spec) {
  if (spec.workspace.reuseRequired && spec.workspace.kind != WorkspaceSpec::Kind::DIRECTORY) {
    return Problem(ErrorCode::WORKSPACE_LOST,
                   kj::str("the task has no environment whose workspace could be used again"))
        .at(kj::str("spec.workspace.reuseRequired"))
        .advise(kj::str("leave reuseRequired out to make one"));
  }
  if (byId.size() + making.size() >= services.limits.environments) {
    return Problem(
               ErrorCode::RESOURCE_EXHAUSTED,
               kj::str("this daemon keeps at most ", services.limits.environments, " environments"))
        .advise(kj::str("remove some: capstan env list, capstan env destroy"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  auto choice = services.catalog.choose(Choice{spec.executor, spec.profile, spec.tenantId});
  if (choice.is<Problem>()) return kj::mv(choice.get<Problem>());
  auto& chosen = choice.get<Chosen>();
  auto& executor = chosen.executor;
  auto runtime = runtimeOf(executor.type);
  if (runtime.is<Problem>()) return kj::mv(runtime.get<Problem>());
  auto found = services.runtimes.find(runtime.get<kj::StringPtr>(), executor.type);
  if (found.is<Problem>()) return kj::mv(found.get<Problem>());

  EnvironmentRecord record;
  record.id = newId(IdKind::ENVIRONMENT, services.entropy);
  record.owner = kj::str(owner);
  record.executorId = kj::str(executor.id);
  record.executorType = kj::str(executor.type);
  KJ_IF_MAYBE (profile, chosen.profile) {
    record.profileId = kj::str(profile->id);
  }
  record.runtime = kj::str(runtime.get<kj::StringPtr>());
  record.requestId = kj::heapArray<kj::byte>(spec.requestId);
  record.spec = kj::mv(spec);
  record.createdAt = record.changedAt = services.now();
  return kj::refcounted<EnvironmentActor>(services, links, kj::mv(record),
                                          kj::Vector<InventoryItem>());
}

kj::Promise<void> Supervisor::make(kj::Own<Making> work) {
  auto& environment = *work->environment;
  auto outcome = co_await environment.record().catch_(
      [](kj::Exception&& e) -> Outcome { return asProblem(e); });
  making.erase(taskKey(environment.owner(), environment.taskId()));
  KJ_IF_MAYBE (problem, outcome) {
    work->failure = kj::mv(*problem);
  } else {
    keep(kj::addRef(environment));
    KJ_LOG(INFO, "environment made", environment.id(), environment.taskId(), environment.owner());
  }
  work->finish->fulfill();
}

void Supervisor::keep(kj::Own<EnvironmentActor> environment) {
  environment->onLinkLost([this](EnvironmentActor& lost) { noteLost(lost); });
  byTask.insert(taskKey(environment->owner(), environment->taskId()), environment.get());
  auto& hub = changesOf(environment->owner());
  auto& changes = environment->changes();
  auto id = kj::str(environment->id());
  byId.insert(kj::mv(id), kj::mv(environment));
  changes.joinTo(kj::addRef(hub));
  changes.changed();
}

}  // namespace capstan
