// How environments end: stop and clean-up.
#include "core/environment-actor.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// Many failures as one Problem: the first one's code, everybody's words.
Problem merge(kj::Vector<Problem> problems) {
  auto texts = KJ_MAP(problem, problems) { return kj::str(problem); };
  auto result = kj::mv(problems[0]);
  if (texts.size() > 1) {
    result.message = kj::str(texts.size(), " processes could not be ended");
    result.cause = kj::strArray(texts, "; ");
  }
  return result;
}

}  // namespace

kj::Duration EnvironmentActor::stopGrace(uint64_t askedMs) const {
  constexpr uint64_t MOST_MS = 600'000;
  if (askedMs == 0) return services.limits.deadlines.stopGrace;
  return kj::min(askedMs, MOST_MS) * kj::MILLISECONDS;
}

// All sessions and execs at once; problems are collected, never the first only.
kj::Promise<void> EnvironmentActor::endProcesses(kj::Duration grace, StopMode mode,
                                                 kj::Vector<Problem>& problems) {
  kj::Vector<kj::Promise<Outcome>> endings;
  for (auto& entry: sessions) {
    // Of an ended run a lost helper has nothing left.
    bool over = !entry.value->isLive();
    endings.add(entry.value->stop(grace, mode).then([over](Outcome&& outcome) -> Outcome {
      KJ_IF_MAYBE (problem, outcome) {
        if (over && problem->code == ErrorCode::UNREACHABLE) return nullptr;
      }
      return kj::mv(outcome);
    }));
  }
  for (auto& entry: execs)
    endings.add(entry.value->discard());
  auto outcomes = co_await kj::joinPromises(endings.releaseAsArray());
  for (auto& outcome: outcomes) {
    KJ_IF_MAYBE (problem, outcome) {
      problems.add(kj::mv(*problem));
    }
  }
}

kj::Promise<Outcome> EnvironmentActor::toItsEnd(kj::Promise<Outcome> work) {
  auto pair = kj::newPromiseAndFulfiller<Outcome>();
  tasks.add(deliver(kj::mv(work), kj::mv(pair.fulfiller)));
  return kj::mv(pair.promise);
}

// While it is not known what became of the environment, nothing of it can be ended for certain.
Outcome EnvironmentActor::refuseUnsettled() const {
  if (!isUnsettled()) return nullptr;
  bool mayRun = ledger->inventory().size() > 0;
  for (auto& entry: sessions)
    mayRun = mayRun || entry.value->isUnsettled();
  if (!mayRun) return nullptr;
  return unsettledProblem();
}

kj::Promise<Outcome> EnvironmentActor::stop(kj::Duration grace, StopMode mode) {
  auto self = kj::addRef(*this);
  Outcome outcome;
  bool again = true;
  for (int tries = 0; again && tries < 3; ++tries) {
    checkLink();
    co_await onSettled();
    outcome = co_await toItsEnd(stopAll(grace, mode));
    again = outcome != nullptr && current == EnvironmentState::RECOVERING;
  }
  co_return kj::mv(outcome);
}

kj::Promise<Outcome> EnvironmentActor::stopSession(kj::Own<SessionActor> session,
                                                   kj::Duration grace, StopMode mode) {
  auto self = kj::addRef(*this);
  co_await onSettled();
  KJ_IF_MAYBE (problem, refuseUnsettled()) {
    co_return kj::mv(*problem);
  }
  co_return co_await toItsEnd(session->stop(grace, mode));
}

// In `tasks`: holds no reference to this.
kj::Promise<Outcome> EnvironmentActor::stopAll(kj::Duration grace, StopMode mode) {
  kj::Vector<Problem> problems;
  co_await ending.with([&]() { return stopInTurn(grace, mode, problems); });
  if (problems.size() > 0) co_return merge(kj::mv(problems));
  co_return nullptr;
}

kj::Promise<void> EnvironmentActor::stopInTurn(kj::Duration grace, StopMode mode,
                                               kj::Vector<Problem>& problems) {
  if (gone) co_return;
  KJ_IF_MAYBE (problem, refuseUnsettled()) {
    problems.add(kj::mv(*problem));
    co_return;
  }
  auto before = current;
  ++stops;
  interruptPreparation();
  setState(EnvironmentState::STOPPING);
  co_await endProcesses(grace, mode, problems).catch_([&problems](kj::Exception&& e) {
    problems.add(asProblem(e));
  });
  if (attachment != nullptr) {
    auto found = backend();
    if (found.is<Backend*>()) {
      auto report = co_await stopCompute(*found.get<Backend*>(), mode, problems.size() > 0);
      KJ_IF_MAYBE (problem, report.problem) {
        problems.add(kj::mv(*problem));
      }
    }
  }
  // What could not be ended still runs.
  bool asBefore = before == EnvironmentState::FAILED ||
                  (problems.size() > 0 && before != EnvironmentState::PREPARING);
  auto next = asBefore ? before : EnvironmentState::STOPPED;
  KJ_IF_MAYBE (problem, co_await conclude(EnvironmentState::STOPPING, next)) {
    problems.add(kj::mv(*problem));
  }
  checkLink();
}

