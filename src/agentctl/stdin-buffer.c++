#include "agentctl/stdin-buffer.h"

#include "agentctl/terminal.h"

#include <kj/debug.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace capstan {

StdinBuffer::StdinBuffer(kj::UnixEventPort& port, kj::AutoCloseFd fdParam, Kind kind)
    : fd(kj::mv(fdParam)), kind(kind), pump(nullptr) {
  observer = kj::heap<kj::UnixEventPort::FdObserver>(port, fd,
                                                     kj::UnixEventPort::FdObserver::OBSERVE_WRITE);
  pump = run().eagerlyEvaluate([this](kj::Exception&& e) {
    KJ_LOG(WARNING, "writing to a process's input failed", e);
    close();
  });
}

StdinBuffer::~StdinBuffer() noexcept(false) {}

kj::Maybe<StdinBuffer::WriterId> StdinBuffer::beginWriter(bool takeOver) {
  if (current != 0 && !takeOver) return nullptr;
  current = ++last;
  KJ_IF_MAYBE (waiter, roomWaiter) {
    (*waiter)->reject(KJ_EXCEPTION(DISCONNECTED, "another writer has taken this input over"));
    roomWaiter = nullptr;
  }
  return current;
}

void StdinBuffer::endWriter(WriterId writer) {
  if (writer == current) current = 0;
}

void StdinBuffer::check(WriterId writer) const {
  if (writer != current) {
    kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "another writer has taken this input over"));
  }
  if (closed) {
    kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "the process no longer reads its input"));
  }
  if (ending) kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "this input has been ended"));
}

size_t StdinBuffer::put(kj::ArrayPtr<const kj::byte> bytes) {
  if (ring.size() == 0) ring = kj::heapArray<kj::byte>(BUFFER_BYTES);
  size_t taken = std::min(bytes.size(), ring.size() - size);
  size_t at = (begin + size) % ring.size();
  size_t untilWrap = std::min(taken, ring.size() - at);
  if (untilWrap > 0) std::memcpy(ring.begin() + at, bytes.begin(), untilWrap);
  if (taken > untilWrap) std::memcpy(ring.begin(), bytes.begin() + untilWrap, taken - untilWrap);
  size += taken;
  if (taken > 0) atLineStart = bytes[taken - 1] == '\n';
  return taken;
}

kj::Promise<void> StdinBuffer::write(WriterId writer, kj::ArrayPtr<const kj::byte> bytes) {
  check(writer);
  // Whole or not at all, so that taking a held write back leaves no half of it.
  KJ_REQUIRE(bytes.size() <= BUFFER_BYTES, "a write larger than the input buffer");
  if (size + bytes.size() > BUFFER_BYTES) {
    KJ_IF_MAYBE (waiter, roomWaiter) {
      KJ_REQUIRE(!(*waiter)->isWaiting(), "one write at a time");
    }
    auto held = kj::heapArray(bytes);
    while (size + held.size() > BUFFER_BYTES) {
      auto paf = kj::newPromiseAndFulfiller<void>();
      roomWaiter = kj::mv(paf.fulfiller);
      co_await paf.promise;
      check(writer);
    }
    put(held);
  } else {
    put(bytes);
  }
  wakePump();
}

kj::Promise<void> StdinBuffer::end(WriterId writer) {
  if (ending && writer == current) co_return;
  check(writer);
  if (kind == Kind::PIPE) {
    ending = true;
  } else {
    // In the middle of a line the character only hands the line over: then it takes two.
    char eof = endOfFileCharacter(fd);
    kj::byte both[] = {static_cast<kj::byte>(eof), static_cast<kj::byte>(eof)};
    co_await write(writer, kj::arrayPtr(both, atLineStart ? 1 : 2));
    atLineStart = true;
  }
  wakePump();
}

void StdinBuffer::wakePump() {
  KJ_IF_MAYBE (waiter, workWaiter) {
    (*waiter)->fulfill();
    workWaiter = nullptr;
  }
}

void StdinBuffer::close() {
  if (closed) return;
  closed = true;
  size = 0;
  ring = nullptr;
  KJ_IF_MAYBE (waiter, roomWaiter) {
    (*waiter)->reject(KJ_EXCEPTION(DISCONNECTED, "the process no longer reads its input"));
    roomWaiter = nullptr;
  }
  wakePump();
}

kj::Promise<void> StdinBuffer::run() {
  while (!closed) {
    if (size == 0) {
      if (ending) break;
      auto paf = kj::newPromiseAndFulfiller<void>();
      workWaiter = kj::mv(paf.fulfiller);
      co_await paf.promise;
      continue;
    }
    size_t piece = std::min(size, ring.size() - begin);
    ssize_t n = ::write(fd, ring.begin() + begin, piece);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        auto writable = KJ_ASSERT_NONNULL(observer)->whenBecomesWritable();
        auto paf = kj::newPromiseAndFulfiller<void>();
        workWaiter = kj::mv(paf.fulfiller);  // close() ends the wait, too.
        co_await writable.exclusiveJoin(kj::mv(paf.promise));
        continue;
      }
      close();  // EPIPE, EIO: nobody reads any more.
      break;
    }
    begin = (begin + static_cast<size_t>(n)) % ring.size();
    size -= static_cast<size_t>(n);
    KJ_IF_MAYBE (waiter, roomWaiter) {
      (*waiter)->fulfill();
      roomWaiter = nullptr;
    }
  }
  observer = nullptr;
  fd = nullptr;  // The process sees the end of its input.
}

}  // namespace capstan
