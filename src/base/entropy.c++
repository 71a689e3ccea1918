#include "base/entropy.h"

#include <kj/debug.h>

#include <cerrno>

#include <sys/random.h>

namespace capstan {

void SystemEntropy::fill(kj::ArrayPtr<kj::byte> bytes) {
  while (bytes.size() > 0) {
    ssize_t n = getrandom(bytes.begin(), bytes.size(), 0);
    if (n < 0) {
      int error = errno;
      if (error == EINTR) continue;
      KJ_FAIL_SYSCALL("getrandom", error);
    }
    bytes = bytes.slice(static_cast<size_t>(n), bytes.size());
  }
}

uint64_t randomBelow(Entropy& entropy, uint64_t limit) {
  KJ_REQUIRE(limit > 0);
  // Values from the last, incomplete multiple of `limit` are thrown away: no value is favoured.
  uint64_t usable = UINT64_MAX - UINT64_MAX % limit;
  for (;;) {
    uint64_t value;
    entropy.fill(kj::arrayPtr(reinterpret_cast<kj::byte*>(&value), sizeof(value)));
    if (value < usable) return value % limit;
  }
}

}  // namespace capstan