kj::Promise<StopReport> EnvironmentActor::stopCompute(Backend& backend, StopMode mode,
                                                      bool agentStopFailed) {
  StopRequest request;
  request.mode = mode;
  request.agentStopFailed = agentStopFailed;
  request.deadline = services.limits.deadlines.cleanup;
  return backend.stopInstance(place(), kj::mv(request));
}

kj::Promise<void> EnvironmentActor::settleMaking() {
  KJ_IF_MAYBE (fulfiller, abandonLooking) {
    (*fulfiller)->fulfill();
  }
  auto grace = services.limits.deadlines.stopGrace;
  if (co_await within(services.timer, grace, bringingUp.settled()) == Waited::TOO_LATE) {
    KJ_IF_MAYBE (fulfiller, abandonCreating) {
      (*fulfiller)->fulfill();
    }
    co_await bringingUp.settled();
  }
  co_await idle.run([this]() { return making.onEmpty(); });
}

kj::Promise<CleanupReport> EnvironmentActor::cleanUp(CleanupScope scope) {
  auto self = kj::addRef(*this);
  CleanupReport report;
  bool again = true;
  for (int tries = 0; again && !gone && tries < 3; ++tries) {
    checkLink();
    co_await onSettled();
    report = CleanupReport();
    co_await ending.with([&]() { return removeAll(scope, report); });
    // The helper was lost meanwhile: once it is known what became of it, the rest can be done.
    again = report.leftovers.size() > 0 && current == EnvironmentState::RECOVERING;
  }
  co_return report;
}

namespace {

// The words under which a clean-up is written down.
kj::StringPtr scopeName(CleanupScope scope) {
  switch (scope) {
    case CleanupScope::COMPUTE:
      return "compute"_kj;
    case CleanupScope::ALL:
      return "all"_kj;
    case CleanupScope::ALL_KEEP_WORKSPACE:
      break;
  }
  return "all_keep_workspace"_kj;
}

}  // namespace

kj::Maybe<CleanupScope> EnvironmentActor::interruptedCleanup() const {
  for (auto scope: {CleanupScope::COMPUTE, CleanupScope::ALL, CleanupScope::ALL_KEEP_WORKSPACE}) {
    if (row.cleanupScope == scopeName(scope)) return scope;
  }
  return nullptr;
}

kj::Promise<void> EnvironmentActor::removeAll(CleanupScope scope, CleanupReport& report) {
  if (gone) co_return;
  KJ_IF_MAYBE (problem, refuseUnsettled()) {
    report.leftovers.add(kj::str("everything: ", *problem));
    co_return;
  }
  auto before = current;
  ++stops;
  interruptPreparation();
  setState(EnvironmentState::CLEANING);
  // Before anything goes, so that the next start of the daemon can finish it.
  EnvironmentLedger::Change change;
  change.state = EnvironmentState::CLEANING;
  change.cleanupScope = kj::str(scopeName(scope));
  KJ_IF_MAYBE (problem, co_await ledger->change(kj::mv(change))) {
    report.leftovers.add(kj::str("everything: the clean-up could not be noted: ", *problem));
    setState(before);
    co_return;
  }
  // An exception is a leftover like others: the environment stays, for another try.
  co_await removeEach(scope, report).catch_([&report](kj::Exception&& e) {
    report.leftovers.add(kj::str(asProblem(e)));
  });
  if (report.leftovers.size() == 0) co_await removeRecords(scope, report);
  co_await concludeCleanup(scope, report);
  checkLink();
}

kj::Promise<void> EnvironmentActor::removeRecords(CleanupScope scope, CleanupReport& report) {
  if (scope != CleanupScope::COMPUTE) {
    KJ_IF_MAYBE (problem, co_await ledger->remove()) {
      report.leftovers.add(kj::str("records: ", *problem));
    }
    co_return;
  }
  kj::Vector<kj::String> ids;
  for (auto& entry: sessions)
    ids.add(kj::str(entry.key));
  for (auto& id: ids) {
    KJ_IF_MAYBE (problem, co_await ledger->removeSession(kj::str(id))) {
      report.leftovers.add(kj::str("records of session ", id, ": ", *problem));
    }
  }
}

