#pragma once
// What the cases of the suite have in common.

#include "conformance/backend/backend-fixture.h"

namespace capstan::test {

// One environment with its inventory, as core would keep them.
struct Environment {
  BackendFixture& fixture;
  kj::String id;
  MemoryLog log;
  StepList steps;
  kj::Maybe<kj::String> directory;

  Environment(BackendFixture& fixture, kj::StringPtr id): fixture(fixture), id(kj::str(id)) {}

  PlaceRecord place();
  CreateRequest request(bool reuseRequired = false);
  kj::Promise<Result<kj::Own<Attachment>>> beginCreate() {
    return fixture.backend().createInstance(request(), steps, log);
  }
  Result<kj::Own<Attachment>> create() { return fixture.wait(beginCreate()); }
  // Requires success.
  kj::Own<Attachment> created();
  CleanupReport cleanUp(CleanupScope scope = CleanupScope::ALL);
  // Cleans all up and checks that nothing but `foreign` is there and nothing noted.
  void cleanUpWholly(kj::ArrayPtr<const Thing> foreign);
  StopReport stop(StopMode mode = StopMode::GRACEFUL);
  // The item that holds the files.
  InventoryItem workspaceItem();
};

// The things that neither an item of the environments' names nor `foreign` lists.
kj::Vector<Thing> strays(BackendFixture& fixture, kj::ArrayPtr<Environment* const> environments,
                         kj::ArrayPtr<const Thing> foreign);
void checkNoStrays(Environment& environment, kj::ArrayPtr<const Thing> foreign);
// A completed place: each item MADE and there, and nothing else.
void checkComplete(Environment& environment, kj::ArrayPtr<const Thing> foreign);
void checkSame(kj::ArrayPtr<const Thing> before, kj::ArrayPtr<const Thing> after);

// Turns the loop `turns` times or until the promise is done, then drops it. Whether it was done.
template <typename T>
bool dropAfter(BackendFixture& fixture, kj::Promise<T> promise, size_t turns) {
  bool done = false;
  auto running = promise.then([&](T&&) { done = true; }, [&](kj::Exception&&) { done = true; })
                     .eagerlyEvaluate(nullptr);
  for (size_t i = 0; i < turns && !done; ++i)
    fixture.turn();
  return done;
}

// More than any sweep needs; one that gets here never ends.
inline constexpr size_t SWEEP_LIMIT = 5000;

}  // namespace capstan::test
