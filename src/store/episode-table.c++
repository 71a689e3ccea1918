#include "store/episode-table.h"

#include "store/environment-table.h"
#include "store/stored-values.h"

namespace capstan {

namespace {

// In the order of EpisodeOutcome.
constexpr kj::StringPtr OUTCOMES[] = {
    "healthy"_kj, "terminated"_kj, "missing"_kj, "restarted"_kj, "unknown"_kj,
};

#define EPISODE_COLUMNS                                                                     \
  "id, environment_id, generation, outcome, evidence_values, affected_values, started_ms, " \
  "ended_ms"

EpisodeRecord read(Query& row) {
  EpisodeRecord record;
  record.id = row.text(0);
  record.environmentId = row.text(1);
  record.generation = row.text(2);
  record.outcome = valueOf<EpisodeOutcome>(row.text(3), OUTCOMES);
  auto evidence = decodeEvidence(row.bytes(4));
  for (auto i: kj::indices(evidence)) {
    if (i == 0) {
      record.cause = kj::mv(evidence[i]);
    } else {
      record.blockers.add(kj::mv(evidence[i]));
    }
  }
  for (auto& session: decodeWords(row.bytes(5)))
    record.affected.add(kj::mv(session));
  record.startedAt = row.integer(6);
  record.endedAt = row.integer(7);
  return record;
}

}  // namespace

Outcome EpisodeTable::put(const EpisodeRecord& record) {
  if (EnvironmentTable(db).find(record.environmentId) == nullptr) {
    return rowNotFound("environment", record.environmentId);
  }
  if (record.endedAt == 0) {
    auto other = db.query(
        "SELECT id FROM episode WHERE environment_id = ? AND ended_ms = 0 AND id <> ? LIMIT 1",
        record.environmentId, record.id);
    if (other.next()) {
      return Problem(ErrorCode::WRONG_STATE,
                     kj::str("the episode '", other.text(0), "' of the environment goes on"));
    }
  }
  kj::Vector<Problem> evidence;
  evidence.add(record.cause.clone());
  for (auto& each: record.blockers)
    evidence.add(each.clone());
  auto evidenceValues = encodeEvidence(evidence);
  auto affected = encodeWords(record.affected);
  db.run("INSERT INTO episode (" EPISODE_COLUMNS
         ") VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
         "generation = excluded.generation, outcome = excluded.outcome, "
         "evidence_values = excluded.evidence_values, affected_values = excluded.affected_values, "
         "ended_ms = excluded.ended_ms",
         record.id, record.environmentId, record.generation, wordOf(record.outcome, OUTCOMES),
         evidenceValues, affected, record.startedAt, record.endedAt);
  db.run(
      "DELETE FROM episode WHERE environment_id = ? AND ended_ms <> 0 AND id NOT IN (SELECT id "
      "FROM "
      "episode WHERE environment_id = ? ORDER BY ended_ms = 0 DESC, started_ms DESC, id DESC "
      "LIMIT ?)",
      record.environmentId, record.environmentId, EPISODES_KEPT);
  return nullptr;
}

kj::Vector<EpisodeRecord> EpisodeTable::list(kj::StringPtr environmentId) {
  kj::Vector<EpisodeRecord> result;
  auto row =
      db.query("SELECT " EPISODE_COLUMNS
               " FROM episode WHERE environment_id = ? ORDER BY ended_ms = 0, started_ms, id "
               "LIMIT ?",
               environmentId, EPISODES_KEPT);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
