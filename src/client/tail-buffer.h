#pragma once
// Output that is kept in memory, with a bound.

#include <kj/async-io.h>
#include <kj/refcount.h>
#include <kj/string.h>

#include <string>

namespace capstan {

// Takes everything that is written to it, at once, and keeps the newest octets. Counted, so that it
// can be read after the one who wrote is gone.
class TailBuffer final: public kj::AsyncOutputStream, public kj::Refcounted {
public:
  // Holds up to twice `most` octets.
  explicit TailBuffer(size_t most): most(most) {}

  // The newest octets, at most the bound. They may begin within a character.
  kj::String text() const;
  // Octets written before those.
  uint64_t dropped() const { return total - kj::min(kept.size(), most); }

  kj::Promise<void> write(const void* buffer, size_t size) override;
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override;
  kj::Promise<void> whenWriteDisconnected() override { return kj::NEVER_DONE; }

private:
  const size_t most;
  std::string kept;
  uint64_t total = 0;

  void add(const char* begin, size_t size);
};

}  // namespace capstan
