#pragma once

#include "domain/episode.h"
#include "store/database-connection.h"

namespace capstan {

// Episodes of environments: of each the last ones, of which at most one goes on.
class EpisodeTable {
public:
  explicit EpisodeTable(Connection& db): db(db) {}

  // A new one, or what has become of a known one; beyond EPISODES_KEPT the oldest that are over go.
  // notFound without its environment; wrongState while another of the environment goes on.
  Outcome put(const EpisodeRecord& record);
  // Of one environment, oldest first.
  kj::Vector<EpisodeRecord> list(kj::StringPtr environmentId);

private:
  Connection& db;
};

}  // namespace capstan
