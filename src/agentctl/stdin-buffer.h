#pragma once
// What is on its way into a process's standard input: a bounded buffer between writers, one at a
// time, and a descriptor.

#include <kj/array.h>
#include <kj/async-unix.h>
#include <kj/io.h>

#include <cstdint>

namespace capstan {

// A write is answered once it lies in the buffer, and held while there is no room. Everything is
// in the order of the calls. `port` must outlive it.
class StdinBuffer {
public:
  static constexpr size_t BUFFER_BYTES = 256 << 10;

  enum class Kind {
    PIPE,      // The end closes it.
    TERMINAL,  // The end writes the end-of-file character; the terminal stays.
  };
  StdinBuffer(kj::UnixEventPort& port, kj::AutoCloseFd fd, Kind kind);
  ~StdinBuffer() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(StdinBuffer);

  // One writer's turn. 0 is no writer.
  using WriterId = uint64_t;

  // Null while another one writes, unless `takeOver`: then the other's held and further writes
  // fail (disconnected).
  kj::Maybe<WriterId> beginWriter(bool takeOver);
  // The next writer may begin. What is buffered stays. Does nothing for one that was taken over.
  void endWriter(WriterId writer);

  // `bytes` is copied before this returns, or held in the promise. Rejects (disconnected) when the
  // process no longer reads or the writer was taken over; (failed) after end(). Dropping a held
  // write takes it back.
  kj::Promise<void> write(WriterId writer, kj::ArrayPtr<const kj::byte> bytes);
  // Ends the input after what was written. Resolves once that is noted. Idempotent for pipes.
  kj::Promise<void> end(WriterId writer);

  bool isEnded() const { return ending; }
  size_t buffered() const { return size; }

  // The process is gone: all writes fail from now on.
  void close();

private:
  kj::AutoCloseFd fd;
  Kind kind;
  kj::Maybe<kj::Own<kj::UnixEventPort::FdObserver>> observer;
  kj::Array<kj::byte> ring;  // Made at the first write.
  size_t begin = 0;
  size_t size = 0;
  WriterId current = 0;
  WriterId last = 0;
  bool ending = false;
  bool closed = false;
  bool atLineStart = true;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> roomWaiter;  // Of the current writer.
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> workWaiter;  // Of the pump.
  kj::Promise<void> pump;                                     // last

  kj::Promise<void> run();
  size_t put(kj::ArrayPtr<const kj::byte> bytes);
  void wakePump();
  void check(WriterId writer) const;
};

}  // namespace capstan
