#pragma once

#include "core/change-hub.h"
#include "core/environment-ledger.h"
#include "domain/episode.h"

#include <deque>

namespace capstan {

// The episodes of one environment: what is noticed of its compute becomes durable, then is shown.
class EpisodeKeeper final: private kj::TaskSet::ErrorHandler {
public:
  // `services` outlives it. `known`: those of the store, oldest first.
  EpisodeKeeper(Services& services, kj::Own<EnvironmentLedger> ledger, kj::Own<ChangeHub> changes,
                kj::Vector<EpisodeRecord> known);
  ~EpisodeKeeper() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(EpisodeKeeper);

  // Oldest first.
  kj::ArrayPtr<const EpisodeRecord> all() const { return known; }
  // The one that goes on; null = none.
  kj::Maybe<const EpisodeRecord&> present() const;

  // In the order of the calls. Resolves when what is new of it was written and is shown, or could
  // not be written at once: that is tried again until it can be. Dropping the promise changes
  // nothing.
  kj::Promise<void> saw(Observation seen);

private:
  // What waits is bounded: a store that takes nothing for long learns the latest then.
  static constexpr size_t MOST_WAITING = 64;
  struct Waiting {
    Observation seen;
    kj::Own<kj::PromiseFulfiller<void>> tried;
  };

  Services& services;
  kj::Own<EnvironmentLedger> ledger;
  kj::Own<ChangeHub> changes;
  kj::Vector<EpisodeRecord> known;
  std::deque<kj::Own<Waiting>> waiting;  // The first is being written.
  bool writing = false;
  kj::TaskSet tasks;  // Last.

  kj::Promise<void> writeAll();
  void show(kj::Vector<EpisodeRecord> news);
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
