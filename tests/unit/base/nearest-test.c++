#include "base/nearest.h"

#include "support/test.h"

namespace capstan {

TEST_CASE("the nearest known word is offered, and nothing that is a guess") {
  constexpr kj::StringPtr KNOWN[] = {"stop_grace"_kj, "launch"_kj, "labels"_kj, "--json"_kj};
  auto nearest = [&](kj::StringPtr word) { return nearestWord(word, KNOWN).orDefault("none"_kj); };
  CHECK(nearest("lunch") == "launch");
  CHECK(nearest("label") == "labels");
  CHECK(nearest("--jsno") == "--json");
  CHECK(nearest("stopGrace") == "stop_grace");
  CHECK(nearest("STOP-GRACE") == "stop_grace");
  CHECK(nearest("stop_time") == "none");
  CHECK(nearest("") == "none");
  CHECK(nearest("--") == "none");
  auto longer = kj::str(kj::repeat('-', 60), "launch");
  CHECK(nearest(longer) == "none");
}

}  // namespace capstan
