#include "core/progress-hub.h"

#include <kj/debug.h>

namespace capstan {

ProgressHub::Listener::Listener(ProgressHub& hub, ProgressSink& sink, Replay replay)
    : hub(hub), sink(sink) {
  for (size_t i = 0; replay == Replay::ALL && i < hub.known.size(); ++i)
    sink.report(hub.known[i], i, hub.expected);
  hub.listeners.add(*this);
}

ProgressHub::Listener::~Listener() noexcept(false) { hub.listeners.remove(*this); }

void ProgressHub::begin() {
  known.clear();
  expected = 0;
}

void ProgressHub::report(const PrepareStep& step, uint16_t index, uint16_t total) {
  constexpr uint16_t MOST_STEPS = 256;  // Far above any bring-up; bounds what a backend can grow.
  KJ_REQUIRE(index < MOST_STEPS, "a backend reports too many steps", index);
  while (known.size() <= index)
    known.add();
  known[index] = step.clone();
  expected = total;
  changed();
  for (auto& listener: listeners)
    listener.sink.report(step, index, total);
}

}  // namespace capstan
