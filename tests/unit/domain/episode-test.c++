#include "domain/episode.h"

#include "domain/evidence.h"
#include "support/test.h"

#include <string>

namespace capstan {

namespace {

Observation saw(EpisodeOutcome outcome, kj::StringPtr generation, kj::StringPtr why = "",
                UnixMs at = 1000) {
  Observation seen;
  seen.outcome = outcome;
  seen.generation = kj::str(generation);
  seen.at = at;
  if (why.size() > 0) seen.cause = Problem(ErrorCode::INSTANCE_LOST, kj::str(why));
  return seen;
}

// The history of one environment, as core keeps it.
struct History {
  kj::Vector<EpisodeRecord> all;
  int made = 0;

  // How many records had to be written.
  size_t see(Observation seen) {
    auto news = episodesAfter(all, seen, kj::str("ep-", made + 1));
    for (auto& each: news) {
      bool known = false;
      for (auto& old: all) {
        if (old.id != each.id) continue;
        old = each.clone();
        known = true;
      }
      if (known) continue;
      ++made;
      all.add(each.clone());
    }
    return news.size();
  }
  EpisodeRecord& last() { return all.back(); }
};

bool has(kj::StringPtr text, const char* what) {
  return std::string(text.cStr()).find(what) != std::string::npos;
}

constexpr auto UNKNOWN = EpisodeOutcome::UNKNOWN;
constexpr auto TERMINATED = EpisodeOutcome::TERMINATED;
constexpr auto HEALTHY = EpisodeOutcome::HEALTHY;

}  // namespace

TEST_CASE("episode: one loss is one, however often it is noticed") {
  History history;
  auto seen = saw(TERMINATED, "a", "it ended");
  seen.affected.add(kj::str("s-1"));
  CHECK(history.see(kj::mv(seen)) == 1);
  seen = saw(TERMINATED, "a", "it ended", 2000);
  seen.affected.add(kj::str("s-1"));
  CHECK(history.see(kj::mv(seen)) == 0);
  CHECK(history.see(saw(UNKNOWN, "", "it ended")) == 0);
  CHECK(history.see(saw(TERMINATED, "a", "it ended, in other words")) == 0);
  REQUIRE(history.all.size() == 1);
  CHECK(history.last().startedAt == 1000);
  CHECK(history.last().affected.size() == 1);
  // A second session of it is told of later.
  seen = saw(TERMINATED, "a", "it ended", 2000);
  seen.affected.add(kj::str("s-2"));
  CHECK(history.see(kj::mv(seen)) == 1);
  CHECK(history.all.size() == 1);
  CHECK(history.last().affected.size() == 2);
}

TEST_CASE("episode: what could not be told becomes what is confirmed, never the reverse") {
  History history;
  history.see(saw(UNKNOWN, "a", "no answer"));
  CHECK(history.see(saw(TERMINATED, "a", "it was killed")) == 1);
  CHECK(history.last().outcome == TERMINATED);
  CHECK(history.last().cause.message == "it was killed");
  REQUIRE(history.last().blockers.size() == 1);
  CHECK(history.last().blockers[0].message == "no answer");
  history.see(saw(UNKNOWN, "a", "no route"));
  CHECK(history.last().outcome == TERMINATED);
  CHECK(history.last().cause.message == "it was killed");
  CHECK(history.last().blockers.size() == 2);
  CHECK(history.see(saw(EpisodeOutcome::MISSING, "a", "no route")) == 0);
  CHECK(history.last().outcome == TERMINATED);
}

TEST_CASE("episode: a recovery ends it and keeps it") {
  History history;
  CHECK(history.see(saw(HEALTHY, "a")) == 0);
  CHECK(history.all.size() == 0);
  history.see(saw(UNKNOWN, "a", "no answer"));
  CHECK(history.see(saw(HEALTHY, "a", "", 5000)) == 1);
  CHECK(history.last().outcome == HEALTHY);
  CHECK(history.last().endedAt == 5000);
  CHECK(history.see(saw(HEALTHY, "a", "", 6000)) == 0);
  // The next one is another.
  history.see(saw(TERMINATED, "a", "it ended", 7000));
  history.see(saw(HEALTHY, "b", "", 6500));
  REQUIRE(history.all.size() == 2);
  CHECK(history.last().outcome == TERMINATED);
  CHECK(history.last().endedAt == 7000);  // Not before it began, whatever the clock says.
}

TEST_CASE("episode: late evidence of a compute touches neither its history nor its successor") {
  History history;
  history.see(saw(TERMINATED, "a", "it ended"));
  history.see(saw(HEALTHY, "b"));
  CHECK(history.see(saw(TERMINATED, "a", "it ended, says another")) == 0);
  CHECK(history.see(saw(UNKNOWN, "a", "late")) == 0);
  CHECK(history.all.size() == 1);
  history.see(saw(UNKNOWN, "b", "no answer"));
  CHECK(history.see(saw(TERMINATED, "a", "late again")) == 0);
  REQUIRE(history.all.size() == 2);
  CHECK(history.last().blockers.size() == 0);
}

TEST_CASE("episode: another compute's loss is another episode") {
  History history;
  history.see(saw(UNKNOWN, "a", "no answer"));
  CHECK(history.see(saw(TERMINATED, "b", "it ended", 3000)) == 2);
  REQUIRE(history.all.size() == 2);
  CHECK(history.all[0].endedAt == 3000);
  CHECK(history.all[1].generation == "b");
  CHECK(history.all[1].endedAt == 0);
}

TEST_CASE("episode: its evidence is bounded and clean") {
  History history;
  std::string much(100'000, 'x');
  history.see(saw(UNKNOWN, "a", kj::str("TOKEN=hunter2 ", much.c_str())));
  for (int i = 0; i < 100; ++i)
    history.see(saw(UNKNOWN, "a", kj::str("/home/ann/", i, " ", i, much.c_str())));
  CHECK(history.last().blockers.size() == EPISODE_BLOCKERS);
  size_t octets = history.last().cause.message.size();
  for (auto& each: history.last().blockers) {
    octets += each.message.size();
    CHECK_FALSE(has(each.message, "ann"));
  }
  CHECK(octets <= EVIDENCE_BYTES);
  CHECK_FALSE(has(history.last().cause.message, "hunter2"));
}

}  // namespace capstan
