#include "transport/watched-process.h"

#include <kj/debug.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace capstan {

namespace {

// Null when the file is not there, or its process is gone.
kj::Maybe<kj::String> readSmallFile(kj::StringPtr path) {
  int fd = open(path.cStr(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  kj::AutoCloseFd closing(fd);
  char buffer[2048];
  ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n <= 0) return nullptr;
  return kj::heapString(buffer, n);
}

kj::String bootId() {
  auto text = readSmallFile("/proc/sys/kernel/random/boot_id");
  KJ_IF_MAYBE (line, text) {
    size_t end = line->size();
    while (end > 0 && (*line)[end - 1] == '\n')
      --end;
    return kj::heapString(line->begin(), end);
  }
  return kj::String();
}

// A zombie has ended, although its number is still taken.
kj::Maybe<uint64_t> startTicks(int64_t pid) {
  auto stat = readSmallFile(kj::str("/proc/", pid, "/stat"));
  KJ_IF_MAYBE (line, stat) {
    // The name, in brackets, may hold anything: fields are counted from its end.
    const char* at = std::strrchr(line->cStr(), ')');
    if (at == nullptr || at[1] != ' ') return nullptr;
    if (at[2] == 'Z' || at[2] == 'X') return nullptr;
    at += 2;
    for (int field = 3; field < 22; ++field) {
      at = std::strchr(at, ' ');
      if (at == nullptr) return nullptr;
      ++at;
    }
    return std::strtoull(at, nullptr, 10);
  }
  return nullptr;
}

int openHandle(int64_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

kj::Maybe<ProcessName> nameOfProcess(int64_t pid) {
  KJ_IF_MAYBE (ticks, startTicks(pid)) {
    return ProcessName{pid, *ticks, bootId()};
  }
  return nullptr;
}

Result<kj::Maybe<kj::Own<WatchedProcess>>> WatchedProcess::find(kj::UnixEventPort& port,
                                                                const ProcessName& name) {
  using Found = kj::Maybe<kj::Own<WatchedProcess>>;
  if (name.pid <= 0 || name.bootId != bootId()) return Found(nullptr);
  int fd = openHandle(name.pid);
  if (fd < 0) {
    if (errno == ESRCH) return Found(nullptr);
    return Problem(ErrorCode::INTERNAL, kj::str("cannot look at process ", name.pid))
        .because(kj::str(strerror(errno)));
  }
  kj::AutoCloseFd handle(fd);
  // The handle holds the process, so what is read after it was opened is of the same one or tells
  // that it is gone.
  KJ_IF_MAYBE (ticks, startTicks(name.pid)) {
    if (*ticks == name.startTicks) {
      return Found(kj::heap<WatchedProcess>(port, name.pid, kj::mv(handle)));
    }
  }
  return Found(nullptr);
}

WatchedProcess::WatchedProcess(kj::UnixEventPort& port, int64_t pid, kj::AutoCloseFd handleParam)
    : number(pid),
      handle(kj::mv(handleParam)),
      observer(port, handle.get(), kj::UnixEventPort::FdObserver::OBSERVE_READ),
      exited(observer.whenBecomesReadable().fork()) {}

WatchedProcess::~WatchedProcess() noexcept(false) {}

bool WatchedProcess::running() const {
  pollfd asked{handle.get(), POLLIN, 0};
  return poll(&asked, 1, 0) == 0;
}

bool WatchedProcess::signal(int signalNumber) {
  return syscall(SYS_pidfd_send_signal, handle.get(), signalNumber, nullptr, 0) == 0;
}

}  // namespace capstan
