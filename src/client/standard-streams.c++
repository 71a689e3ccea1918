#include "client/standard-streams.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

// Whether epoll can watch it: not regular files, and not devices such as /dev/null, whose reads
// and writes never wait.
bool canWait(int fd) {
  struct stat info;
  KJ_SYSCALL(fstat(fd, &info));
  if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)) return true;
  return S_ISCHR(info.st_mode) && isatty(fd);
}

// A descriptor of our own for what `fd` stands for. A socket cannot be opened anew: it is
// duplicated and shares its flags.
kj::AutoCloseFd reopen(int fd, int mode) {
  auto path = kj::str("/proc/self/fd/", fd);
  int fresh = open(path.cStr(), mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fresh >= 0) return kj::AutoCloseFd(fresh);
  KJ_SYSCALL(fresh = fcntl(fd, F_DUPFD_CLOEXEC, 3));
  return kj::AutoCloseFd(fresh);
}

// In words for whoever redirected the stream.
[[noreturn]] void throwFailure(kj::StringPtr what, int error) {
  auto type = error == ENOSPC || error == EDQUOT ? kj::Exception::Type::OVERLOADED
                                                 : kj::Exception::Type::FAILED;
  kj::throwFatalException(
      kj::Exception(type, __FILE__, __LINE__, kj::str(what, ": ", strerror(error))));
}

class FileInput final: public kj::AsyncInputStream {
public:
  FileInput(int fd, kj::Timer& timer): fd(fd), timer(timer) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t minBytes, size_t maxBytes) override {
    // Sockets and signals get their turn between two pieces of a large file.
    co_await timer.afterDelay(0 * kj::NANOSECONDS);
    size_t done = 0;
    while (done < minBytes || done == 0) {
      ssize_t n = ::read(fd, static_cast<kj::byte*>(buffer) + done, maxBytes - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throwFailure("cannot read the input", errno);
      if (n == 0) break;
      done += n;
    }
    co_return done;
  }

private:
  int fd;
  kj::Timer& timer;
};

class FileOutput final: public kj::AsyncOutputStream {
public:
  explicit FileOutput(int fd): fd(fd) {}
  kj::Promise<void> write(const void* buffer, size_t size) override {
    auto bytes = static_cast<const kj::byte*>(buffer);
    while (size > 0) {
      ssize_t n = ::write(fd, bytes, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throwFailure("cannot write the output", errno);
      bytes += n;
      size -= n;
    }
    return kj::READY_NOW;
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    for (auto& piece: pieces)
      write(piece.begin(), piece.size());
    return kj::READY_NOW;
  }
  kj::Promise<void> whenWriteDisconnected() override { return kj::NEVER_DONE; }

private:
  int fd;
};

}  // namespace

kj::Own<kj::AsyncInputStream> openInput(kj::LowLevelAsyncIoProvider& provider, kj::Timer& timer,
                                        int fd) {
  if (!canWait(fd)) return kj::heap<FileInput>(fd, timer);
  return provider.wrapInputFd(reopen(fd, O_RDONLY));
}

kj::Own<kj::AsyncOutputStream> openOutput(kj::LowLevelAsyncIoProvider& provider, int fd) {
  if (!canWait(fd)) return kj::heap<FileOutput>(fd);
  return provider.wrapOutputFd(reopen(fd, O_WRONLY));
}

}  // namespace capstan
