#include "client/tail-buffer.h"

namespace capstan {

kj::String TailBuffer::text() const {
  auto size = kj::min(kept.size(), most);
  return kj::heapString(kept.data() + (kept.size() - size), size);
}

kj::Promise<void> TailBuffer::write(const void* buffer, size_t size) {
  add(static_cast<const char*>(buffer), size);
  return kj::READY_NOW;
}

kj::Promise<void> TailBuffer::write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) {
  for (auto& piece: pieces) {
    add(reinterpret_cast<const char*>(piece.begin()), piece.size());
  }
  return kj::READY_NOW;
}

void TailBuffer::add(const char* begin, size_t size) {
  total += size;
  auto useful = kj::min(size, most);
  // Moving only when the buffer is full twice over keeps the copies linear.
  if (kept.size() + useful > 2 * most) {
    kept.erase(0, kept.size() - kj::min(kept.size(), most - useful));
  }
  kept.append(begin + (size - useful), useful);
}

}  // namespace capstan
