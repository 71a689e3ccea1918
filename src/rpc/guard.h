#pragma once
// The line with which every method begins, and how a Problem becomes a method's answer.

#include "base/problem.h"
#include "domain/rights.h"
#include "error.capnp.h"
#include "wire/rpc-limits.h"

namespace capstan {

void write(rpc::Error::Builder out, const Problem& problem);

// Fills `error` and puts the same failure into every capability result, so that pipelined calls
// fail readably.
template <typename Results>
void fail(Results results, const Problem& problem) {
  write(results.initError(), problem);
  auto broken = [&]() { return asException(problem); };
  if constexpr (requires { results.setEnvironment(broken()); }) results.setEnvironment(broken());
  if constexpr (requires { results.setSession(broken()); }) results.setSession(broken());
  if constexpr (requires { results.setRun(broken()); }) results.setRun(broken());
  if constexpr (requires { results.setInstance(broken()); }) results.setInstance(broken());
  if constexpr (requires { results.setStdin(broken()); }) results.setStdin(broken());
  if constexpr (requires { results.setSubscription(broken()); }) {
    results.setSubscription(broken());
  }
  if constexpr (requires { results.setSupervisor(broken()); }) results.setSupervisor(broken());
  if constexpr (requires { results.setAdmin(broken()); }) results.setAdmin(broken());
}

// As fail() for methods without an `error` result: throws.
template <typename Results>
void failOrThrow(Results results, const Problem& problem) {
  if constexpr (requires { results.initError(); }) {
    fail(results, problem);
  } else {
    kj::throwFatalException(asException(problem));
  }
}

// What one reference may do on one connection. Copied by clone() into every capability that is
// handed out through it.
class Guard {
public:
  Guard(kj::Own<CallMeter> meter, Rights rights)
      : meter(kj::mv(meter)), holdings(kj::refcounted<Holdings>()), held(rights) {}

  Guard clone() { return Guard(kj::addRef(*meter), kj::addRef(*holdings), held); }
  Rights rights() const { return held; }

  // The first line of every method:
  //   if (guard.refuses(ruleOf("Interface.method"), context)) co_return;
  // Throws *overloaded* when the connection has too many calls in flight; answers `denied` when
  // the right is missing.
  template <typename Context>
  bool refuses(MethodRule rule, Context& context) {
    if (rule.whenBusy == WhenBusy::REFUSED) meter->admit();
    if (held.has(rule.right)) return false;
    auto right = rightName(rule.right);
    failOrThrow(context.getResults(),
                Problem(ErrorCode::DENIED, kj::str("this reference does not allow ",
                                                   kj::StringPtr(rule.method.data())))
                    .because(kj::str("it lacks the right '", kj::StringPtr(right.data()), "'"))
                    .advise(kj::str("ask who shared it for a reference with that right")));
    return true;
  }

  // A place for one more watcher of this connection, until the result is dropped.
  Result<kj::Own<void>> takeWatcher(size_t most) {
    if (holdings->watchers >= most) {
      return Problem(ErrorCode::RESOURCE_EXHAUSTED,
                     kj::str("one connection has at most ", most, " watchers"))
          .advise(kj::str("drop a subscription, or watch all environments with one"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    }
    ++holdings->watchers;
    auto count = kj::addRef(*holdings);
    auto& watchers = count->watchers;
    return kj::Own<void>(kj::heap(kj::defer([&watchers]() { --watchers; })).attach(kj::mv(count)));
  }

private:
  // What all capabilities of one connection hold together.
  struct Holdings final: public kj::Refcounted {
    size_t watchers = 0;
  };

  kj::Own<CallMeter> meter;
  kj::Own<Holdings> holdings;
  Rights held;

  Guard(kj::Own<CallMeter> meter, kj::Own<Holdings> holdings, Rights rights)
      : meter(kj::mv(meter)), holdings(kj::mv(holdings)), held(rights) {}
};

}  // namespace capstan