kj::Promise<void> EnvironmentActor::concludeCleanup(CleanupScope scope, CleanupReport& report) {
  bool complete = report.leftovers.size() == 0;
  if (complete) {
    sessions.clear();
    forgetAllLaunches();
    if (scope != CleanupScope::COMPUTE) {
      gone = true;
      hub->changed();
      co_return;
    }
    lastError = nullptr;
  } else {
    lastError = Problem(ErrorCode::INTERNAL, kj::str("the clean-up is not complete"))
                    .because(kj::strArray(report.leftovers, "; "))
                    .advise(kj::str("capstan env destroy ", row.id, " tries again"));
  }
  // Whoever goes on with an environment that could not be removed must not lose it later.
  EnvironmentLedger::Change change;
  change.state = complete ? EnvironmentState::STOPPED : EnvironmentState::FAILED;
  change.cleanupScope = kj::String();
  row.cleanupScope = kj::String();
  if (ledger->inventory().size() == 0) change.prepared = row.prepared = false;
  change.lastError = lastError.map([](const Problem& problem) { return problem.clone(); });
  auto next = KJ_ASSERT_NONNULL(change.state);
  KJ_IF_MAYBE (problem, co_await ledger->change(kj::mv(change))) {
    if (closing) {
      KJ_LOG(INFO, "a clean-up is left to the next start", row.id, *problem);
    } else {
      KJ_LOG(ERROR, "cannot write down how a clean-up ended", row.id, *problem);
    }
  }
  setState(next);
}

kj::Promise<void> EnvironmentActor::removeEach(CleanupScope scope, CleanupReport& report) {
  kj::Vector<Problem> problems;
  co_await endProcesses(services.limits.deadlines.stopGrace, StopMode::GRACEFUL, problems);
  for (auto& problem: problems)
    report.leftovers.add(kj::str("processes: ", problem));
  if (problems.size() > 0) co_return;

  // What is on its way must not make anything after the removal: a bring-up ends its step, launches
  // and execs unwind.
  co_await settleMaking();

  if (scope != CleanupScope::COMPUTE) {
    progress.begin();
    KJ_IF_MAYBE (problem, co_await runCleanup()) {
      KJ_LOG(WARNING, "a clean-up script failed", row.id, *problem);
      report.warnings.add(kj::str("clean-up script: ", *problem));
    }
  }

  // Logs of ended runs: the helper deletes them with its entry.
  kj::Vector<kj::Promise<Outcome>> discards;
  for (auto& entry: sessions)
    discards.add(entry.value->discard());
  auto outcomes = co_await kj::joinPromises(discards.releaseAsArray());
  for (auto& outcome: outcomes) {
    KJ_IF_MAYBE (problem, outcome) {
      // A lost helper has nothing left of them.
      if (problem->code != ErrorCode::UNREACHABLE) {
        report.leftovers.add(kj::str("sessions: ", *problem));
      }
    }
  }
  auto found = backend();
  if (found.is<Problem>()) {
    // Nothing can be left of an environment for which nothing was noted.
    if (ledger->inventory().size() > 0) report.leftovers.add(kj::str(found.get<Problem>()));
    co_return;
  }
  auto removed = co_await found.get<Backend*>()->cleanUp(place(), scope, progress, *ledger);
  for (auto& line: removed.leftInPlace)
    report.leftInPlace.add(kj::mv(line));
  for (auto& line: removed.warnings)
    report.warnings.add(kj::mv(line));
  for (auto& line: removed.leftovers)
    report.leftovers.add(kj::mv(line));
}

kj::Promise<void> EnvironmentActor::expireLogs(UnixMs before) {
  auto self = kj::addRef(*this);
  kj::Vector<kj::Own<SessionActor>> all;
  for (auto& entry: sessions)
    all.add(kj::addRef(*entry.value));
  for (auto& session: all)
    co_await session->expireLogs(before);
}

kj::Promise<void> EnvironmentActor::close() {
  auto self = kj::addRef(*this);
  closing = true;
  ++stops;  // What has not begun yet does not begin any more.
  interruptPreparation();
  kj::Vector<kj::Own<ProcessActor>> ephemeral;
  for (auto& entry: execs)
    ephemeral.add(kj::addRef(*entry.value));
  kj::Vector<kj::Promise<void>> ends;
  for (auto& process: ephemeral)
    ends.add(discardQuietly(kj::mv(process)).ignoreResult());
  co_await kj::joinPromises(ends.releaseAsArray());
  co_await settleMaking();
}

}  // namespace capstan
