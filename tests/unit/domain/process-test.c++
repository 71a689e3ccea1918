#include "domain/process.h"

#include "support/test.h"

namespace capstan {

TEST_CASE("an exit is reported as a shell does") {
  ExitStatus status;
  status.kind = ExitStatus::Kind::CODE;
  status.code = 3;
  CHECK(status.shellCode() == 3);
  CHECK(kj::str(status) == "exit 3");

  status.kind = ExitStatus::Kind::SIGNAL;
  status.signal = kj::str("KILL");
  CHECK(status.shellCode() == 137);
  CHECK(kj::str(status) == "signal KILL");
  CHECK(status.clone().signal == "KILL");

  status.signal = kj::str("NONSENSE");
  CHECK(status.shellCode() == 255);
  CHECK(ExitStatus().shellCode() == 255);
}

TEST_CASE("signals are known by their names without SIG") {
  CHECK(KJ_ASSERT_NONNULL(signalNumber("TERM")) == 15);
  CHECK(KJ_ASSERT_NONNULL(signalNumber("WINCH")) == 28);
  for (auto bad: {"SIGTERM", "term", "", "15", "RTMIN"})
    CHECK(signalNumber(bad) == nullptr);
  CHECK(signalName(9) == "KILL");
  CHECK(signalName(64) == "64");
}

}  // namespace capstan
