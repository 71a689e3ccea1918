#pragma once
// A byte stream as lines, for protocols that speak one message a line.

#include <kj/async-io.h>
#include <kj/string.h>

namespace capstan {

// Reads lines from a stream that it shares with nobody. Holds one line at most, and what was read
// beyond it.
class LineReader final {
public:
  // `from` must outlive the reader. `most` bounds a line's octets, without its line break.
  explicit LineReader(kj::AsyncInputStream& from, size_t most = 16u << 20);
  KJ_DISALLOW_COPY_AND_MOVE(LineReader);

  // The next line without its '\n', octet by octet as it came (a '\r' stays); null at the end of
  // the stream. A last line without a line break counts. Rejects when a line is longer than the
  // bound; the stream is then of no use any more. One call at a time; dropping the promise keeps
  // what was read for the next call.
  kj::Promise<kj::Maybe<kj::String>> next();

private:
  kj::AsyncInputStream& from;
  const size_t most;
  kj::Array<char> buffer;
  size_t begin = 0;  // buffer[begin, end) is read and not handed out,
  size_t end = 0;
  size_t scanned = 0;  // and holds no line break before here.
  bool finished = false;

  kj::String take(size_t size);
  void makeRoom();
};

}  // namespace capstan
