#include "core/environment-actor.h"

#include <kj/debug.h>

namespace capstan {

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
  if (spec.workspace.kind == WorkspaceSpec::Kind::DIRECTORY) {
    request.directory = kj::str(spec.workspace.directory);
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
  // Sessions may come and go meanwhile; and the helper counts its unanswered calls.
  constexpr size_t MOST_AT_ONCE = 64;
  kj::Vector<kj::Own<SessionActor>> all;
  for (auto& entry: sessions)
    all.add(kj::addRef(*entry.value));
  kj::Vector<SessionStatus> reports(all.size());
  for (size_t begin = 0; begin < all.size(); begin += MOST_AT_ONCE) {
    kj::Vector<kj::Promise<SessionStatus>> asked;
    for (auto& session: all.slice(begin, kj::min(begin + MOST_AT_ONCE, all.size())))
      asked.add(session->statusWithReport());
    auto answers = co_await kj::joinPromises(asked.releaseAsArray());
    for (auto& answer: answers)
      reports.add(kj::mv(answer));
  }
  auto result = status();
  result.sessions = kj::mv(reports);
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
  do {
    // A stop lets the run in progress go on without its outcome; whoever comes after the stop wants
    // it again.
    if (bringingUp.running()) setState(EnvironmentState::PREPARING);
    co_await bringingUp.run([this]() { return bringUp(); });
    // Another caller may have begun the next run before our turn came.
  } while (current == EnvironmentState::PREPARING && bringingUp.running());
  if (current == EnvironmentState::READY) co_return nullptr;
  KJ_IF_MAYBE (refusal, refuseNew()) {
    co_return kj::mv(*refusal);
  }
  KJ_IF_MAYBE (problem, lastError) {
    co_return problem->clone();
  }
  co_return Problem(ErrorCode::WRONG_STATE, kj::str("the environment was stopped meanwhile"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

// Belongs to the single flight, hence to this object: whoever asked may go.
kj::Promise<void> EnvironmentActor::bringUp() {
  lastError = nullptr;
  progress.begin();
  setState(EnvironmentState::PREPARING);
  // An exception must not leave it preparing for ever.
  auto outcome = co_await reach().catch_([](kj::Exception&& e) -> Outcome { return asProblem(e); });
  // A stop that came meanwhile has the last word.
  bool wanted = current == EnvironmentState::PREPARING;
  KJ_IF_MAYBE (problem, outcome) {
    lastError = kj::mv(*problem);
    if (wanted) setState(EnvironmentState::FAILED);
  } else if (wanted) {
    setState(EnvironmentState::READY);
  }
}

kj::Promise<Outcome> EnvironmentActor::reach() {
  auto made = co_await backend.createInstance(place(), progress);
  if (made.is<Problem>()) co_return kj::mv(made.get<Problem>());
  auto reached = kj::mv(made.get<kj::Own<Attachment>>());
  auto opened = co_await links.get(*reached);
  attachment = kj::mv(reached);
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  auto reachedLink = kj::mv(opened.get<kj::Own<AgentLink>>());
  bool watched = false;
  KJ_IF_MAYBE (present, link) {
    watched = present->get() == reachedLink.get();
  }
  if (!watched) tasks.add(watchLink(kj::addRef(*reachedLink)));
  link = kj::mv(reachedLink);
  co_return nullptr;
}

kj::Promise<void> EnvironmentActor::watchLink(kj::Own<AgentLink> watched) {
  co_await watched->onLost();
  if (current != EnvironmentState::READY) co_return;
  KJ_IF_MAYBE (present, link) {
    if (present->get() != watched.get()) co_return;
  }
  lastError = Problem(ErrorCode::INSTANCE_LOST, kj::str("the environment's helper is gone"))
                  .advise(kj::str("the next launch starts a new one"))
                  .retryable(RetryHint::SAME_REQUEST_LATER);
  setState(EnvironmentState::LOST);
}

Outcome EnvironmentActor::refuseNew() const {
  if (gone || current == EnvironmentState::CLEANING) {
    return Problem(ErrorCode::NOT_FOUND, kj::str("the environment '", name, "' is being removed"));
  }
  if (closing) {
    return Problem(ErrorCode::SHUTTING_DOWN, kj::str("the daemon is ending"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  if (current == EnvironmentState::STOPPING) {
    return Problem(ErrorCode::WRONG_STATE, kj::str("the environment is being stopped"))
        .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
  }
  return nullptr;
}

// ---- what there is

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
  if (launching > 0 || execing > 0 || execs.size() > 0) return true;
  for (auto& entry: sessions) {
    if (entry.value->isLive()) return true;
  }
  return false;
}

void EnvironmentActor::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "background work of an environment failed", name, exception);
}

}  // namespace capstan
