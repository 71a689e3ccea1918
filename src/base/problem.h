#pragma once
// A foreseen failure as a value, and how it becomes an exception where only exceptions travel.

#include "error.capnp.h"

#include <kj/debug.h>
#include <kj/exception.h>
#include <kj/one-of.h>
#include <kj/string.h>

namespace capstan {

using rpc::ErrorCode;
using rpc::RetryHint;

// A foreseen failure of the domain. Crosses layers as a value and the wire as rpc::Error, whose
// field comments hold here too. Never holds a secret. Null strings mean "not given".
struct Problem {
  ErrorCode code = ErrorCode::INTERNAL;
  kj::String message;       // For people: lower-case start, no full stop.
  kj::String cause;         // Why, when known.
  kj::String hint;          // The next step.
  kj::String field;         // Path of the value at fault.
  kj::String source;        // The other system whose words these are; empty = Capstan.
  kj::String upstreamCode;  // That system's own code.
  RetryHint retry = RetryHint::NEVER;
  uint64_t retryAfterMs = 0;

  Problem() = default;
  Problem(ErrorCode code, kj::String message): code(code), message(kj::mv(message)) {}
  Problem(Problem&&) = default;
  Problem& operator=(Problem&&) = default;

  Problem clone() const;

  // Builders, so that a refusal reads as one expression.
  Problem&& because(kj::String text) &&;
  Problem&& advise(kj::String text) &&;
  Problem&& at(kj::String path) &&;
  Problem&& from(kj::StringPtr system, kj::String code) &&;
  Problem&& retryable(RetryHint how, uint64_t afterMs = 0) &&;
};

// "message: cause (hint)"; what a log line or a broken capability shows.
kj::String KJ_STRINGIFY(const Problem& problem);

// The code's stable lower-camel name, e.g. "notFound".
kj::StringPtr errorCodeName(ErrorCode code);

// The exception that stands for `problem` where only exceptions travel (broken capabilities).
kj::Exception asException(const Problem& problem);

// What an exception means to a caller who is owed a Problem: disconnected -> unreachable (retry),
// overloaded -> resourceExhausted (retry), unimplemented -> unsupported, failed -> internal.
Problem asProblem(const kj::Exception& exception);

// For functions whose failures the caller must handle. Test with result.is<Problem>().
template <typename T>
using Result = kj::OneOf<T, Problem>;

// Success or a Problem, for functions without a value.
using Outcome = kj::Maybe<Problem>;

}  // namespace capstan
