#include "core/environment-ledger.h"

#include "base/async.h"
#include "domain/evidence.h"
#include "domain/outcomes.h"
#include "store/environment-table.h"
#include "store/episode-table.h"
#include "store/inventory-table.h"
#include "store/profile-table.h"
#include "store/run-table.h"
#include "store/running-record-table.h"
#include "store/secret-table.h"
#include "store/session-table.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// What a row carries besides its texts, for the bound of the store's queue.
constexpr size_t ROW_BYTES = 512;
constexpr size_t SESSION_PAGE = 1000;

// One a session, whichever run saved it.
kj::String resumeTokenId(kj::StringPtr sessionId) { return kj::str("resume-", sessionId); }

void removeResumeToken(Connection& db, kj::StringPtr sessionId) {
  // Most sessions never had one.
  KJ_IF_MAYBE (problem, SecretTable(db).remove(resumeTokenId(sessionId))) {
    if (problem->code != ErrorCode::NOT_FOUND) KJ_LOG(WARNING, "a resume token stays", *problem);
  }
}

size_t sizeOf(const LaunchSpec& spec) {
  size_t bytes = ROW_BYTES;
  for (auto& word: spec.command)
    bytes += word.size();
  for (auto& word: spec.resumeCommand)
    bytes += word.size();
  for (auto& variable: spec.variables)
    bytes += variable.key.size() + variable.literal.size() + variable.secret.size();
  return bytes;
}

size_t sizeOf(kj::ArrayPtr<const PrepareStep> steps) {
  size_t bytes = ROW_BYTES;
  for (auto& step: steps)
    bytes += step.output.size() + step.error.size() + step.command.size() + step.name.size();
  return bytes;
}

}  // namespace

EnvironmentLedger::EnvironmentLedger(Services& services, kj::String environmentId,
                                     kj::String runtime, kj::Vector<InventoryItem> inventory)
    : services(services),
      id(kj::mv(environmentId)),
      runtime(kj::mv(runtime)),
      items(kj::mv(inventory)),
      notes(*this) {}

EnvironmentLedger::~EnvironmentLedger() noexcept(false) {}

// ---- the environment's row

kj::Promise<Outcome> EnvironmentLedger::add(EnvironmentRecord record) {
  return services.store.write([record = kj::mv(record)](Connection& db) -> Outcome {
    // It may have been removed since it was chosen.
    bool chosen = record.profileId.size() > 0;
    if (chosen && ProfileTable(db).find(record.profileId) == nullptr) {
      return Problem(ErrorCode::NOT_FOUND, kj::str("no profile '", record.profileId, "' any more"))
          .at(kj::str("spec.profileId"));
    }
    return EnvironmentTable(db).add(record);
  });
}

kj::Promise<Outcome> EnvironmentLedger::change(Change change) {
  size_t bytes = ROW_BYTES;
  KJ_IF_MAYBE (steps, change.steps) {
    bytes += sizeOf(*steps);
  }
  return services.store.write(
      [id = kj::str(id), change = kj::mv(change), at = services.now()](Connection& db) -> Outcome {
        EnvironmentTable::Change row;
        row.state = change.state;
        row.prepared = change.prepared;
        row.at = at;
        KJ_IF_MAYBE (workspace, change.workspace) {
          row.workspace = workspace->asPtr();
        }
        KJ_IF_MAYBE (problem, change.lastError) {
          row.lastError = *problem;
        }
        KJ_IF_MAYBE (steps, change.steps) {
          row.steps = steps->asPtr();
        }
        KJ_IF_MAYBE (scope, change.cleanupScope) {
          row.cleanupScope = scope->asPtr();
        }
        KJ_IF_MAYBE (generation, change.generation) {
          row.generation = generation->asPtr();
        }
        auto changed = EnvironmentTable(db).change(id, row);
        if (changed.is<Problem>()) return kj::mv(changed.get<Problem>());
        return nullptr;
      },
      bytes);
}

kj::Promise<Outcome> EnvironmentLedger::noteEpisodes(kj::Vector<EpisodeRecord> episodes) {
  size_t bytes = ROW_BYTES;
  for (auto& each: episodes) {
    each.environmentId = kj::str(id);
    bytes += EVIDENCE_BYTES;
    for (auto& session: each.affected)
      bytes += session.size();
  }
  return services.store.write(
      [episodes = kj::mv(episodes)](Connection& db) -> Outcome {
        for (auto& each: episodes) {
          KJ_IF_MAYBE (problem, EpisodeTable(db).put(each)) {
            return kj::mv(*problem);
          }
        }
        return nullptr;
      },
      bytes);
}

kj::Promise<Outcome> EnvironmentLedger::remove() {
  return services.store.write([id = kj::str(id)](Connection& db) -> Outcome {
    kj::String after;
    for (;;) {
      auto page = SessionTable(db).list(id, after, SESSION_PAGE);
      for (auto& session: page)
        removeResumeToken(db, session.id);
      if (page.size() < SESSION_PAGE) break;
      after = kj::str(page.back().id);
    }
    return EnvironmentTable(db).remove(id);
  });
}

// ---- its inventory

