// How an environment of an earlier daemon is taken over.
#include "core/environment-actor.h"

#include <kj/debug.h>

namespace capstan {

void EnvironmentActor::restore(const SessionRecord& session, kj::ArrayPtr<const RunRecord> runs) {
  kj::Vector<kj::Own<RunActor>> all(runs.size());
  for (auto& run: runs)
    all.add(kj::refcounted<RunActor>(services, kj::addRef(*ledger), kj::addRef(*hub), run));
  auto restored = kj::refcounted<SessionActor>(kj::str(session.id), kj::mv(all));
  restoreLaunch(runs.front(), *restored);
  sessions.insert(kj::str(session.id), kj::mv(restored));
}

bool EnvironmentActor::beginRecovery() {
  // Where nothing was ever made, nothing can run.
  bool mayBeThere = sessions.size() > 0 || ledger->inventory().size() > 0;
  bool atRest = current == EnvironmentState::STOPPED || current == EnvironmentState::FAILED;
  if (atRest && !mayBeThere && interruptedCleanup() == nullptr) return false;
  current = EnvironmentState::RECOVERING;
  beginSettling();
  lostGeneration = kj::str(row.generation);
  workspaceHealth = HealthAxis::UNKNOWN;
  tasks.add(watchLoss(++losses));
  return true;
}

void EnvironmentActor::beginSettling() {
  KJ_IF_MAYBE (fulfiller, settle) {
    if ((*fulfiller)->isWaiting()) return;
  }
  auto pair = kj::newPromiseAndFulfiller<void>();
  settle = kj::mv(pair.fulfiller);
  settled = pair.promise.fork();
}

kj::Promise<void> EnvironmentActor::onSettled() {
  if (current != EnvironmentState::RECOVERING) return kj::READY_NOW;
  return KJ_ASSERT_NONNULL(settled).addBranch();
}

void EnvironmentActor::tellSettled() {
  KJ_IF_MAYBE (fulfiller, settle) {
    (*fulfiller)->fulfill();
  }
}

// The helper cannot be reached any more: whether it is gone has to be found out.
void EnvironmentActor::checkLink() {
  KJ_IF_MAYBE (present, link) {
    if (!(*present)->isLost() || isUnsettled() || gone || closing) return;
  } else {
    return;
  }
  if (current != EnvironmentState::READY && current != EnvironmentState::STOPPED &&
      current != EnvironmentState::FAILED) {
    return;  // Whoever works on it looks again at the end.
  }
  link = nullptr;
  bool mayRun = current == EnvironmentState::READY;
  for (auto& entry: sessions)
    mayRun = mayRun || entry.value->isLive();
  if (!mayRun) return;  // A stop may end the helper with the rest.
  losesSight();
  askForRecovery();
}

void EnvironmentActor::losesSight() {
  row.state = current;
  for (auto& entry: sessions)
    entry.value->losesSight();
  lostHere = true;
  beginRecovery();
  hub->changed();
}

void EnvironmentActor::askForRecovery() {
  KJ_IF_MAYBE (ask, recoverer) {
    (*ask)(*this);
  }
}

bool EnvironmentActor::isUnsettled() const {
  return current == EnvironmentState::RECOVERING || current == EnvironmentState::RECONNECTING;
}

kj::Promise<void> EnvironmentActor::unreachable(kj::Maybe<Problem> why) {
  if (!isUnsettled()) return kj::READY_NOW;
  auto found = backend();
  if (found.is<Problem>()) why = kj::mv(found.get<Problem>());
  // Nothing may be replaced: what runs there may go on running.
  KJ_IF_MAYBE (problem, why) {
    bool same = false;
    KJ_IF_MAYBE (last, lastError) {
      same = kj::str(*last) == kj::str(*problem);
    }
    lastError = kj::mv(*problem);
    if (!same) hub->changed();
  }
  bool atRest = (row.state == EnvironmentState::STOPPED || row.state == EnvironmentState::FAILED) &&
                interruptedCleanup() == nullptr;
  for (auto& entry: sessions)
    atRest = atRest && !entry.value->isUnsettled();
  setState(atRest ? row.state : EnvironmentState::RECONNECTING);
  tellSettled();
  return kj::READY_NOW;
}

// Outcomes are settled before anybody sees the environment again.
kj::Promise<void> EnvironmentActor::settleLosses(kj::StringPtr message, kj::StringPtr cause) {
  kj::Vector<kj::Promise<void>> losses;
  for (auto& entry: sessions) {
    if (!entry.value->isUnsettled()) continue;
    losses.add(entry.value->lose(
        Problem(ErrorCode::INSTANCE_LOST, kj::str(message)).because(kj::str(cause))));
  }
  return kj::joinPromises(losses.releaseAsArray());
}

kj::Promise<void> EnvironmentActor::abandoned() {
  auto self = kj::addRef(*this);
  co_await ending.with([this]() { return abandonInTurn(); });
}

kj::Promise<void> EnvironmentActor::abandonInTurn() {
  if (!isUnsettled()) co_return;
  beginSettling();  // Also after it could not be told for a while.
  setState(EnvironmentState::RECOVERING);
  auto next =
      row.state == EnvironmentState::FAILED ? EnvironmentState::FAILED : EnvironmentState::STOPPED;
  auto affected = unsettledSessions();
  bool told = lostHere || affected.size() > 0 || episodes->present() != nullptr;
  if (lostHere) {
    co_await settleLosses("the process's helper is gone", "nobody saw how the process ended");
    if (row.state == EnvironmentState::READY) {
      next = EnvironmentState::LOST;
      lastError = Problem(ErrorCode::INSTANCE_LOST, kj::str("the environment's helper is gone"))
                      .advise(kj::str("the next launch starts a new one"))
                      .retryable(RetryHint::SAME_REQUEST_LATER);
    }
  } else {
    co_await settleLosses("the run ended with an earlier daemon",
                          "its helper is gone, and nobody saw how it ended");
  }
  if (told) {
    auto cause =
        Problem(ErrorCode::INSTANCE_LOST,
                kj::str(lostHere ? "the environment's helper ended"
                                 : "the environment's helper ended while no daemon saw it"));
    co_await saw(EpisodeOutcome::TERMINATED, kj::mv(cause), kj::mv(affected), lostGeneration.asPtr());
  }
  lostHere = false;
  if (interruptedCleanup() != nullptr) next = EnvironmentState::CLEANING;
  // The place stays; the next launch brings it up again.
  KJ_IF_MAYBE (problem, co_await conclude(EnvironmentState::RECOVERING, next)) {
    KJ_LOG(WARNING, "a recovery was not noted, the next start repeats it", row.id, *problem);
  }
  tellSettled();
}

kj::Promise<Outcome> EnvironmentActor::takeBack(kj::Own<Attachment> reached,
                                                kj::Own<AgentLink> reachedLink,
                                                kj::Array<InstanceReport> reports) {
  auto self = kj::addRef(*this);
  Outcome outcome;
  co_await ending.with([&]() {
    return takeBackInTurn(kj::mv(reached), kj::mv(reachedLink), kj::mv(reports), outcome);
  });
  co_return kj::mv(outcome);
}

kj::Promise<void> EnvironmentActor::takeBackInTurn(kj::Own<Attachment> reached,
                                                   kj::Own<AgentLink> reachedLink,
                                                   kj::Array<InstanceReport> reports,
                                                   Outcome& outcome) {
  if (!isUnsettled()) co_return;
  beginSettling();  // Also after it could not be told for a while.
  setState(EnvironmentState::RECOVERING);
  row.workspace = kj::str(reached->workspace());
  attachment = kj::mv(reached);
  noteGeneration(*KJ_ASSERT_NONNULL(attachment), *reachedLink);
  use(kj::mv(reachedLink));
  co_await settleInstances(kj::mv(reports), outcome);
}

kj::Promise<void> EnvironmentActor::settleInstances(kj::Array<InstanceReport> reports,
                                                    Outcome& outcome) {
  for (auto& report: reports) {
    kj::Maybe<kj::Own<RunActor>> owner;
    KJ_IF_MAYBE (session, sessions.find(report.sessionId)) {
      KJ_IF_MAYBE (run, (*session)->findRun(report.id)) {
        owner = kj::mv(*run);
      }
    }
    KJ_IF_MAYBE (run, owner) {
      // Nothing runs on after its end was told.
      co_await (*run)->whileSettling();
      if (report.running && !(*run)->isLive()) owner = nullptr;
    }
    KJ_IF_MAYBE (run, owner) {
      // One session's failure touches no other; what is not known stays unsettled, for another try.
      auto id = kj::str((*run)->sessionId());
      KJ_IF_MAYBE (problem, co_await takeBackOne(kj::mv(*run), kj::mv(report))) {
        KJ_LOG(WARNING, "a session could not be taken back", row.id, id, *problem);
        outcome = kj::mv(*problem);
      }
    } else {
      KJ_LOG(WARNING, "an instance that no record names is ended", row.id, report.id);
      co_await discardStray(kj::str(report.id));
    }
  }
  if (outcome != nullptr) co_return;
  auto affected = unsettledSessions();
  bool replaced = lostGeneration.size() > 0 && lostGeneration != row.generation;
  if (replaced) {
    co_await saw(EpisodeOutcome::RESTARTED,
                 Problem(ErrorCode::INSTANCE_LOST,
                         kj::str("another helper stands in the place of the one before")),
                 kj::mv(affected), lostGeneration.asPtr());
  } else if (affected.size() > 0) {
    co_await saw(EpisodeOutcome::UNKNOWN,
                 Problem(ErrorCode::INSTANCE_LOST, kj::str("runs ended while nobody saw how")),
                 kj::mv(affected), row.generation.asPtr());
  }
  co_await settleLosses("the run ended while nobody watched it",
                        "its helper does not know it any more");
  // A bring-up that was interrupted is not finished by having its helper.
  auto next = row.state == EnvironmentState::FAILED                    ? EnvironmentState::FAILED
              : row.prepared && row.state != EnvironmentState::STOPPED ? EnvironmentState::READY
                                                                       : EnvironmentState::STOPPED;
  if (next != EnvironmentState::FAILED) lastError = nullptr;
  lostHere = false;
  co_await saw(EpisodeOutcome::HEALTHY);
  if (interruptedCleanup() != nullptr) next = EnvironmentState::CLEANING;
  KJ_IF_MAYBE (problem, co_await conclude(EnvironmentState::RECOVERING, next)) {
    KJ_LOG(WARNING, "a recovery was not noted, the next start repeats it", row.id, *problem);
  }
  tellSettled();
  checkLink();
}

kj::Promise<Outcome> EnvironmentActor::takeBackOne(kj::Own<RunActor> run, InstanceReport report) {
  if (run->isLive() && !run->isUnsettled()) co_return nullptr;  // By an earlier try.
  auto found = co_await KJ_ASSERT_NONNULL(link)->find(kj::str(report.id));
  if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
  auto process = kj::refcounted<ProcessActor>(
      services, kj::mv(found.get<kj::Own<AgentInstance>>()),
      KJ_MAP(word, run->status().command) { return kj::str(word); });
  if (report.running || report.exit != nullptr) {
    process->takeOver(report.pid, report.startedAt);
    co_return co_await run->takeBack(kj::mv(process));
  }
  // It was never started, or could not be: nobody will start it any more.
  if (run->isUnsettled()) {
    auto why = Problem(ErrorCode::CANCELLED, kj::str("the daemon ended before it was started"));
    KJ_IF_MAYBE (problem, report.error) {
      why = kj::mv(*problem);
    }
    co_await run->lose(kj::mv(why));
  }
  co_return co_await process->discard();
}

kj::Promise<void> EnvironmentActor::discardStray(kj::String instanceId) {
  auto helper = kj::addRef(*KJ_ASSERT_NONNULL(link));
  auto found = co_await helper->find(kj::str(instanceId));
  auto outcome = found.is<Problem>() ? Outcome(kj::mv(found.get<Problem>())) : nullptr;
  if (outcome == nullptr) {
    auto process = kj::refcounted<ProcessActor>(
        services, kj::mv(found.get<kj::Own<AgentInstance>>()), kj::Array<kj::String>());
    outcome = co_await process->discard();
  }
  KJ_IF_MAYBE (problem, outcome) {
    KJ_LOG(WARNING, "could not end an instance that no record names", row.id, instanceId, *problem);
  }
}

}  // namespace capstan
