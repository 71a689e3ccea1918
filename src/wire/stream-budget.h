#pragma once
// A shared bound on what many streams of one connection have in flight.

#include <kj/refcount.h>

#include <cstdint>

namespace capstan {

// Octets that all byte streams of one connection together may have unanswered. Each stream may
// always have one write in flight, whatever the others hold, so nothing waits for another stream:
// the budget only narrows windows while many streams are stalled.
class StreamBudget final: public kj::Refcounted {
public:
  explicit StreamBudget(uint64_t totalOctets): total(totalOctets) {}

  bool has(uint64_t octets) const { return used + octets <= total; }
  void take(uint64_t octets) { used += octets; }
  void giveBack(uint64_t octets) { used -= octets; }
  uint64_t inUse() const { return used; }

private:
  uint64_t total;
  uint64_t used = 0;
};

}  // namespace capstan