kj::Vector<InventoryItem> EnvironmentLedger::inventory() const {
  kj::Vector<InventoryItem> result(items.size());
  for (auto& item: items)
    result.add(item.clone());
  return result;
}

// Memory follows what is written, whether or not the caller waits for it.
template <typename T>
kj::Promise<T> EnvironmentLedger::noted(kj::Promise<T> work) {
  auto pair = kj::newPromiseAndFulfiller<T>();
  notes.add(deliver(kj::mv(work), kj::mv(pair.fulfiller)));
  return kj::mv(pair.promise);
}

kj::Promise<Result<uint64_t>> EnvironmentLedger::intend(InventoryItem item) {
  return noted(intendNow(kj::mv(item)));
}

kj::Promise<Outcome> EnvironmentLedger::confirm(uint64_t seq, kj::String identity,
                                                kj::Array<Label> details) {
  return noted(confirmNow(seq, kj::mv(identity), kj::mv(details)));
}

kj::Promise<Outcome> EnvironmentLedger::forget(uint64_t seq) { return noted(forgetNow(seq)); }

kj::Promise<Result<uint64_t>> EnvironmentLedger::intendNow(InventoryItem item) {
  item.environmentId = kj::str(id);
  item.runtime = kj::str(runtime);
  auto at = services.now();
  item.createdAt = item.changedAt = at;
  auto written = co_await services.store.write(
      [item = item.clone(), at](Connection& db) { return InventoryTable(db).intend(item, at); });
  if (written.is<uint64_t>()) {
    item.seq = written.get<uint64_t>();
    items.add(kj::mv(item));
  }
  co_return kj::mv(written);
}

kj::Promise<Outcome> EnvironmentLedger::confirmNow(uint64_t seq, kj::String identity,
                                                   kj::Array<Label> details) {
  auto at = services.now();
  auto copied = cloneAll(details);
  auto written = co_await services.store.write(
      [id = kj::str(id), seq, identity = kj::str(identity), details = kj::mv(copied),
       at](Connection& db) { return InventoryTable(db).confirm(id, seq, identity, details, at); });
  if (written == nullptr) {
    for (auto& item: items) {
      if (item.seq != seq) continue;
      item.state = InventoryItem::State::MADE;
      item.identity = kj::mv(identity);
      item.details = kj::mv(details);
      item.changedAt = at;
      break;
    }
  }
  co_return kj::mv(written);
}

kj::Promise<Outcome> EnvironmentLedger::forgetNow(uint64_t seq) {
  auto written = co_await services.store.write(
      [id = kj::str(id), seq](Connection& db) { return InventoryTable(db).remove(id, seq); });
  if (written == nullptr) {
    kj::Vector<InventoryItem> rest;
    for (auto& item: items) {
      if (item.seq != seq) rest.add(kj::mv(item));
    }
    items = kj::mv(rest);
  }
  co_return kj::mv(written);
}

void EnvironmentLedger::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "a note of an environment failed", id, exception);
}

// ---- its sessions

kj::Promise<Outcome> EnvironmentLedger::beginRun(kj::Maybe<SessionRecord> session, RunRecord run,
                                                 RunningRecord running) {
  auto bytes = sizeOf(run.spec);
  return services.store.write(
      [session = kj::mv(session), run = kj::mv(run),
       running = kj::mv(running)](Connection& db) -> Outcome {
        KJ_IF_MAYBE (record, session) {
          KJ_IF_MAYBE (problem, SessionTable(db).add(*record)) {
            return kj::mv(*problem);
          }
        }
        KJ_IF_MAYBE (problem, RunTable(db).add(run)) {
          return kj::mv(*problem);
        }
        if (session == nullptr) {
          SessionTable::Change change;
          change.state = SessionState::STARTING;
          change.at = run.createdAt;
          auto changed = SessionTable(db).change(run.sessionId, change);
          if (changed.is<Problem>()) return kj::mv(changed.get<Problem>());
        }
        auto put = RunningRecordTable(db).put(running);
        if (put.is<Problem>()) return kj::mv(put.get<Problem>());
        return nullptr;
      },
      bytes);
}

namespace {

// The session's state and its running record, together with a change of its run.
Outcome settleSession(Connection& db, kj::StringPtr sessionId, kj::StringPtr runId,
                      SessionState state, kj::Function<void(RunningRecord&)> edit, UnixMs at) {
  RunningRecordTable records(db);
  auto found = records.find(sessionId);
  KJ_IF_MAYBE (record, found) {
    if (record->agentExecutionId != runId) return nullptr;  // A later run has taken over.
  }
  SessionTable::Change change;
  change.state = state;
  change.at = at;
  auto changed = SessionTable(db).change(sessionId, change);
  if (changed.is<Problem>()) return kj::mv(changed.get<Problem>());
  KJ_IF_MAYBE (record, found) {
    edit(*record);
    record->lastSeenAt = at;
    auto put = records.put(*record);
    if (put.is<Problem>()) return kj::mv(put.get<Problem>());
  }
  return nullptr;
}

}  // namespace

