#include "base/problem.h"

#include <capnp/schema.h>

namespace capstan {

namespace {

kj::String copy(const kj::String& text) {
  return text == nullptr ? kj::String() : kj::heapString(text);
}

}  // namespace

Problem Problem::clone() const {
  Problem result(code, copy(message));
  result.cause = copy(cause);
  result.hint = copy(hint);
  result.field = copy(field);
  result.source = copy(source);
  result.upstreamCode = copy(upstreamCode);
  result.retry = retry;
  result.retryAfterMs = retryAfterMs;
  return result;
}

Problem&& Problem::because(kj::String text) && {
  cause = kj::mv(text);
  return kj::mv(*this);
}

Problem&& Problem::advise(kj::String text) && {
  hint = kj::mv(text);
  return kj::mv(*this);
}

Problem&& Problem::at(kj::String path) && {
  field = kj::mv(path);
  return kj::mv(*this);
}

Problem&& Problem::from(kj::StringPtr system, kj::String theirCode) && {
  source = kj::heapString(system);
  upstreamCode = kj::mv(theirCode);
  return kj::mv(*this);
}

Problem&& Problem::retryable(RetryHint how, uint64_t afterMs) && {
  retry = how;
  retryAfterMs = afterMs;
  return kj::mv(*this);
}

kj::String KJ_STRINGIFY(const Problem& problem) {
  auto text = kj::str(problem.message);
  if (problem.cause.size() > 0) text = kj::str(text, ": ", problem.cause);
  if (problem.hint.size() > 0) text = kj::str(text, " (", problem.hint, ")");
  return text;
}

kj::StringPtr errorCodeName(ErrorCode code) {
  auto all = capnp::Schema::from<ErrorCode>().getEnumerants();
  auto index = static_cast<size_t>(code);
  return index < all.size() ? all[index].getProto().getName() : "internal"_kj;
}

kj::Exception asException(const Problem& problem) {
  return kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::str(problem));
}

Problem asProblem(const kj::Exception& exception) {
  auto text = kj::str(exception.getDescription());
  switch (exception.getType()) {
    case kj::Exception::Type::DISCONNECTED:
      return Problem(ErrorCode::UNREACHABLE, kj::mv(text)).retryable(RetryHint::SAME_REQUEST_LATER);
    case kj::Exception::Type::OVERLOADED:
      return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::mv(text))
          .retryable(RetryHint::SAME_REQUEST_LATER);
    case kj::Exception::Type::UNIMPLEMENTED:
      return Problem(ErrorCode::UNSUPPORTED, kj::mv(text));
    case kj::Exception::Type::FAILED:
      break;
  }
  return Problem(ErrorCode::INTERNAL, kj::mv(text));
}

}  // namespace capstan
