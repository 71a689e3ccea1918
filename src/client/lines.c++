#include "client/lines.h"

#include <kj/debug.h>

#include <cstring>

namespace capstan {

namespace {

constexpr size_t LEAST_ROOM = 16u << 10;

}  // namespace

LineReader::LineReader(kj::AsyncInputStream& from, size_t most): from(from), most(most) {}

kj::Promise<kj::Maybe<kj::String>> LineReader::next() {
  for (;;) {
    if (scanned < end) {
      auto found = static_cast<char*>(std::memchr(buffer.begin() + scanned, '\n', end - scanned));
      if (found != nullptr) {
        size_t size = found - (buffer.begin() + begin);
        KJ_REQUIRE(size <= most, "a line is longer than the bound", most);
        auto line = take(size);
        ++begin;
        scanned = begin;
        co_return kj::mv(line);
      }
      scanned = end;
    }
    KJ_REQUIRE(end - begin <= most, "a line is longer than the bound", most);
    if (finished) {
      if (begin == end) co_return nullptr;
      co_return take(end - begin);
    }
    makeRoom();
    auto n = co_await from.tryRead(buffer.begin() + end, 1, buffer.size() - end);
    end += n;
    finished = n == 0;
  }
}

kj::String LineReader::take(size_t size) {
  auto line = kj::heapString(buffer.begin() + begin, size);
  begin += size;
  return line;
}

void LineReader::makeRoom() {
  size_t size = end - begin;
  if (buffer.size() - end >= LEAST_ROOM) return;
  // Doubling keeps the copies of one long line linear.
  if (begin < size || buffer.size() - size < LEAST_ROOM) {
    auto larger = kj::heapArray<char>(kj::max(2 * size, size + LEAST_ROOM));
    if (size > 0) std::memcpy(larger.begin(), buffer.begin() + begin, size);
    buffer = kj::mv(larger);
  } else {
    std::memmove(buffer.begin(), buffer.begin() + begin, size);
  }
  scanned -= begin;
  begin = 0;
  end = size;
}

}  // namespace capstan
