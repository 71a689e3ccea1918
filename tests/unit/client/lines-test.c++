#include "client/lines.h"

#include "client/tail-buffer.h"
#include "support/test.h"

#include <cstring>
#include <string>

namespace capstan {
namespace {

using test::Loop;

// All lines until the end, joined by '|'.
kj::Promise<kj::String> allLines(LineReader& reader) {
  kj::Vector<kj::String> lines;
  for (;;) {
    KJ_IF_MAYBE (line, co_await reader.next()) {
      lines.add(kj::mv(*line));
    } else {
      co_return kj::strArray(lines, "|");
    }
  }
}

// Writes `text` in pieces of `size` octets, then ends the stream.
kj::Promise<void> writeInPieces(kj::Own<kj::AsyncOutputStream> out, kj::String text, size_t size) {
  for (size_t at = 0; at < text.size(); at += size) {
    co_await out->write(text.begin() + at, kj::min(size, text.size() - at));
  }
  out = nullptr;  // now: the frame would keep it for as long as its promise
}

}  // namespace

TEST_CASE("lines come out whole, however the octets were cut") {
  Loop loop;
  for (size_t size: {1, 2, 3, 7, 100}) {
    CAPTURE(size);
    auto pipe = kj::newOneWayPipe();
    LineReader reader(*pipe.in);
    auto writing = writeInPieces(kj::mv(pipe.out), kj::str("one\n\ntw\xc3\xb6\r\nlast"), size);
    CHECK(allLines(reader).wait(loop.waitScope) == "one||tw\xc3\xb6\r|last");
    writing.wait(loop.waitScope);
  }
}

TEST_CASE("lines hold NUL octets and survive a long one between short ones") {
  Loop loop;
  auto pipe = kj::newOneWayPipe();
  LineReader reader(*pipe.in);
  auto longLine = kj::heapString(300'000);
  std::memset(longLine.begin(), 'x', longLine.size());
  kj::String text = kj::heapString("a\0b\n", 4);
  text = kj::str(text, longLine, "\nafter\n");
  auto writing = writeInPieces(kj::mv(pipe.out), kj::mv(text), 65'536);
  CHECK(KJ_ASSERT_NONNULL(reader.next().wait(loop.waitScope)) == kj::heapString("a\0b", 3));
  CHECK(KJ_ASSERT_NONNULL(reader.next().wait(loop.waitScope)) == longLine);
  CHECK(KJ_ASSERT_NONNULL(reader.next().wait(loop.waitScope)) == "after");
  CHECK(reader.next().wait(loop.waitScope) == nullptr);
  CHECK(reader.next().wait(loop.waitScope) == nullptr);
}

TEST_CASE("a line longer than the bound is refused, one of just that length is not") {
  Loop loop;
  auto pipe = kj::newOneWayPipe();
  LineReader reader(*pipe.in, 4);
  auto writing = writeInPieces(kj::mv(pipe.out), kj::str("four\nfives\n"), 100);
  CHECK(KJ_ASSERT_NONNULL(reader.next().wait(loop.waitScope)) == "four");
  CHECK_THROWS_AS(reader.next().wait(loop.waitScope), kj::Exception);
}

TEST_CASE("a dropped next() loses nothing") {
  Loop loop;
  auto pipe = kj::newOneWayPipe();
  LineReader reader(*pipe.in);
  {
    auto dropped = reader.next();
    pipe.out->write("ha", 2).wait(loop.waitScope);
    CHECK_FALSE(dropped.poll(loop.waitScope));
  }
  auto line = reader.next();
  pipe.out->write("lf\n", 3).wait(loop.waitScope);
  CHECK(KJ_ASSERT_NONNULL(line.wait(loop.waitScope)) == "half");
}

TEST_CASE("a tail buffer keeps the newest octets") {
  Loop loop;
  for (size_t piece: {1, 3, 8, 25, 60}) {
    CAPTURE(piece);
    auto tail = kj::refcounted<TailBuffer>(10);
    std::string all;
    for (char c = 'a'; all.size() < 60; ++c) {
      std::string part(piece, c);
      tail->write(part.data(), part.size()).wait(loop.waitScope);
      all += part;
      auto kept = all.size() > 10 ? all.substr(all.size() - 10) : all;
      CHECK(tail->text() == kept.c_str());
      CHECK(tail->dropped() == all.size() - kept.size());
    }
  }
}

}  // namespace capstan
