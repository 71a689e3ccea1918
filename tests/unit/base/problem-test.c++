#include "base/problem.h"

#include "support/test.h"

namespace capstan {

TEST_CASE("a problem is shown as message, cause and hint") {
  CHECK(kj::str(Problem(ErrorCode::NOT_FOUND, kj::str("no environment 'x'"))) ==
        "no environment 'x'");
  auto full = Problem(ErrorCode::PORT_IN_USE, kj::str("cannot listen"))
                  .because(kj::str("port 80 is taken"))
                  .advise(kj::str("choose another"));
  CHECK(kj::str(full) == "cannot listen: port 80 is taken (choose another)");
  CHECK(kj::str(full.clone()) == kj::str(full));
}

TEST_CASE("error codes are named as in the schema") {
  CHECK(errorCodeName(ErrorCode::NOT_FOUND) == "notFound");
  CHECK(errorCodeName(ErrorCode::HOST_KEY_TYPE_UNKNOWN) == "hostKeyTypeUnknown");
  CHECK(errorCodeName(static_cast<ErrorCode>(9999)) == "internal");
}

TEST_CASE("the four kinds of exception keep their meaning as problems") {
  auto lost = asProblem(KJ_EXCEPTION(DISCONNECTED, "gone"));
  CHECK(lost.code == ErrorCode::UNREACHABLE);
  CHECK(lost.retry == RetryHint::SAME_REQUEST_LATER);
  CHECK(asProblem(KJ_EXCEPTION(OVERLOADED, "busy")).code == ErrorCode::RESOURCE_EXHAUSTED);
  CHECK(asProblem(KJ_EXCEPTION(UNIMPLEMENTED, "old")).code == ErrorCode::UNSUPPORTED);
  CHECK(asProblem(KJ_EXCEPTION(FAILED, "bug")).code == ErrorCode::INTERNAL);
}

}  // namespace capstan