kj::Promise<Outcome> EnvironmentLedger::runStarted(kj::String sessionId, kj::String runId,
                                                   int64_t localPid) {
  return services.store.write([sessionId = kj::mv(sessionId), runId = kj::mv(runId), localPid,
                               at = services.now()](Connection& db) -> Outcome {
    KJ_IF_MAYBE (problem, RunTable(db).setRunning(runId, at)) {
      return kj::mv(*problem);
    }
    auto edit = [&](RunningRecord& record) {
      record.status = RunningStatus::RUNNING;
      record.localPid = localPid;
    };
    return settleSession(db, sessionId, runId, SessionState::RUNNING, edit, at);
  });
}

kj::Promise<Outcome> EnvironmentLedger::runEnded(kj::String sessionId, kj::String runId,
                                                 RunOutcome outcome) {
  return services.store.write([sessionId = kj::mv(sessionId), runId = kj::mv(runId),
                               outcome = kj::mv(outcome)](Connection& db) -> Outcome {
    auto applied = RunTable(db).end(runId, outcome);
    if (applied.is<Problem>()) return kj::mv(applied.get<Problem>());
    if (applied.get<RunTable::Applied>() == RunTable::Applied::BEFORE) return nullptr;
    auto edit = [&](RunningRecord& record) {
      record.status = runningStatusAfter(outcome.kind);
      record.localPid = 0;
      KJ_IF_MAYBE (problem, outcome.error) {
        record.errorMessage = kj::str(problem->message);
      }
    };
    return settleSession(db, sessionId, runId, sessionStateAfter(outcome.kind), edit, outcome.at);
  });
}

kj::Promise<Outcome> EnvironmentLedger::removeSession(kj::String sessionId) {
  return services.store.write([sessionId = kj::mv(sessionId)](Connection& db) -> Outcome {
    removeResumeToken(db, sessionId);
    KJ_IF_MAYBE (problem, SessionTable(db).remove(sessionId)) {
      if (problem->code != ErrorCode::NOT_FOUND) return kj::mv(*problem);
    }
    return nullptr;
  });
}

kj::Promise<Outcome> EnvironmentLedger::removeRun(kj::String runId) {
  return services.store.write([runId = kj::mv(runId)](Connection& db) -> Outcome {
    KJ_IF_MAYBE (problem, RunTable(db).remove(runId)) {
      if (problem->code != ErrorCode::NOT_FOUND) return kj::mv(*problem);
    }
    return nullptr;
  });
}

// ---- what the conversation keeps

kj::Promise<Result<LaunchSpec>> EnvironmentLedger::launchOf(kj::String runId) {
  return services.store.read([runId = kj::mv(runId)](Connection& db) -> Result<LaunchSpec> {
    auto found = RunTable(db).find(runId);
    KJ_IF_MAYBE (run, found) {
      return kj::mv(run->spec);
    }
    return Problem(ErrorCode::NOT_FOUND, kj::str("no run '", runId, "'"));
  });
}

kj::Promise<Result<kj::Maybe<SecretBytes>>> EnvironmentLedger::resumeToken(kj::String sessionId) {
  return services.secrets.openOwn(resumeTokenId(sessionId));
}

kj::Promise<Outcome> EnvironmentLedger::saveProgress(kj::String sessionId, SavedProgress progress) {
  SecretRecord secret;
  kj::Array<kj::byte> sealed;
  if (progress.resumeToken.size() > 0) {
    secret.id = resumeTokenId(sessionId);
    secret.kind = SecretRecord::Kind::TOKEN;
    secret.createdAt = secret.updatedAt = services.now();
    auto done = services.secrets.seal(secret.id, progress.resumeToken.asBytes());
    if (done.is<Problem>()) return Outcome(kj::mv(done.get<Problem>()));
    sealed = kj::mv(done.get<kj::Array<kj::byte>>());
  }
  auto bytes = ROW_BYTES + sealed.size() + progress.lastMessageId.size() + progress.context.size();
  return services.store.write(
      [sessionId = kj::mv(sessionId), secret = kj::mv(secret), sealed = kj::mv(sealed),
       runId = kj::mv(progress.runId), lastMessageId = kj::mv(progress.lastMessageId),
       context = kj::mv(progress.context)](Connection& db) -> Outcome {
        // The record holds the name under which the token is sealed, never the token.
        KJ_IF_MAYBE (problem, RunningRecordTable(db).saveProgress(sessionId, runId, secret.id,
                                                                  lastMessageId, context)) {
          return kj::mv(*problem);
        }
        if (secret.id.size() == 0) {
          removeResumeToken(db, sessionId);
          return nullptr;
        }
        SecretRecord record;
        record.id = kj::str(secret.id);
        record.kind = secret.kind;
        record.createdAt = secret.createdAt;
        record.updatedAt = secret.updatedAt;
        SecretTable secrets(db);
        KJ_IF_MAYBE (present, secrets.find(record.id)) {
          record.version = present->version;
          record.createdAt = present->createdAt;
        }
        auto put = secrets.put(record, sealed);
        if (put.is<Problem>()) return kj::mv(put.get<Problem>());
        return nullptr;
      },
      bytes);
}

}  // namespace capstan
