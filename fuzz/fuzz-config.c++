// Octets as a configuration file. Whatever they are, a refusal is one harmless line that begins
// with the file's name, and an accepted file, written out, reads back as the same configuration.

#include "codec/daemon-config.h"

#include <kj/debug.h>

#include <cstdint>
#include <cstring>

namespace capstan {
namespace {

void checkRefusal(const Problem& problem) {
  KJ_ASSERT(problem.code == ErrorCode::INVALID_ARGUMENT, problem);
  KJ_ASSERT(problem.message.startsWith("f:"), problem);
  KJ_ASSERT(problem.hint.size() > 0, problem);
  auto said = kj::str(problem);
  for (char c: said)
    KJ_ASSERT(static_cast<kj::byte>(c) >= 0x20 && c != 0x7f, "a control character", said);
}

void checkRoundTrip(const DaemonConfig& config) {
  auto written = writeDaemonConfig(config);
  auto again = readDaemonConfig("f", written);
  KJ_ASSERT(again.is<DaemonConfig>(), written, again.get<Problem>());
  KJ_ASSERT(writeDaemonConfig(again.get<DaemonConfig>()) == written);
}

}  // namespace
}  // namespace capstan

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that a sanitizer sees any read beyond it.
  auto text = kj::heapArray<char>(size);
  if (size > 0) std::memcpy(text.begin(), data, size);
  auto result = capstan::readDaemonConfig("f", text);
  if (result.is<capstan::Problem>()) {
    capstan::checkRefusal(result.get<capstan::Problem>());
  } else {
    capstan::checkRoundTrip(result.get<capstan::DaemonConfig>());
  }
  return 0;
}
