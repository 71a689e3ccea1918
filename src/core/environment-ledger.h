#pragma once

#include "backends/backend.h"
#include "core/services.h"
#include "domain/records.h"

#include <kj/refcount.h>

namespace capstan {

// The durable side of one environment: its row, what was made for it, and the rows of its sessions
// and runs. Every promise resolves when its change is durable, in the order of the calls; a Problem
// is the store's and nothing of the change is stored then. Dropping a promise leaves the change to
// happen. Counted: sessions write through it too.
class EnvironmentLedger final: public kj::Refcounted,
                               public InventoryLog,
                               private kj::TaskSet::ErrorHandler {
public:
  // Services outlive it.
  EnvironmentLedger(Services& services, kj::String environmentId, kj::String runtime,
                    kj::Vector<InventoryItem> inventory = {});
  ~EnvironmentLedger() noexcept(false);

  kj::StringPtr environmentId() const { return id; }

  // ---- the environment's row

  // Its first record; the rest needs it to be there.
  kj::Promise<Outcome> add(EnvironmentRecord record);
  struct Change {
    kj::Maybe<EnvironmentState> state;
    kj::Maybe<kj::String> workspace;
    kj::Maybe<kj::Maybe<Problem>> lastError;
    kj::Maybe<kj::Vector<PrepareStep>> steps;
    kj::Maybe<bool> prepared;
    kj::Maybe<kj::String> cleanupScope;
    kj::Maybe<kj::String> generation;
  };
  kj::Promise<Outcome> change(Change change);
  // What is new of its episodes, in one commit.
  kj::Promise<Outcome> noteEpisodes(kj::Vector<EpisodeRecord> episodes);
  // With everything of its sessions; wrongState while the inventory names anything.
  kj::Promise<Outcome> remove();

  // ---- its inventory

  // What is noted, durably, oldest first.
  kj::Vector<InventoryItem> inventory() const;
  kj::Promise<Result<uint64_t>> intend(InventoryItem item) override;
  kj::Promise<Outcome> confirm(uint64_t seq, kj::String identity,
                               kj::Array<Label> details) override;
  kj::Promise<Outcome> forget(uint64_t seq) override;
  // Resolves when every note is in inventory() or refused, also those whose caller has gone. One
  // caller at a time.
  kj::Promise<void> settled() { return notes.onEmpty(); }

  // ---- its sessions

  // A run in state STARTING with its running record, and its session if that is new (else that is
  // `starting` again): one commit.
  kj::Promise<Outcome> beginRun(kj::Maybe<SessionRecord> session, RunRecord run,
                                RunningRecord running);
  kj::Promise<Outcome> runStarted(kj::String sessionId, kj::String runId, int64_t localPid);
  // The first outcome counts; another one later changes nothing.
  kj::Promise<Outcome> runEnded(kj::String sessionId, kj::String runId, RunOutcome outcome);
  // With all its rows; an absent one counts as removed.
  kj::Promise<Outcome> removeSession(kj::String sessionId);
  kj::Promise<Outcome> removeRun(kj::String runId);

  // What run `runId` was to be; notFound without its row.
  kj::Promise<Result<LaunchSpec>> launchOf(kj::String runId);
  // Compare-and-set: wrongState when another run has taken over. The token is sealed; empty = none.
  kj::Promise<Outcome> saveProgress(kj::String sessionId, SavedProgress progress);
  // What was saved last; null = none.
  kj::Promise<Result<kj::Maybe<SecretBytes>>> resumeToken(kj::String sessionId);

private:
  Services& services;
  kj::String id;
  kj::String runtime;
  kj::Vector<InventoryItem> items;
  kj::TaskSet notes;  // Last. None holds a reference to this.

  template <typename T>
  kj::Promise<T> noted(kj::Promise<T> work);
  kj::Promise<Result<uint64_t>> intendNow(InventoryItem item);
  kj::Promise<Outcome> confirmNow(uint64_t seq, kj::String identity, kj::Array<Label> details);
  kj::Promise<Outcome> forgetNow(uint64_t seq);
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
