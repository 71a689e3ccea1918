#include "core/services.h"

namespace capstan {

void RuntimeRegistry::add(Backend& backend) {
  byName.upsert(kj::str(backend.name()), &backend,
                [](Backend*& old, Backend*&& next) { old = next; });
}

Result<Backend*> RuntimeRegistry::find(kj::StringPtr runtime, kj::StringPtr executorType) const {
  KJ_IF_MAYBE (backend, byName.find(runtime)) {
    return *backend;
  }
  return Problem(ErrorCode::RUNTIME_UNAVAILABLE,
                 kj::str("runtime \"", runtime, "\" not available for executor type \"",
                         executorType, "\""))
      .because(kj::str("runtime \"", runtime, "\" not registered"))
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

}  // namespace capstan
