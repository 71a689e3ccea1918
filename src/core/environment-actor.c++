#include "core/environment-actor.h"
#include "backends/capabilities.h"
#include "core/catalog.h"

#include <kj/debug.h>

namespace capstan {

void EnvironmentActor::setState(EnvironmentState next) {
  if (current == next) return;
  current = next;
  row.changedAt = services.now();
  hub->changed();
}

void EnvironmentActor::stepChanged() {
  constexpr kj::Duration PACE = 100 * kj::MILLISECONDS;
  if (stepsWaiting) return;
  auto due = stepsTold + PACE;
  auto now = services.timer.now();
  if (now >= due) {
    stepsTold = now;
    hub->changed();
    return;
  }
  stepsWaiting = true;
  tasks.add(services.timer.atTime(due).then([this]() {
    stepsWaiting = false;
    stepsTold = services.timer.now();
    hub->changed();
  }));
}

kj::Promise<Outcome> EnvironmentActor::conclude(EnvironmentState from, EnvironmentState next) {
  EnvironmentLedger::Change change;
  change.state = next;
  change.workspace = kj::str(row.workspace);
  change.generation = kj::str(row.generation);
  change.lastError = lastError.map([](const Problem& problem) { return problem.clone(); });
  auto outcome = co_await ledger->change(kj::mv(change));
  KJ_IF_MAYBE (problem, outcome) {
    KJ_LOG(ERROR, "cannot write down how an environment stands", row.id, *problem);
  }
  if (current == from) setState(next);
  co_return kj::mv(outcome);
}

kj::Promise<Outcome> EnvironmentActor::record() {
  EnvironmentRecord first;
  first.id = kj::str(row.id);
  first.owner = kj::str(row.owner);
  first.spec = row.spec.clone();
  first.executorId = kj::str(row.executorId);
  first.executorType = kj::str(row.executorType);
  first.runtime = kj::str(row.runtime);
  first.profileId = kj::str(row.profileId);
  first.state = row.state;
  first.requestId = kj::heapArray<kj::byte>(row.requestId);
  first.createdAt = row.createdAt;
  first.changedAt = row.changedAt;
  return ledger->add(kj::mv(first));
}

PlaceRecord EnvironmentActor::place() const {
  PlaceRecord place;
  place.environmentId = kj::str(row.id);
  place.taskId = kj::str(row.spec.taskId);
  auto& workspace = row.spec.workspace;
  if (workspace.kind == WorkspaceSpec::Kind::DIRECTORY) {
    place.directory = kj::str(workspace.directory);
  }
  KJ_IF_MAYBE (executor, services.catalog.rows().executor(row.executorId)) {
    place.executorConfig = cloneAll(executor->config);
  }
  KJ_IF_MAYBE (present, profile()) {
    place.profileConfig = cloneAll(present->config);
  }
  place.inventory = ledger->inventory();
  return place;
}

Result<Backend*> EnvironmentActor::backend() const {
  return services.runtimes.find(row.runtime, row.executorType);
}

EnvironmentStatus EnvironmentActor::status() const {
  EnvironmentStatus status;
  status.id = kj::str(row.id);
  status.taskId = kj::str(row.spec.taskId);
  status.title = kj::str(row.spec.title);
  status.tenantId = kj::str(row.spec.tenantId);
  status.state = current;
  status.executorId = kj::str(row.executorId);
  status.executorType = kj::str(row.executorType);
  status.runtime = kj::str(row.runtime);
  status.profileId = kj::str(row.profileId);
  status.workspace = kj::str(row.workspace);
  status.createdAt = row.createdAt;
  status.changedAt = row.changedAt;
  for (auto& entry: sessions)
    status.sessions.add(entry.value->status());
  auto steps = progress.steps().size() > 0 ? progress.steps() : row.steps.asPtr().asConst();
  for (auto& step: steps)
    status.lastSteps.add(step.clone());
  KJ_IF_MAYBE (problem, lastError) {
    status.lastError = problem->clone();
  }
  for (auto& label: row.spec.labels) {
    status.labels.add(label.clone());
  }
  status.health = health();
  for (auto& episode: episodes->all())
    status.episodes.add(episode.clone());
  status.seq = hub->seq();
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
  // The steps of an earlier bring-up are no news.
  auto replay = isPreparing() ? ProgressHub::Replay::ALL : ProgressHub::Replay::NONE;
  return kj::heap<ProgressHub::Listener>(progress, sink, replay).attach(kj::addRef(*this));
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
  // One that a stop has interrupted is not joined.
  while (bringingUp.running() && flightStops != stops) {
    co_await bringingUp.settled();
    KJ_IF_MAYBE (refusal, refuseNew()) {
      co_return kj::mv(*refusal);
    }
  }
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
  Outcome outcome;
  bool again = false;
  do {
    flightStops = stops;
    outcome = co_await reach().catch_([](kj::Exception&& e) -> Outcome { return asProblem(e); });
    again = current == EnvironmentState::STOPPING || current == EnvironmentState::STOPPED;
    if (again) co_await stopLateCompute();
    // Whoever came after the stop wants it up again.
  } while (again && current == EnvironmentState::PREPARING);
  EnvironmentLedger::Change change;
  change.workspace = kj::str(row.workspace);
  change.generation = kj::str(row.generation);
  kj::Vector<PrepareStep> steps;
  for (auto& step: progress.steps())
    steps.add(step.clone());
  change.steps = kj::mv(steps);
  auto next = outcome == nullptr ? EnvironmentState::READY : EnvironmentState::FAILED;
  // A stop that came meanwhile has the last word.
  if (current == EnvironmentState::PREPARING) {
    change.state = next;
    change.lastError = outcome.map([](Problem& problem) { return problem.clone(); });
  }
  auto written = co_await ledger->change(kj::mv(change));
  KJ_IF_MAYBE (problem, written) {
    if (outcome == nullptr) outcome = kj::mv(*problem);
    next = EnvironmentState::FAILED;
  }
  if (current != EnvironmentState::PREPARING) co_return;
  co_await (outcome == nullptr ? saw(EpisodeOutcome::HEALTHY) : sawWorkspace(outcome));
  if (current != EnvironmentState::PREPARING) co_return;
  KJ_IF_MAYBE (problem, outcome) {
    lastError = kj::mv(*problem);
  }
  setState(next);
  checkLink();
}

namespace {

// The founding words; all else of the problem stays.
Problem creationFailure(Problem problem) {
  problem.cause = problem.cause.size() == 0 ? kj::mv(problem.message)
                                            : kj::str(problem.message, ": ", problem.cause);
  problem.message = kj::str("failed to create instance");
  return problem;
}

}  // namespace

kj::Promise<Outcome> EnvironmentActor::reach() {
  KJ_IF_MAYBE (problem, co_await attach(services.limits.deadlines.launch)) {
    co_return kj::mv(*problem);
  }
  if (stops != flightStops) {
    co_return Problem(ErrorCode::CANCELLED, kj::str("the environment was stopped meanwhile"));
  }
  co_return co_await prepare();
}

kj::Promise<void> EnvironmentActor::stopLateCompute() {
  auto found = backend();
  if (attachment == nullptr || found.is<Problem>()) co_return;
  auto report = co_await stopCompute(*found.get<Backend*>(), StopMode::GRACEFUL, false)
                    .catch_([](kj::Exception&& e) {
                      return StopReport{false, asProblem(e)};
                    });
  KJ_IF_MAYBE (problem, report.problem) {
    KJ_LOG(WARNING, "a stopped environment's compute may run on", row.id, *problem);
  }
}

kj::Promise<Result<kj::Own<Attachment>>> EnvironmentActor::reachPlace(Backend& backend,
                                                                      CreateRequest request,
                                                                      ProgressSink& steps) {
  if (row.prepared) {
    KJ_IF_MAYBE (resumer, backend.resumer()) {
      return resumer->resume(kj::mv(request), steps, *ledger);
    }
  }
  return backend.createInstance(kj::mv(request), steps, *ledger);
}

kj::Promise<Outcome> EnvironmentActor::attach(kj::Duration limit) {
  auto found = backend();
  if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
  while (checkingPlace.running())
    co_await checkingPlace.settled();
  CreateRequest request;
  request.place = place();
  request.taskTitle = kj::str(row.spec.title);
  // Nothing takes the place of a workspace that was there.
  request.reuseRequired = row.spec.workspace.reuseRequired || row.prepared;
  kj::Maybe<Result<kj::Own<Attachment>>> answer;
  auto creating =
      reachPlace(*found.get<Backend*>(), kj::mv(request), progress).then([&answer](auto&& result) {
        answer = kj::mv(result);
      });
  auto abandoned = kj::newPromiseAndFulfiller<void>();
  abandonCreating = kj::mv(abandoned.fulfiller);
  auto waited =
      co_await within(services.timer, limit, creating.exclusiveJoin(kj::mv(abandoned.promise)));
  abandonCreating = nullptr;
  if (answer == nullptr) {
    // What was made is noted, or will be in a moment: the next call finds it.
    co_await ledger->settled();
    if (waited == Waited::DONE) {
      co_return creationFailure(
          Problem(ErrorCode::CANCELLED, kj::str("it was given up while it went on")));
    }
    co_return creationFailure(
        Problem(ErrorCode::TIMEOUT, kj::str("it took longer than ", limit / kj::SECONDS, " s"))
            .retryable(RetryHint::SAME_REQUEST_LATER));
  }
  auto& made = KJ_ASSERT_NONNULL(answer);
  if (made.is<Problem>()) co_return creationFailure(kj::mv(made.get<Problem>()));
  sawWorkspace(HealthAxis::RETAINED);
  auto reached = kj::mv(made.get<kj::Own<Attachment>>());
  auto opened = co_await links.get(*reached);
  if (row.workspace != reached->workspace()) {
    row.workspace = kj::str(reached->workspace());
    hub->changed();
  }
  attachment = kj::mv(reached);
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  noteGeneration(*KJ_ASSERT_NONNULL(attachment), *opened.get<kj::Own<AgentLink>>());
  use(kj::mv(opened.get<kj::Own<AgentLink>>()));
  co_return nullptr;
}

void EnvironmentActor::use(kj::Own<AgentLink> reached) {
  bool watched = false;
  KJ_IF_MAYBE (present, link) {
    watched = present->get() == reached.get();
  }
  if (!watched) tasks.add(watchLink(kj::addRef(*reached)));
  link = kj::mv(reached);
}

kj::Promise<void> EnvironmentActor::watchLink(kj::Own<AgentLink> watched) {
  co_await watched->onLost();
  KJ_IF_MAYBE (present, link) {
    if (present->get() != watched.get()) co_return;
    checkLink();
  }
}

Problem EnvironmentActor::unsettledProblem() const {
  if (current == EnvironmentState::RECOVERING) {
    return Problem(ErrorCode::RECOVERING, kj::str("the environment is being recovered"))
        .because(kj::str("the daemon has just started, or has just lost its helper"))
        .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
  }
  // Without its runtime that will never be known.
  auto found = backend();
  if (found.is<Problem>()) return kj::mv(found.get<Problem>());
  auto problem = Problem(ErrorCode::UNREACHABLE,
                         kj::str("it cannot be told yet what became of the environment"))
                     .advise(kj::str("nothing of it is replaced until that is known"))
                     .retryable(RetryHint::SAME_REQUEST_LATER, 5000);
  KJ_IF_MAYBE (why, lastError) {
    problem.cause = kj::str(*why);
  }
  return problem;
}

Outcome EnvironmentActor::refuseStopped(bool stopped, kj::StringPtr words) const {
  // Removals and the daemon's end count as stops, and have their own words.
  bool ends = gone || closing || current == EnvironmentState::CLEANING;
  if (stopped && !ends) return Problem(ErrorCode::CANCELLED, kj::str(words));
  return refuseNew();
}

Outcome EnvironmentActor::refuseNew() const {
  if (gone || current == EnvironmentState::CLEANING) {
    return Problem(ErrorCode::NOT_FOUND,
                   kj::str("the environment '", row.id, "' is being removed"));
  }
  if (closing) {
    return Problem(ErrorCode::SHUTTING_DOWN, kj::str("the daemon is ending"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  // Before anything is begun, and whatever the state: without its runtime nothing will be known.
  auto runtime = backend();
  if (runtime.is<Problem>()) return kj::mv(runtime.get<Problem>());
  if (isUnsettled()) return unsettledProblem();
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
  if (isUnsettled() || bringingUp.running() || current == EnvironmentState::CLEANING) return true;
  if (launching > 0 || resumes.size() > 0 || execing > 0 || execs.size() > 0) return true;
  for (auto& entry: sessions) {
    if (entry.value->isLive()) return true;
  }
  return false;
}

void EnvironmentActor::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "background work of an environment failed", row.id, exception);
}

}  // namespace capstan
