#include "store/state-lock.h"

#include "support/test.h"

#include <string_view>
#include <unistd.h>

namespace capstan {

TEST_CASE("a second owner of a state folder is told who has it") {
  test::TempDir temp;
  {
    auto first = StateLock::take(temp.path());
    REQUIRE(first.is<StateLock>());
    auto second = StateLock::take(temp.path());
    REQUIRE(second.is<Problem>());
    auto& problem = second.get<Problem>();
    CHECK(problem.code == ErrorCode::STATE_LOCKED);
    auto owner = kj::str("pid ", getpid(), ", started 20");
    CHECK(problem.cause.startsWith(owner));
  }
  CHECK(StateLock::take(temp.path()).is<StateLock>());
}

TEST_CASE("a lock that is a symbolic link is refused and not followed") {
  test::TempDir temp;
  auto target = temp / "elsewhere";
  auto link = temp / "lock";
  REQUIRE(symlink(target.cStr(), link.cStr()) == 0);
  CHECK(StateLock::take(temp.path()).get<Problem>().code == ErrorCode::DENIED);
  CHECK(access(target.cStr(), F_OK) != 0);
}

}  // namespace capstan
