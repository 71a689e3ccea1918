#pragma once
// Episodes: that an environment's compute was lost, or could not be told to be there. From the
// first sign to the recovery it is one, however often and by whomever it is noticed, and it stays
// as history.

#include "base/problem.h"
#include "domain/process.h"

#include <kj/array.h>
#include <kj/string.h>
#include <kj/vector.h>

namespace capstan {

enum class EpisodeOutcome {
  HEALTHY,     // Nothing was lost: it could not be reached for a while.
  TERMINATED,  // The compute is confirmed to have ended.
  MISSING,     // The place itself is confirmed to be gone.
  RESTARTED,   // Another compute stands in its place.
  UNKNOWN,     // It cannot be told yet.
};
// As in the schema: "terminated".
kj::StringPtr episodeOutcomeName(EpisodeOutcome outcome);

struct EpisodeRecord {
  kj::String id;
  kj::String environmentId;
  kj::String generation;  // Of the compute; empty = none was ever known.
  EpisodeOutcome outcome = EpisodeOutcome::UNKNOWN;
  Problem cause;                 // The first that explains the outcome; evidence only.
  kj::Vector<Problem> blockers;  // What else went wrong while it lasted; evidence only.
  UnixMs startedAt = 0;
  UnixMs endedAt = 0;               // 0 = it goes on.
  kj::Vector<kj::String> affected;  // Sessions whose run was lost by it, each once.

  EpisodeRecord clone() const;
};

// Of one environment: more are forgotten, the oldest first.
inline constexpr size_t EPISODES_KEPT = 16;
inline constexpr size_t EPISODE_BLOCKERS = 8;

// Something that was noticed of an environment's compute.
struct Observation {
  EpisodeOutcome outcome = EpisodeOutcome::UNKNOWN;
  kj::String generation;  // Of the compute it is about; empty = whichever was there.
  Problem cause;          // Not of HEALTHY.
  kj::Vector<kj::String> affected;
  UnixMs at = 0;
};

// The episodes that are new or different after `seen`, each to be written down; `known` are those
// so far, oldest first, of which only the last may go on. `newId` names a new one.
// - A confirmed outcome stays, whatever follows; UNKNOWN becomes a confirmed one, or HEALTHY.
// - What does not explain the outcome is a blocker. Texts that were told already say nothing new.
// - What is said of a compute whose loss is over changes nothing, nor that of its successor.
kj::Vector<EpisodeRecord> episodesAfter(kj::ArrayPtr<const EpisodeRecord> known,
                                        const Observation& seen, kj::StringPtr newId);

}  // namespace capstan
