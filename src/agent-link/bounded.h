#pragma once
// How every call of the helper becomes a Result: its deadline, its exceptions and its error field
// all turn into Problems whose source is "agentctl".

#include "agent-link/convert.h"

#include <kj/timer.h>

namespace capstan {

// `work` with exceptions as Problems, without a deadline.
template <typename T>
kj::Promise<Result<T>> settled(kj::Promise<Result<T>> work) {
  return work.catch_(
      [](kj::Exception&& e) -> Result<T> { return asProblem(e).from("agentctl", kj::String()); });
}

// `work`, dropped after `limit`.
template <typename T>
kj::Promise<Result<T>> bounded(kj::Timer& timer, kj::Duration limit, kj::Promise<Result<T>> work) {
  return settled(kj::mv(work)).exclusiveJoin(timer.afterDelay(limit).then([limit]() -> Result<T> {
    return Problem(ErrorCode::TIMEOUT,
                   kj::str("the helper did not answer within ", limit / kj::SECONDS, " s"))
        .from("agentctl", kj::String())
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }));
}

// Sends a request whose only result is `error`.
template <typename Request>
kj::Promise<Outcome> ask(kj::Timer& timer, kj::Duration limit, Request&& request) {
  struct Nothing {};
  auto work = request.send().then([](auto&& response) -> Result<Nothing> {
    KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
      return kj::mv(*problem);
    }
    return Nothing{};
  });
  return bounded<Nothing>(timer, limit, kj::mv(work)).then([](Result<Nothing>&& result) -> Outcome {
    if (result.template is<Problem>()) return kj::mv(result.template get<Problem>());
    return nullptr;
  });
}

}  // namespace capstan
