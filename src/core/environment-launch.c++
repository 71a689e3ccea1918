// How processes come into an environment: launches and execs.
#include "base/encoding.h"
#include "core/environment-work.h"
#include "domain/outcomes.h"
#include "domain/variables-assembly.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr kj::Duration REQUEST_MEMORY = 24 * kj::HOURS;  // D9
constexpr size_t EXEC_REQUESTS = 4096;                   // The oldest is forgotten first.

}  // namespace

EnvironmentActor::EnvironmentActor(Services& services, HelperLinks& links, EnvironmentRecord record,
                                   kj::Vector<InventoryItem> inventory,
                                   kj::Vector<EpisodeRecord> episodes)
    : services(services),
      links(links),
      row(kj::mv(record)),
      ledger(kj::refcounted<EnvironmentLedger>(services, kj::str(row.id), kj::str(row.runtime),
                                               kj::mv(inventory))),
      hub(kj::refcounted<ChangeHub>(kj::str(row.id))),
      episodes(kj::heap<EpisodeKeeper>(services, kj::addRef(*ledger), kj::addRef(*hub),
                                       kj::mv(episodes))),
      current(row.state),
      progress([this]() { stepChanged(); }),
      making(*this),
      tasks(*this) {
  KJ_IF_MAYBE (problem, row.lastError) {
    lastError = problem->clone();
  }
}

EnvironmentActor::~EnvironmentActor() noexcept(false) {}

