#include "core/episode-keeper.h"

#include "base/backoff.h"

#include <kj/debug.h>

namespace capstan {

EpisodeKeeper::EpisodeKeeper(Services& services, kj::Own<EnvironmentLedger> ledger,
                             kj::Own<ChangeHub> changes, kj::Vector<EpisodeRecord> known)
    : services(services),
      ledger(kj::mv(ledger)),
      changes(kj::mv(changes)),
      known(kj::mv(known)),
      tasks(*this) {}

EpisodeKeeper::~EpisodeKeeper() noexcept(false) {}

kj::Maybe<const EpisodeRecord&> EpisodeKeeper::present() const {
  if (known.size() == 0 || known.back().endedAt != 0) return nullptr;
  return known.back();
}

kj::Promise<void> EpisodeKeeper::saw(Observation seen) {
  if (waiting.empty() && episodesAfter(known, seen, "new").size() == 0) return kj::READY_NOW;
  if (waiting.size() == MOST_WAITING) waiting.erase(waiting.begin() + 1);
  auto pair = kj::newPromiseAndFulfiller<void>();
  waiting.push_back(kj::heap<Waiting>(Waiting{kj::mv(seen), kj::mv(pair.fulfiller)}));
  if (!writing) {
    writing = true;
    tasks.add(writeAll());
  }
  return kj::mv(pair.promise);
}

kj::Promise<void> EpisodeKeeper::writeAll() {
  KJ_DEFER(writing = false);
  Backoff backoff(services.entropy, {.first = 1 * kj::SECONDS});
  while (!waiting.empty()) {
    auto& first = *waiting.front();
    auto news = episodesAfter(known, first.seen, newId(IdKind::EPISODE, services.entropy));
    Outcome outcome;
    if (news.size() > 0) {
      kj::Vector<EpisodeRecord> copies(news.size());
      for (auto& each: news)
        copies.add(each.clone());
      outcome = co_await ledger->noteEpisodes(kj::mv(copies));
    }
    auto tried = kj::mv(waiting.front()->tried);
    KJ_IF_MAYBE (problem, outcome) {
      // One whose row is gone was removed: nobody asks any more.
      if (problem->code != ErrorCode::NOT_FOUND) {
        KJ_LOG(ERROR, "cannot write down an episode, trying again", ledger->environmentId(),
               *problem);
        if (tried.get() != nullptr) tried->fulfill();
        co_await services.timer.afterDelay(backoff.next(services.timer.now()));
        continue;
      }
    } else {
      show(kj::mv(news));
    }
    waiting.pop_front();
    if (tried.get() != nullptr) tried->fulfill();
  }
}

void EpisodeKeeper::show(kj::Vector<EpisodeRecord> news) {
  if (news.size() == 0) return;
  for (auto& each: news) {
    bool found = false;
    for (auto& old: known) {
      if (old.id != each.id) continue;
      old = kj::mv(each);
      found = true;
      break;
    }
    if (!found) known.add(kj::mv(each));
  }
  if (known.size() > EPISODES_KEPT) {
    kj::Vector<EpisodeRecord> rest(EPISODES_KEPT);
    for (auto& each: known.slice(known.size() - EPISODES_KEPT, known.size()))
      rest.add(kj::mv(each));
    known = kj::mv(rest);
  }
  changes->changed();
}

void EpisodeKeeper::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "an episode could not be noted", ledger->environmentId(), exception);
}

}  // namespace capstan
