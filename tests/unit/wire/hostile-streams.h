#pragma once
// Hostile streams: one octet a read, stalls, cuts.

#include <kj/async-io.h>
#include <kj/debug.h>

namespace capstan::test {

// Passes everything through; the base of the others.
class WrappedStream: public kj::AsyncIoStream {
public:
  explicit WrappedStream(kj::Own<kj::AsyncIoStream> inner): inner(kj::mv(inner)) {}
  kj::Promise<size_t> tryRead(void* buffer, size_t least, size_t most) override {
    return inner->tryRead(buffer, least, most);
  }
  kj::Promise<void> write(const void* buffer, size_t size) override {
    return inner->write(buffer, size);
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return inner->write(pieces);
  }
  kj::Promise<void> whenWriteDisconnected() override { return inner->whenWriteDisconnected(); }
  void shutdownWrite() override { inner->shutdownWrite(); }
  void abortRead() override { inner->abortRead(); }

protected:
  kj::Own<kj::AsyncIoStream> inner;
};

// Reads one octet at a time, so that every boundary falls everywhere.
class OneByteStream final: public WrappedStream {
public:
  using WrappedStream::WrappedStream;
  kj::Promise<size_t> tryRead(void* buffer, size_t least, size_t) override {
    auto at = reinterpret_cast<kj::byte*>(buffer);
    size_t total = 0;
    do {
      auto n = co_await inner->tryRead(at + total, 1, 1);
      if (n == 0) break;
      total += n;
    } while (total < least);
    co_return total;
  }
};

// Reads `limit` octets and then never again.
class StallingStream final: public WrappedStream {
public:
  StallingStream(kj::Own<kj::AsyncIoStream> inner, size_t limit)
      : WrappedStream(kj::mv(inner)), left(limit) {}
  kj::Promise<size_t> tryRead(void* buffer, size_t least, size_t most) override {
    if (least > left) return kj::NEVER_DONE;
    return inner->tryRead(buffer, least, kj::min(most, left)).then([this](size_t n) {
      left -= n;
      return n;
    });
  }

private:
  size_t left;
};

// Writes `limit` octets and then closes both directions in the middle of whatever it was.
class CutStream final: public WrappedStream {
public:
  CutStream(kj::Own<kj::AsyncIoStream> inner, size_t limit)
      : WrappedStream(kj::mv(inner)), left(limit) {}
  kj::Promise<void> write(const void* buffer, size_t size) override {
    if (size <= left) {
      left -= size;
      co_await inner->write(buffer, size);
    } else {
      auto part = left;
      left = 0;
      if (part > 0) co_await inner->write(buffer, part);
      inner->shutdownWrite();
      inner->abortRead();
      kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "the stream was cut"));
    }
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    for (auto& piece: pieces) {
      co_await write(piece.begin(), piece.size());
    }
  }

private:
  size_t left;
};

}  // namespace capstan::test
