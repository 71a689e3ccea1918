#pragma once
// Randomness as an argument, so that tests decide it.

#include <kj/common.h>

#include <cstdint>

namespace capstan {

// A source of random octets. What makes secrets and ids takes it as an argument.
class Entropy {
public:
  // Fills all of `bytes`; throws if the source fails.
  virtual void fill(kj::ArrayPtr<kj::byte> bytes) = 0;
};

// The kernel's generator, good for keys. Blocks only before the machine's first seeding.
class SystemEntropy final: public Entropy {
public:
  void fill(kj::ArrayPtr<kj::byte> bytes) override;
};

// A number in [0, limit), each equally likely. `limit` must not be 0.
uint64_t randomBelow(Entropy& entropy, uint64_t limit);

}  // namespace capstan
