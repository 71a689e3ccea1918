// How a session goes on: with the run it has, or with a new one in the place that was kept.
#include "core/environment-work.h"
#include "domain/launch-rules.h"
#include "domain/variables-assembly.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr UnixMs REQUEST_MEMORY_MS = 24 * 60 * 60 * 1000;  // D9
// Of one session; the oldest goes, with its output, before the next begins.
constexpr size_t RUNS_KEPT = 100;

Problem cancelled() {
  return Problem(ErrorCode::CANCELLED, kj::str("the resume was cancelled"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

// A request that has failed fails again, whoever repeats it.
Outcome neverStarted(const RunActor& run) {
  auto status = run.status();
  if (status.state != SessionState::FAILED) return nullptr;
  auto problem = Problem(ErrorCode::INTERNAL, kj::str("the run was never started"));
  KJ_IF_MAYBE (why, status.lastError) {
    problem = kj::mv(*why);
  }
  return kj::mv(problem)
      .advise(kj::str("resume again with another request id"))
      .retryable(RetryHint::NEVER);
}

}  // namespace

Outcome EnvironmentActor::refuseResume(SessionActor& session) const {
  KJ_IF_MAYBE (refusal, refuseNew()) {
    return kj::mv(*refusal);
  }
  bool known = false;
  KJ_IF_MAYBE (present, sessions.find(session.id())) {
    known = present->get() == &session;
  }
  if (!known) {
    return Problem(ErrorCode::NOT_FOUND, kj::str("the session '", session.id(), "' was removed"));
  }
  KJ_IF_MAYBE (executor, services.catalog.rows().executor(row.executorId)) {
    if (!executor->resumable) {
      return Problem(ErrorCode::UNSUPPORTED,
                     kj::str("sessions of the executor '", executor->name, "' are not resumed"))
          .advise(kj::str("launch a new session, or make the executor resumable"));
    }
  }
  return nullptr;
}

kj::Promise<Result<kj::Own<RunActor>>> EnvironmentActor::resume(kj::Own<SessionActor> session,
                                                                LaunchSpec wanted) {
  auto self = kj::addRef(*this);
  KJ_IF_MAYBE (problem, checkResume(wanted, services.limits)) {
    co_return kj::mv(*problem);
  }
  auto deadline =
      Deadline::after(services.timer, wanted.deadline.orDefault(services.limits.deadlines.launch));
  checkLink();
  if (wanted.wait) co_await until(services.timer, deadline, onSettled());
  kj::Own<Resuming> work;
  KJ_IF_MAYBE (present, resumes.find(session->id())) {
    work = kj::addRef(**present);
    ++work->waiting;
  } else {
    KJ_IF_MAYBE (earlier,
                 session->findRequest(wanted.requestId, services.now() - REQUEST_MEMORY_MS)) {
      KJ_IF_MAYBE (problem, neverStarted(**earlier)) {
        co_return kj::mv(*problem);
      }
      co_return kj::mv(*earlier);
    }
    if (session->isLive() && !session->isUnsettled()) co_return kj::addRef(session->run());
    KJ_IF_MAYBE (refusal, refuseResume(*session)) {
      co_return kj::mv(*refusal);
    }
    KJ_IF_MAYBE (problem, unlessWaiting(wanted)) {
      co_return kj::mv(*problem);
    }
    work = kj::refcounted<Resuming>(stops, session->stops());
    ++work->waiting;  // The caller's; it looks after it from here on.
    resumes.insert(kj::str(session->id()), kj::addRef(*work));
    making.add(runResume(kj::addRef(*work), kj::mv(session), kj::mv(wanted)));
  }
  KJ_DEFER(--work->waiting);

  auto waited = co_await until(services.timer, deadline, work->finished.addBranch());
  if (waited == Waited::TOO_LATE) {
    if (isPreparing()) co_return preparing();
    co_return Problem(ErrorCode::TIMEOUT, kj::str("the resume took longer than its deadline"))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  auto& result = KJ_ASSERT_NONNULL(work->result);
  if (result.is<Problem>()) co_return result.get<Problem>().clone();
  co_return kj::addRef(*result.get<kj::Own<RunActor>>());
}

// In `making`, as all that follows: holds no reference to this.
kj::Promise<void> EnvironmentActor::runResume(kj::Own<Resuming> work, kj::Own<SessionActor> session,
                                              LaunchSpec wanted) {
  auto id = kj::str(session->id());
  work->result =
      co_await makeResume(kj::addRef(*work), kj::mv(session), kj::mv(wanted))
          .catch_([](kj::Exception&& e) -> Result<kj::Own<RunActor>> { return asProblem(e); });
  resumes.erase(id);
  work->finish->fulfill();
}

Outcome EnvironmentActor::interruptedResume(const Resuming& work, SessionActor& session) const {
  if (work.waiting == 0) return cancelled();
  bool stopped = stops != work.stopsBefore || session.stops() != work.sessionStopsBefore;
  KJ_IF_MAYBE (refusal, refuseStopped(stopped, "the session was stopped meanwhile")) {
    return kj::mv(*refusal);
  }
  return refuseResume(session);
}

kj::Promise<Result<kj::Own<RunActor>>> EnvironmentActor::makeResume(kj::Own<Resuming> work,
                                                                    kj::Own<SessionActor> session,
                                                                    LaunchSpec wanted) {
  bool wasUp = false;
  KJ_IF_MAYBE (present, link) {
    wasUp = current == EnvironmentState::READY && !(*present)->isLost();
  }
  KJ_IF_MAYBE (problem, co_await ready()) {
    co_return kj::mv(*problem);
  }
  // A bring-up has looked at the place itself.
  if (wasUp) {
    auto fault = co_await checkPlace();
    bool stopped = current == EnvironmentState::STOPPING || current == EnvironmentState::STOPPED;
    // A look may start what has stopped, and knows of no stop.
    if (stopped && stops != work->stopsBefore) co_await stopLateCompute();
    KJ_IF_MAYBE (problem, fault) {
      co_return kj::mv(*problem);
    }
  }
  KJ_IF_MAYBE (problem, interruptedResume(*work, *session)) {
    co_return kj::mv(*problem);
  }
  if (session->isUnsettled()) co_return unsettledProblem();
  if (session->isLive()) co_return kj::addRef(session->run());
  KJ_IF_MAYBE (problem, co_await forgetOldRuns(*session)) {
    co_return kj::mv(*problem);
  }
  auto stored = co_await ledger->launchOf(kj::str(session->runId()));
  if (stored.is<Problem>()) co_return kj::mv(stored.get<Problem>());
  auto launch = resumedLaunch(kj::mv(stored.get<LaunchSpec>()), wanted);
  auto token = co_await ledger->resumeToken(kj::str(session->id()));
  if (token.is<Problem>()) co_return kj::mv(token.get<Problem>());
  Assembly assembly{kj::str(session->id()), kj::String(), AssemblyPath::RECOVERY, nullptr};
  KJ_IF_MAYBE (value, token.get<kj::Maybe<SecretBytes>>()) {
    assembly.resumeToken = kj::str(value->asPtr().asChars());
  }
  co_return co_await repeatRun(kj::mv(work), kj::mv(session), kj::mv(launch), kj::mv(assembly));
}

// From its record on there is a run, whatever becomes of it: it is the session's latest, and its
// end is written down like that of any other.
kj::Promise<Result<kj::Own<RunActor>>> EnvironmentActor::repeatRun(kj::Own<Resuming> work,
                                                                   kj::Own<SessionActor> session,
                                                                   LaunchSpec launch,
                                                                   Assembly assembly) {
  KJ_IF_MAYBE (problem, interruptedResume(*work, *session)) {
    co_return kj::mv(*problem);
  }
  bool startNow = launch.start;
  auto record = newRun(launch, kj::str(session->id()));
  // Runs are in the order of their times, also when the clock was set back.
  record.createdAt = kj::max(record.createdAt, session->run().requestedAt() + 1);
  record.spec.command = KJ_MAP(word, launch.command) { return kj::str(word); };
  KJ_IF_MAYBE (problem, co_await beginRun(launch, record, false)) {
    co_return kj::mv(*problem);
  }
  assembly.processId = kj::str(record.id);
  bool tokenGiven = assembly.resumeToken != nullptr;
  auto failure = interruptedResume(*work, *session);
  kj::Maybe<kj::Own<ProcessActor>> process;
  if (failure == nullptr) {
    auto made = co_await makeProcess(kj::mv(launch), kj::mv(assembly))
                    .catch_([](kj::Exception&& e) -> Result<kj::Own<ProcessActor>> {
                      return asProblem(e);
                    });
    if (made.is<Problem>()) {
      failure = kj::mv(made.get<Problem>());
    } else {
      process = kj::mv(made.get<kj::Own<ProcessActor>>());
      failure = interruptedResume(*work, *session);
    }
  }
  bool made = process != nullptr;
  kj::Own<RunActor> run;
  KJ_IF_MAYBE (present, process) {
    run = kj::refcounted<RunActor>(services, kj::addRef(*ledger), kj::addRef(*hub), record,
                                   kj::mv(*present));
    if (tokenGiven) run->wasGivenToken();
  } else {
    run = kj::refcounted<RunActor>(services, kj::addRef(*ledger), kj::addRef(*hub), record);
    // Before anybody sees it: there is nothing of it that a recovery could find.
    co_await run->fail(KJ_ASSERT_NONNULL(failure).clone());
  }
  // Before the start, so that a stop meanwhile finds it.
  session->follow(kj::addRef(*run));
  hub->changed();
  KJ_IF_MAYBE (problem, failure) {
    if (!made) co_return kj::mv(*problem);
    KJ_IF_MAYBE (left, co_await run->discard()) {
      // A helper that was lost has nothing of it.
      if (left->code != ErrorCode::UNREACHABLE) {
        KJ_LOG(WARNING, "could not discard a run that was not started", row.id, record.id, *left);
      }
    }
    co_await run->fail(problem->clone());
    co_return kj::mv(*problem);
  }
  if (startNow) {
    KJ_IF_MAYBE (problem, co_await run->start()) {
      co_return kj::mv(*problem);
    }
  }
  co_return kj::mv(run);
}

kj::Promise<Outcome> EnvironmentActor::forgetOldRuns(SessionActor& session) {
  while (session.runCount() >= RUNS_KEPT) {
    auto oldest = session.oldestRun();
    KJ_IF_MAYBE (problem, co_await oldest->discard()) {
      if (problem->code != ErrorCode::UNREACHABLE) co_return kj::mv(*problem);
    }
    KJ_IF_MAYBE (problem, co_await ledger->removeRun(kj::str(oldest->id()))) {
      co_return kj::mv(*problem);
    }
    session.forgetRun(*oldest);
  }
  co_return nullptr;
}

// Whether the place of an environment that is up is still there. Never makes one: what was recorded
// is looked for, and its absence is workspaceLost.
kj::Promise<Outcome> EnvironmentActor::checkPlace() {
  while (bringingUp.running())
    co_await bringingUp.settled();
  auto done = checkingPlace.run([this]() {
    auto check = kj::refcounted<PlaceCheck>();
    placeCheck = kj::addRef(*check);
    return lookAtPlace(kj::mv(check));
  });
  auto check = kj::addRef(*KJ_ASSERT_NONNULL(placeCheck));  // Of this run, also when joined.
  co_await done;
  co_return check->fault.map([](Problem& problem) { return problem.clone(); });
}

kj::Promise<void> EnvironmentActor::lookAtPlace(kj::Own<PlaceCheck> check) {
  auto found = backend();
  if (found.is<Problem>()) {
    check->fault = kj::mv(found.get<Problem>());
    co_return;
  }
  CreateRequest request;
  request.place = place();
  request.taskTitle = kj::str(row.spec.title);
  request.reuseRequired = true;
  auto limit = services.limits.deadlines.launch;
  auto looking = reachPlace(*found.get<Backend*>(), kj::mv(request), *check)
                     .then([](Result<kj::Own<Attachment>>&& result) -> Outcome {
                       if (result.is<Problem>()) return kj::mv(result.get<Problem>());
                       return nullptr;
                     })
                     .catch_([](kj::Exception&& e) -> Outcome { return asProblem(e); })
                     .then([&check](Outcome&& outcome) { check->fault = kj::mv(outcome); });
  auto abandoned = kj::newPromiseAndFulfiller<void>();
  abandonLooking = kj::mv(abandoned.fulfiller);
  bool over = false;
  looking = looking.then([&over]() { over = true; }).exclusiveJoin(kj::mv(abandoned.promise));
  auto waited = co_await within(services.timer, limit, kj::mv(looking));
  abandonLooking = nullptr;
  // What was begun is noted, or will be in a moment.
  if (!over) co_await ledger->settled();
  if (waited == Waited::DONE && !over) check->fault = cancelled();
  if (waited == Waited::TOO_LATE) {
    check->fault = Problem(ErrorCode::TIMEOUT,
                           kj::str("the runtime did not tell within ", limit / kj::SECONDS, " s"))
                       .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  co_await sawWorkspace(check->fault);
}

kj::Promise<Outcome> EnvironmentActor::saveProgress(kj::Own<SessionActor> session,
                                                    SavedProgress progress) {
  auto self = kj::addRef(*this);
  KJ_IF_MAYBE (problem, checkProgress(progress, services.limits)) {
    co_return kj::mv(*problem);
  }
  co_return co_await ledger->saveProgress(kj::str(session->id()), kj::mv(progress));
}

}  // namespace capstan
