#include "core/services.h"

#include "base/async.h"

#include <kj/debug.h>

namespace capstan {

void RuntimeRegistry::add(Backend& backend) {
  byName.upsert(kj::str(backend.name()), &backend,
                [](Backend*& old, Backend*&& next) { old = next; });
  KJ_LOG(INFO, "registered runtime", backend.name());
  for (auto& fulfiller: waiting)
    fulfiller->fulfill();
  waiting.clear();
}

kj::Promise<void> RuntimeRegistry::onAdd() {
  auto pair = kj::newPromiseAndFulfiller<void>();
  waiting.add(kj::mv(pair.fulfiller));
  return kj::mv(pair.promise);
}

Result<Backend*> RuntimeRegistry::find(kj::StringPtr runtime) const {
  KJ_IF_MAYBE (backend, byName.find(runtime)) {
    return *backend;
  }
  return Problem(ErrorCode::RUNTIME_UNAVAILABLE,
                 kj::str("runtime \"", runtime, "\" not registered"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

Result<Backend*> RuntimeRegistry::find(kj::StringPtr runtime, kj::StringPtr executorType) const {
  auto found = find(runtime);
  if (found.is<Backend*>()) return found.get<Backend*>();
  return Problem(ErrorCode::RUNTIME_UNAVAILABLE,
                 kj::str("runtime \"", runtime, "\" not available for executor type \"",
                         executorType, "\""))
      .because(kj::mv(found.get<Problem>().message))
      .advise(kj::str("Runtime '", runtime,
                      "' is not available. Enable it in configuration or change the task's "
                      "executor."))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

kj::Vector<Backend*> RuntimeRegistry::list() const {
  kj::Vector<Backend*> result(byName.size());
  for (auto& entry: byName)
    result.add(entry.value);
  return result;
}

kj::Promise<Health> RuntimeRegistry::healthOf(Backend& backend) {
  return kj::evalNow([&]() { return backend.healthCheck(); }).catch_([](kj::Exception&& e) {
    Health health;
    health.reason = asProblem(e);
    return health;
  });
}

kj::Promise<kj::Vector<RuntimeRegistry::Checked>> RuntimeRegistry::healthCheckAll() const {
  kj::Vector<kj::String> names;
  kj::Vector<kj::Promise<Health>> checks;
  for (auto* backend: list()) {
    names.add(kj::str(backend->name()));
    checks.add(healthOf(*backend));
  }
  auto healths = co_await kj::joinPromises(checks.releaseAsArray());
  kj::Vector<Checked> result(names.size());
  for (auto i: kj::indices(names))
    result.add(Checked{kj::mv(names[i]), kj::mv(healths[i])});
  co_return kj::mv(result);
}

namespace {

using Answer = kj::OneOf<kj::Vector<Recovered>, Problem>;

kj::Promise<Answer> askOne(Backend& backend, kj::Array<PlaceRecord> places) {
  return kj::evalNow([&]() { return backend.recoverInstances(kj::mv(places)); })
      .then([](kj::Vector<Recovered>&& recovered) -> Answer { return kj::mv(recovered); },
            [](kj::Exception&& e) -> Answer { return asProblem(e); });
}

}  // namespace

kj::Promise<RuntimeRegistry::AllRecovered> RuntimeRegistry::recoverAll(
    kj::Array<RuntimePlaces> places) const {
  AllRecovered result;
  kj::Vector<kj::String> names;
  kj::Vector<kj::Promise<Answer>> asked;
  for (auto& each: places) {
    auto found = find(each.runtime);
    if (found.is<Problem>()) {
      KJ_LOG(WARNING, "a runtime could not recover its environments", each.runtime,
             found.get<Problem>());
      result.failures.add(Failure{kj::mv(each.runtime), kj::mv(found.get<Problem>())});
      continue;
    }
    names.add(kj::mv(each.runtime));
    asked.add(askOne(*found.get<Backend*>(), kj::mv(each.places)));
  }
  auto answers = co_await kj::joinPromises(asked.releaseAsArray());
  for (auto i: kj::indices(answers)) {
    if (answers[i].is<Problem>()) {
      auto& problem = answers[i].get<Problem>();
      KJ_LOG(WARNING, "a runtime could not recover its environments", names[i], problem);
      result.failures.add(Failure{kj::mv(names[i]), kj::mv(problem)});
      continue;
    }
    for (auto& place: answers[i].get<kj::Vector<Recovered>>())
      result.places.add(kj::mv(place));
  }
  co_return kj::mv(result);
}

}  // namespace capstan
