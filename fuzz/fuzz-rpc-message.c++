// Octets as a Cap'n Proto message of the client interface: read with the default limits, walked to
// its last field and, when that worked, copied to canonical form, which must read the same again.

#include "bootstrap.capnp.h"
#include "values.capnp.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/array.h>
#include <kj/debug.h>
#include <kj/exception.h>
#include <kj/string.h>

#include <cstdint>
#include <cstring>

namespace capstan {
namespace {

// Far above what a message of this size can mean, and bounded: the traversal limit counts words,
// not the characters they are printed as.
constexpr size_t MOST_BYTES = 64 * 1024;

template <typename T>
void walk(kj::ArrayPtr<const capnp::word> words) {
  kj::String text;
  kj::Array<capnp::word> canonical;
  auto refused = kj::runCatchingExceptions([&]() {
    capnp::FlatArrayMessageReader reader(words);
    auto root = reader.getRoot<T>();
    text = kj::str(root);
    canonical = capnp::canonicalize(kj::mv(root));
  });
  // Malformed, too deep, or above the limits: the peer's fault, told by an exception.
  if (refused != nullptr) return;

  kj::ArrayPtr<const capnp::word> segment = canonical;
  capnp::SegmentArrayMessageReader again(kj::arrayPtr(&segment, 1));
  KJ_ASSERT(again.isCanonical(), "not canonical after canonicalize()");
  auto root = again.getRoot<T>();
  KJ_ASSERT(kj::str(root) == text, "canonical form reads differently");
  auto twice = capnp::canonicalize(kj::mv(root));
  KJ_ASSERT(twice.asBytes() == canonical.asBytes(), "canonical form is not stable");
}

}  // namespace
}  // namespace capstan

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > capstan::MOST_BYTES) return 0;
  auto words = kj::heapArray<capnp::word>(size / sizeof(capnp::word));
  // memcpy with a null pointer is undefined even for no octets.
  if (words.size() > 0) std::memcpy(words.begin(), data, words.size() * sizeof(capnp::word));
  capstan::walk<capstan::rpc::LaunchSpec>(words);
  capstan::walk<capstan::rpc::Supervisor::EnvironmentSpec>(words);
  return 0;
}
