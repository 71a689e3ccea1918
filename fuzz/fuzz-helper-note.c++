// Octets as an agentctl executable whose note is read. Whatever the octets are, what is found lies
// in them, and octets behind the file change nothing.

#include "codec/helper-note.h"

#include <kj/debug.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace capstan {
namespace {

bool holds(kj::ArrayPtr<const kj::byte> file, kj::StringPtr text) {
  std::string_view all(reinterpret_cast<const char*>(file.begin()), file.size());
  return all.find(std::string_view(text.begin(), text.size())) != std::string_view::npos;
}

kj::String shown(const HelperNote& note) {
  return kj::str(note.build, '\n', note.platform, '\n', kj::strArray(note.capabilities, ","));
}

}  // namespace
}  // namespace capstan

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that a sanitizer sees any read beyond it.
  auto file = kj::heapArray<kj::byte>(size);
  if (size > 0) std::memcpy(file.begin(), data, size);
  auto note = capstan::readHelperNote(file);
  KJ_IF_MAYBE (found, note) {
    KJ_ASSERT(capstan::holds(file, found->build));
    KJ_ASSERT(capstan::holds(file, found->platform));
    for (auto& name: found->capabilities)
      KJ_ASSERT(capstan::holds(file, name));

    auto longer = kj::heapArray<kj::byte>(size + 64);
    std::memcpy(longer.begin(), data, size);
    std::memset(longer.begin() + size, 0, 64);
    auto again = capstan::readHelperNote(longer);
    KJ_ASSERT(capstan::shown(KJ_ASSERT_NONNULL(again)) == capstan::shown(*found));
  }
  return 0;
}
