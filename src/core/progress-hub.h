#pragma once

#include "backends/backend.h"

#include <kj/function.h>
#include <kj/list.h>

namespace capstan {

// Keeps the steps of an environment's latest bring-up and shows them to everybody who waits for
// it, those who come late included.
class ProgressHub final: public ProgressSink {
public:
  // `changed` is called after every report, before listeners are shown it; it must not wait.
  explicit ProgressHub(kj::Function<void()> changed): changed(kj::mv(changed)) {}
  KJ_DISALLOW_COPY_AND_MOVE(ProgressHub);

  // Shows `sink` the steps to come while it lives, after those so far if `replay` says so. The sink
  // must outlive it, it must not outlive the hub.
  enum class Replay { NONE, ALL };
  class Listener {
  public:
    Listener(ProgressHub& hub, ProgressSink& sink, Replay replay);
    ~Listener() noexcept(false);
    KJ_DISALLOW_COPY_AND_MOVE(Listener);

  private:
    friend class ProgressHub;
    ProgressHub& hub;
    ProgressSink& sink;
    kj::ListLink<Listener> link;
  };

  // Forgets the steps: a new bring-up begins.
  void begin();
  void report(const PrepareStep& step, uint16_t index, uint16_t total) override;
  kj::ArrayPtr<const PrepareStep> steps() const { return known; }

private:
  kj::Function<void()> changed;
  kj::Vector<PrepareStep> known;
  uint16_t expected = 0;
  kj::List<Listener, &Listener::link> listeners;
};

}  // namespace capstan