kj::Promise<Result<kj::Own<ProcessActor>>> EnvironmentActor::makeProcess(LaunchSpec launch,
                                                                         Assembly assembly) {
  auto processId = kj::str(assembly.processId), sessionId = kj::str(assembly.sessionId);
  auto resolved = co_await resolve(launch.variables, kj::mv(assembly));
  if (resolved.is<Problem>()) co_return kj::mv(resolved.get<Problem>());
  auto& resolution = resolved.get<Resolution>();
  for (auto& record: resolution.overrides) {
    auto fields = overrideLogFields(record, row.spec.taskId, sessionId);
    KJ_LOG(INFO, "environment override applied", fields);
  }

  if (link == nullptr || attachment == nullptr) {
    co_return Problem(ErrorCode::UNREACHABLE, kj::str("the environment's helper was lost"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  auto& place = *KJ_ASSERT_NONNULL(attachment);  // Not used after the next wait.
  auto helper = kj::addRef(*KJ_ASSERT_NONNULL(link));

  InstanceConfig config;
  config.command = KJ_MAP(word, launch.command) { return kj::str(word); };
  config.variables = KJ_MAP(variable, resolution.variables) {
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
  instance.environmentId = kj::str(row.id);
  instance.taskId = kj::str(row.spec.taskId);
  instance.pauseWhenFull = launch.pauseWhenFull || instance.ephemeral;
  instance.spoolLimitBytes = services.limits.outputSpoolBytes;
  instance.stopGrace = services.limits.deadlines.stopGrace;

  auto created = co_await helper->create(kj::mv(instance));
  if (created.is<Problem>()) co_return kj::mv(created.get<Problem>());
  auto made = kj::mv(created.get<kj::Own<AgentInstance>>());
  auto process = kj::refcounted<ProcessActor>(services, kj::addRef(*made), kj::mv(launch.command));
  KJ_IF_MAYBE (problem, co_await made->configure(kj::mv(config))) {
    co_await discardQuietly(kj::mv(process));
    co_return kj::mv(*problem);
  }
  co_return kj::mv(process);
}

// ---- launch

// A launch with the same request id that is under way or whose session stands.
kj::Maybe<kj::Own<EnvironmentActor::Launching>> EnvironmentActor::findLaunch(
    const LaunchSpec& launch) {
  if (launch.requestId.size() == 0) return nullptr;
  auto oldest = services.timer.now() - REQUEST_MEMORY;
  requests.eraseAll([&](kj::String&, kj::Own<Launching>& each) {
    return each->result != nullptr && each->begun < oldest;
  });
  return requests.find(encodeHex(launch.requestId)).map([](kj::Own<Launching>& found) {
    return kj::addRef(*found);
  });
}

kj::Own<EnvironmentActor::Launching> EnvironmentActor::beginLaunch(LaunchSpec launch) {
  auto work = kj::refcounted<Launching>(services.timer.now());
  work->spec = launch.clone();
  if (launch.requestId.size() > 0) {
    work->key = encodeHex(launch.requestId);
    // Bounded by the sessions: a launch that fails is taken out again.
    requests.insert(kj::str(work->key), kj::addRef(*work));
  }
  ++launching;
  ++work->waiting;  // The caller's; it looks after it from here on.
  making.add(runLaunch(kj::addRef(*work), kj::mv(launch)));
  return work;
}

void EnvironmentActor::forgetLaunch(const Launching& work) {
  KJ_IF_MAYBE (present, requests.find(work.key)) {
    if (present->get() == &work) requests.erase(work.key);
  }
}

void EnvironmentActor::forgetAllLaunches() { requests.clear(); }

void EnvironmentActor::restoreLaunch(const RunRecord& run, SessionActor& session) {
  auto age = (services.now() - run.createdAt) * kj::MILLISECONDS;
  if (run.requestId.size() == 0 || age < 0 * kj::SECONDS || age > REQUEST_MEMORY) return;
  auto work = kj::refcounted<Launching>(services.timer.now() - age);
  work->key = encodeHex(run.requestId);
  work->spec = run.spec.clone();
  work->result = Result<kj::Own<SessionActor>>(kj::addRef(session));
  work->finish->fulfill();
  auto key = kj::str(work->key);
  requests.upsert(kj::mv(key), kj::mv(work));
}

kj::Promise<Result<kj::Own<SessionActor>>> EnvironmentActor::launch(LaunchSpec launch) {
  auto self = kj::addRef(*this);
  KJ_IF_MAYBE (problem, checkLaunch(launch, services.limits)) {
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (refusal, refuseNew()) {
    co_return kj::mv(*refusal);
  }
  auto limit = launch.deadline.orDefault(services.limits.deadlines.launch);
  auto earlier = findLaunch(launch);
  kj::Own<Launching> work;
  KJ_IF_MAYBE (found, earlier) {
    if (!isSameLaunch((*found)->spec, launch)) {
      co_return Problem(ErrorCode::INVALID_ARGUMENT,
                        kj::str("the request id was used for another launch"))
          .at(kj::str("spec.requestId"))
          .advise(kj::str("make a new request id for every launch, keep it for repetitions only"));
    }
    work = kj::mv(*found);
    ++work->waiting;
  } else {
    KJ_IF_MAYBE (problem, unlessWaiting(launch)) {
      co_return kj::mv(*problem);
    }
    if (sessions.size() + launching >= services.limits.sessionsPerEnvironment) {
      co_return Problem(ErrorCode::RESOURCE_EXHAUSTED,
                        kj::str("the environment has ", sessions.size(), " sessions, at most ",
                                services.limits.sessionsPerEnvironment, " are kept"))
          .advise(kj::str("use another task, or destroy the environment"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    }
    work = beginLaunch(kj::mv(launch));
  }
  KJ_DEFER(--work->waiting);

  auto waited = co_await within(services.timer, limit, work->finished.addBranch());
  if (waited == Waited::TOO_LATE) {
    if (isPreparing()) co_return preparing();
    co_return Problem(ErrorCode::TIMEOUT, kj::str("the launch took longer than its deadline of ",
                                                  limit / kj::MILLISECONDS, " ms"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  auto& result = KJ_ASSERT_NONNULL(work->result);
  if (result.is<Problem>()) co_return result.get<Problem>().clone();
  co_return kj::addRef(*result.get<kj::Own<SessionActor>>());
}

// Who does not wait for a bring-up gets one begun, and is told why the last one failed.
Outcome EnvironmentActor::unlessWaiting(const LaunchSpec& launch) {
  if (launch.wait || current == EnvironmentState::READY) return nullptr;
  kj::Maybe<Problem> failure;
  if (current == EnvironmentState::FAILED) {
    failure = lastError.map([](const Problem& problem) { return problem.clone(); });
  }
  begin();
  KJ_IF_MAYBE (problem, failure) {
    return kj::mv(*problem);
  }
  return preparing();
}

Problem EnvironmentActor::preparing() {
  return Problem(ErrorCode::ENVIRONMENT_PREPARING, kj::str("the environment is being prepared"))
      .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
}

Outcome EnvironmentActor::interrupted(bool cancelled, uint32_t stopsBefore) const {
  if (cancelled) {
    return Problem(ErrorCode::CANCELLED, kj::str("the launch was cancelled"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  return refuseStopped(stops != stopsBefore, "the environment was stopped meanwhile");
}

kj::Promise<void> EnvironmentActor::runLaunch(kj::Own<Launching> work, LaunchSpec launch) {
  KJ_DEFER(--launching);
  auto result =
      co_await makeSession(kj::addRef(*work), kj::mv(launch))
          .catch_([](kj::Exception&& e) -> Result<kj::Own<SessionActor>> { return asProblem(e); });
  if (result.is<Problem>()) forgetLaunch(*work);
  work->result = kj::mv(result);
  work->finish->fulfill();
}

kj::Promise<Result<kj::Own<SessionActor>>> EnvironmentActor::makeSession(kj::Own<Launching> work,
                                                                         LaunchSpec launch) {
  auto stopsBefore = stops;
  KJ_IF_MAYBE (problem, co_await ready()) {
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, interrupted(work->waiting == 0, stopsBefore)) {
    co_return kj::mv(*problem);
  }
  auto run = newRun(launch, newId(IdKind::SESSION, services.entropy));
  auto sessionId = kj::str(run.sessionId);
  // From here on a crash leaves records that say what there may be.
  KJ_IF_MAYBE (problem, co_await beginRun(launch, run, true)) {
    co_return kj::mv(*problem);
  }
  auto made =
      co_await startRun(kj::addRef(*work), kj::mv(launch), kj::mv(run), stopsBefore)
          .catch_([](kj::Exception&& e) -> Result<kj::Own<SessionActor>> { return asProblem(e); });
  if (made.is<Problem>() && sessions.find(sessionId) == nullptr) {
    KJ_IF_MAYBE (problem, co_await ledger->removeSession(kj::str(sessionId))) {
      // It says `starting`: the next start of the daemon finds out that there is nothing.
      KJ_LOG(WARNING, "the records of a failed launch stay", row.id, sessionId, *problem);
    }
  }
  co_return kj::mv(made);
}

RunRecord EnvironmentActor::newRun(const LaunchSpec& launch, kj::String sessionId) const {
  RunRecord run;
  run.id = newId(IdKind::RUN, services.entropy);
  run.sessionId = kj::mv(sessionId);
  run.requestId = kj::heapArray<kj::byte>(launch.requestId);
  run.createdAt = services.now();
  return run;
}

kj::Promise<Outcome> EnvironmentActor::beginRun(const LaunchSpec& launch, const RunRecord& begun,
                                                bool isNew) {
  kj::Maybe<SessionRecord> made;
  if (isNew) {
    SessionRecord session;
    session.id = kj::str(begun.sessionId);
    session.environmentId = kj::str(row.id);
    session.createdAt = session.changedAt = begun.createdAt;
    made = kj::mv(session);
  }
  RunRecord run;
  run.id = kj::str(begun.id);
  run.sessionId = kj::str(begun.sessionId);
  run.spec = launch.clone();
  run.requestId = kj::heapArray<kj::byte>(begun.requestId);
  run.createdAt = begun.createdAt;
  RunningRecord running;
  running.id = kj::str(begun.id);
  running.sessionId = kj::str(begun.sessionId);
  running.taskId = kj::str(row.spec.taskId);
  running.executionProfileId = kj::str(row.profileId);
  running.executorId = kj::str(row.executorId);
  running.runtime = kj::str(row.runtime);
  running.resumable = true;
  running.agentExecutionId = kj::str(begun.id);
  running.worktreePath = kj::str(row.workspace);
  running.lastSeenAt = begun.createdAt;
  return ledger->beginRun(kj::mv(made), kj::mv(run), kj::mv(running));
}

// Unwinds what it made when it fails. What could not be unwound stays as a failed session.
kj::Promise<Result<kj::Own<SessionActor>>> EnvironmentActor::startRun(kj::Own<Launching> work,
                                                                      LaunchSpec launch,
                                                                      RunRecord run,
                                                                      uint32_t stopsBefore) {
  auto sessionId = kj::str(run.sessionId);
  bool startNow = launch.start;
  auto failure = interrupted(work->waiting == 0, stopsBefore);
  KJ_IF_MAYBE (problem, failure) {
    co_return kj::mv(*problem);
  }
  auto made = co_await makeProcess(kj::mv(launch), Assembly{kj::str(sessionId), kj::str(run.id),
                                                            AssemblyPath::PRIMARY, nullptr});
  if (made.is<Problem>()) co_return kj::mv(made.get<Problem>());
  auto session = kj::refcounted<SessionActor>(
      kj::str(sessionId), kj::refcounted<RunActor>(services, kj::addRef(*ledger), kj::addRef(*hub),
                                                   run, kj::mv(made.get<kj::Own<ProcessActor>>())));
  failure = interrupted(work->waiting == 0, stopsBefore);
  if (failure == nullptr) {
    // In the map before the start, so that a stop meanwhile finds it.
    sessions.insert(kj::str(sessionId), kj::addRef(*session));
    hub->changed();
    if (startNow) failure = co_await session->start();
  }
  KJ_IF_MAYBE (problem, failure) {
    forgetLaunch(*work);  // From here on a repetition is a launch of its own.
    if (co_await discardQuietly(kj::addRef(*session)) && sessions.erase(sessionId)) {
      hub->changed();
    }
    co_return kj::mv(*problem);
  }
  co_return kj::mv(session);
}

kj::Promise<Outcome> EnvironmentActor::startSession(kj::Own<SessionActor> session) {
  auto self = kj::addRef(*this);
  co_return co_await toItsEnd(session->start());
}

// ---- exec

kj::Promise<Result<kj::Own<ExecProcess>>> EnvironmentActor::exec(LaunchSpec launch) {
  auto self = kj::addRef(*this);
  KJ_IF_MAYBE (problem, checkLaunch(launch, services.limits)) {
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (refusal, refuseNew()) {
    co_return kj::mv(*refusal);
  }
  KJ_IF_MAYBE (problem, unlessWaiting(launch)) {
    co_return kj::mv(*problem);
  }
  if (execs.size() + execing >= services.limits.execsPerEnvironment) {
    co_return Problem(
        ErrorCode::RESOURCE_EXHAUSTED,
        kj::str("at most ", services.limits.execsPerEnvironment, " execs run in one environment"))
        .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
  }
  if (remembersExec(launch.requestId)) {
    co_return Problem(ErrorCode::ALREADY_EXISTS,
                      kj::str("an exec with this request id was run already"))
        .because(kj::str("it ended with the connection that asked for it"))
        .at(kj::str("spec.requestId"))
        .advise(kj::str("make a new request id to run the command again"));
  }
  auto limit = launch.deadline.orDefault(services.limits.deadlines.launch);
  auto pair = kj::newPromiseAndFulfiller<Result<kj::Own<ExecProcess>>>();
  auto work = kj::refcounted<Execing>();
  work->answer = kj::mv(pair.fulfiller);
  KJ_DEFER(work->cancelled = true);
  ++execing;
  making.add(runExec(kj::addRef(*work), kj::mv(launch)));
  kj::Maybe<Result<kj::Own<ExecProcess>>> result;
  auto waited =
      co_await within(services.timer, limit,
                      pair.promise.then([&result](auto&& answer) { result = kj::mv(answer); }));
  if (waited == Waited::TOO_LATE) {
    if (isPreparing()) co_return preparing();
    co_return Problem(ErrorCode::TIMEOUT, kj::str("the exec took longer than its deadline of ",
                                                  limit / kj::MILLISECONDS, " ms"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  co_return kj::mv(KJ_ASSERT_NONNULL(result));
}

kj::Promise<void> EnvironmentActor::runExec(kj::Own<Execing> work, LaunchSpec launch) {
  KJ_DEFER(--execing);
  auto requestKey = encodeHex(launch.requestId);
  auto made =
      co_await makeExec(kj::addRef(*work), kj::mv(launch))
          .catch_([](kj::Exception&& e) -> Result<kj::Own<ProcessActor>> { return asProblem(e); });
  if (made.is<Problem>()) {
    execRequests.erase(requestKey);  // It was not run, so it may be asked for again.
    work->answer->fulfill(kj::mv(made.get<Problem>()));
    co_return;
  }
  auto process = kj::mv(made.get<kj::Own<ProcessActor>>());
  execs.insert(kj::str(process->id()), kj::addRef(*process));
  // Ends with its caller from here on, also when that one has just left.
  work->answer->fulfill(kj::heap<ExecProcess>(kj::addRef(*this), kj::mv(process)));
}

kj::Promise<Result<kj::Own<ProcessActor>>> EnvironmentActor::makeExec(kj::Own<Execing> work,
                                                                      LaunchSpec launch) {
  auto stopsBefore = stops;
  KJ_IF_MAYBE (problem, co_await ready()) {
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, interrupted(work->cancelled, stopsBefore)) {
    co_return kj::mv(*problem);
  }
  auto made = co_await makeProcess(kj::mv(launch),
                                   Assembly{kj::String(), newId(IdKind::EXEC, services.entropy),
                                            AssemblyPath::PRIMARY, nullptr});
  if (made.is<Problem>()) co_return kj::mv(made.get<Problem>());
  KJ_IF_MAYBE (problem, interrupted(work->cancelled, stopsBefore)) {
    co_await discardQuietly(kj::mv(made.get<kj::Own<ProcessActor>>()));
    co_return kj::mv(*problem);
  }
  co_return kj::mv(made.get<kj::Own<ProcessActor>>());
}

bool EnvironmentActor::remembersExec(kj::ArrayPtr<const kj::byte> requestId) {
  if (requestId.size() == 0) return false;
  auto now = services.timer.now();
  auto oldest = now - REQUEST_MEMORY;
  execRequests.eraseAll([&](auto&, kj::TimePoint given) { return given < oldest; });
  auto key = encodeHex(requestId);
  if (execRequests.find(key) != nullptr) return true;
  if (execRequests.size() >= EXEC_REQUESTS) {
    auto* first = &*execRequests.begin();
    for (auto& each: execRequests) {
      if (each.value < first->value) first = &each;
    }
    execRequests.erase(kj::str(first->key));
  }
  execRequests.insert(kj::mv(key), now);
  return false;
}

void EnvironmentActor::reap(kj::Own<ProcessActor> process) {
  execs.erase(process->id());
  making.add(discardQuietly(kj::mv(process)).ignoreResult());
}

namespace {

// Whether nothing is left; says so in the log otherwise.
bool isDiscarded(const Outcome& outcome, kj::StringPtr environmentId, kj::StringPtr id) {
  KJ_IF_MAYBE (problem, outcome) {
    // A lost helper took the process with it; anything else is worth a line.
    if (problem->code == ErrorCode::UNREACHABLE) return true;
    KJ_LOG(WARNING, "could not discard a process, ignoring", environmentId, id, *problem);
    return false;
  }
  return true;
}

}  // namespace

kj::Promise<bool> EnvironmentActor::discardQuietly(kj::Own<ProcessActor> process) {
  auto outcome = co_await process->discard();
  co_return isDiscarded(outcome, row.id, process->id());
}

kj::Promise<bool> EnvironmentActor::discardQuietly(kj::Own<SessionActor> session) {
  auto outcome = co_await session->discard();
  co_return isDiscarded(outcome, row.id, session->id());
}

}  // namespace capstan
