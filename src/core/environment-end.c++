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
  for (auto& entry: sessions)
    endings.add(entry.value->stop(grace, mode));
  for (auto& entry: execs)
    endings.add(entry.value->discard());
  auto outcomes = co_await kj::joinPromises(endings.releaseAsArray());
  for (auto& outcome: outcomes) {
    KJ_IF_MAYBE (problem, outcome) {
      // The helper is gone, and what it ran with it.
      if (problem->code != ErrorCode::UNREACHABLE) problems.add(kj::mv(*problem));
    }
  }
}

kj::Promise<Outcome> EnvironmentActor::toItsEnd(kj::Promise<Outcome> work) {
  auto pair = kj::newPromiseAndFulfiller<Outcome>();
  tasks.add(deliver(kj::mv(work), kj::mv(pair.fulfiller)));
  return kj::mv(pair.promise);
}

kj::Promise<Outcome> EnvironmentActor::stop(kj::Duration grace, StopMode mode) {
  auto self = kj::addRef(*this);
  co_return co_await toItsEnd(stopAll(grace, mode));
}

kj::Promise<Outcome> EnvironmentActor::stopSession(kj::Own<SessionActor> session,
                                                   kj::Duration grace, StopMode mode) {
  auto self = kj::addRef(*this);
  co_return co_await toItsEnd(session->stop(grace, mode));
}

// In `tasks`: holds no reference to this.
kj::Promise<Outcome> EnvironmentActor::stopAll(kj::Duration grace, StopMode mode) {
  kj::Vector<Problem> problems;
  co_await ending.with([&]() -> kj::Promise<void> {
    if (gone) return kj::READY_NOW;
    auto before = current;
    ++stops;
    setState(EnvironmentState::STOPPING);
    auto ended = endProcesses(grace, mode, problems).catch_([&problems](kj::Exception&& e) {
      problems.add(asProblem(e));
    });
    return ended.then([this, before]() {
      if (current == EnvironmentState::STOPPING) {
        setState(before == EnvironmentState::FAILED ? before : EnvironmentState::STOPPED);
      }
    });
  });
  if (problems.size() > 0) co_return merge(kj::mv(problems));
  co_return nullptr;
}

kj::Promise<CleanupReport> EnvironmentActor::cleanUp(CleanupScope scope) {
  auto self = kj::addRef(*this);
  CleanupReport report;
  if (!gone) {
    co_await ending.with([&]() { return removeAll(scope, report); });
  }
  co_return report;
}

kj::Promise<void> EnvironmentActor::removeAll(CleanupScope scope, CleanupReport& report) {
  if (gone) co_return;
  ++stops;
  setState(EnvironmentState::CLEANING);
  // An exception is a leftover like others: the environment stays, for another try.
  co_await removeEach(scope, report).catch_([&report](kj::Exception&& e) {
    report.leftovers.add(kj::str(asProblem(e)));
  });
  if (report.leftovers.size() > 0) {
    lastError = Problem(ErrorCode::INTERNAL, kj::str("the clean-up is not complete"))
                    .because(kj::strArray(report.leftovers, "; "))
                    .advise(kj::str("capstan env destroy ", name, " tries again"));
    setState(EnvironmentState::FAILED);
    co_return;
  }
  forgetSessions();
  if (scope == CleanupScope::COMPUTE) {
    setState(EnvironmentState::STOPPED);
  } else {
    gone = true;
  }
}

kj::Promise<void> EnvironmentActor::removeEach(CleanupScope scope, CleanupReport& report) {
  kj::Vector<Problem> problems;
  co_await endProcesses(services.limits.deadlines.stopGrace, StopMode::GRACEFUL, problems);
  for (auto& problem: problems)
    report.leftovers.add(kj::str("processes: ", problem));
  if (problems.size() > 0) co_return;

  // What is on its way must not make anything after the removal: a bring-up ends its step, launches
  // and execs unwind.
  co_await bringingUp.settled();
  co_await making.onEmpty();

  // Logs of ended runs: the helper deletes them with its entry.
  kj::Vector<kj::Promise<Outcome>> discards;
  for (auto& entry: sessions)
    discards.add(entry.value->run().discard());
  auto outcomes = co_await kj::joinPromises(discards.releaseAsArray());
  for (auto& outcome: outcomes) {
    KJ_IF_MAYBE (problem, outcome) {
      // A lost helper has nothing left of them.
      if (problem->code != ErrorCode::UNREACHABLE) {
        report.leftovers.add(kj::str("sessions: ", *problem));
      }
    }
  }
  auto removed = co_await backend.cleanUp(place(), scope);
  for (auto& line: removed.leftInPlace)
    report.leftInPlace.add(kj::mv(line));
  for (auto& line: removed.leftovers)
    report.leftovers.add(kj::mv(line));
}

kj::Promise<Outcome> EnvironmentActor::close(kj::Duration grace) {
  auto self = kj::addRef(*this);
  closing = true;
  auto outcome = co_await stop(grace, StopMode::GRACEFUL);
  co_await bringingUp.settled();
  co_return kj::mv(outcome);
}

}  // namespace capstan
