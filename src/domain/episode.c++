#include "domain/episode.h"

#include "domain/evidence.h"

namespace capstan {

namespace {

// Half for the cause, the rest for the blockers: all of an episode's evidence is bounded.
constexpr size_t CAUSE_BYTES = EVIDENCE_BYTES / 2;
constexpr size_t BLOCKER_BYTES = (EVIDENCE_BYTES - CAUSE_BYTES) / EPISODE_BLOCKERS;

bool isConfirmed(EpisodeOutcome outcome) {
  return outcome != EpisodeOutcome::UNKNOWN && outcome != EpisodeOutcome::HEALTHY;
}

bool isSame(const Problem& a, const Problem& b) {
  return a.code == b.code && a.message == b.message;
}

bool addBlocker(EpisodeRecord& episode, const Problem& cause) {
  if (cause.message.size() == 0 || episode.blockers.size() == EPISODE_BLOCKERS) return false;
  auto shown = evidenceOf(cause, BLOCKER_BYTES);
  if (isSame(shown, evidenceOf(episode.cause, BLOCKER_BYTES))) return false;
  for (auto& each: episode.blockers) {
    if (isSame(shown, each)) return false;
  }
  episode.blockers.add(kj::mv(shown));
  return true;
}

bool addAffected(EpisodeRecord& episode, kj::ArrayPtr<const kj::String> sessions) {
  bool changed = false;
  for (auto& session: sessions) {
    bool known = false;
    for (auto& each: episode.affected)
      known = known || each == session;
    if (known) continue;
    episode.affected.add(kj::str(session));
    changed = true;
  }
  return changed;
}

// True when it says more than before.
bool merge(EpisodeRecord& episode, const Observation& seen) {
  bool changed = addAffected(episode, seen.affected);
  if (episode.generation.size() == 0 && seen.generation.size() > 0) {
    episode.generation = kj::str(seen.generation);
    changed = true;
  }
  if (episode.outcome == EpisodeOutcome::UNKNOWN && isConfirmed(seen.outcome)) {
    auto before = kj::mv(episode.cause);
    episode.outcome = seen.outcome;
    episode.cause = evidenceOf(seen.cause, CAUSE_BYTES);
    addBlocker(episode, before);
    return true;
  }
  // Who confirms it again, in other words, says nothing new.
  if (seen.outcome == episode.outcome && isConfirmed(seen.outcome)) return changed;
  return addBlocker(episode, seen.cause) || changed;
}

void end(EpisodeRecord& episode, UnixMs at) {
  if (episode.outcome == EpisodeOutcome::UNKNOWN) episode.outcome = EpisodeOutcome::HEALTHY;
  episode.endedAt = kj::max(at, episode.startedAt);  // The clock may have been set back.
}

}  // namespace

kj::StringPtr episodeOutcomeName(EpisodeOutcome outcome) {
  switch (outcome) {
    case EpisodeOutcome::HEALTHY:
      return "healthy";
    case EpisodeOutcome::TERMINATED:
      return "terminated";
    case EpisodeOutcome::MISSING:
      return "missing";
    case EpisodeOutcome::RESTARTED:
      return "restarted";
    case EpisodeOutcome::UNKNOWN:
      break;
  }
  return "unknown";
}

EpisodeRecord EpisodeRecord::clone() const {
  EpisodeRecord copy;
  copy.id = kj::str(id);
  copy.environmentId = kj::str(environmentId);
  copy.generation = kj::str(generation);
  copy.outcome = outcome;
  copy.cause = cause.clone();
  for (auto& each: blockers)
    copy.blockers.add(each.clone());
  copy.startedAt = startedAt;
  copy.endedAt = endedAt;
  for (auto& each: affected)
    copy.affected.add(kj::str(each));
  return copy;
}

kj::Vector<EpisodeRecord> episodesAfter(kj::ArrayPtr<const EpisodeRecord> known,
                                        const Observation& seen, kj::StringPtr newId) {
  kj::Vector<EpisodeRecord> result;
  bool goesOn = known.size() > 0 && known.back().endedAt == 0;
  if (seen.outcome == EpisodeOutcome::HEALTHY) {
    if (goesOn) {
      auto over = known.back().clone();
      end(over, seen.at);
      result.add(kj::mv(over));
    }
    return result;
  }
  for (auto& each: known) {
    // A place that was missing may come back, a compute that ended does not.
    bool over = each.endedAt != 0 && (each.outcome == EpisodeOutcome::TERMINATED ||
                                      each.outcome == EpisodeOutcome::RESTARTED);
    if (over && seen.generation.size() > 0 && each.generation == seen.generation) return result;
  }
  if (goesOn) {
    auto present = known.back().clone();
    bool same = seen.generation.size() == 0 || present.generation.size() == 0 ||
                seen.generation == present.generation;
    if (same) {
      if (merge(present, seen)) result.add(kj::mv(present));
      return result;
    }
    end(present, seen.at);
    result.add(kj::mv(present));
  }
  EpisodeRecord next;
  next.id = kj::str(newId);
  next.generation = kj::str(seen.generation);
  next.outcome = seen.outcome;
  next.cause = evidenceOf(seen.cause, CAUSE_BYTES);
  next.startedAt = seen.at;
  addAffected(next, seen.affected);
  result.add(kj::mv(next));
  return result;
}

}  // namespace capstan
