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

Problem unreadable(kj::StringPtr path, kj::StringPtr why) {
  return Problem(ErrorCode::INTERNAL, kj::str("cannot read ", path))
      .because(kj::str(why))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

// Null only when the file is not there, or its process is gone.
Result<kj::Maybe<kj::String>> readSmallFile(kj::StringPtr path) {
  using Text = kj::Maybe<kj::String>;
  int fd = open(path.cStr(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ESRCH) return Text(nullptr);
    return unreadable(path, strerror(errno));
  }
  kj::AutoCloseFd closing(fd);
  char buffer[2048];
  ssize_t n;
  do {
    n = read(fd, buffer, sizeof(buffer));
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    if (errno == ESRCH) return Text(nullptr);
    return unreadable(path, strerror(errno));
  }
  return Text(kj::heapString(buffer, n));
}

Result<kj::String> bootId() {
  constexpr kj::StringPtr PATH = "/proc/sys/kernel/random/boot_id"_kj;
  auto text = readSmallFile(PATH);
  if (text.is<Problem>()) return kj::mv(text.get<Problem>());
  KJ_IF_MAYBE (line, text.get<kj::Maybe<kj::String>>()) {
    size_t end = line->size();
    while (end > 0 && (*line)[end - 1] == '\n')
      --end;
    if (end > 0) return kj::heapString(line->begin(), end);
  }
  return unreadable(PATH, "the kernel does not say which boot this is");
}

// A zombie has ended, although its number is still taken.
Result<kj::Maybe<uint64_t>> startTicks(int64_t pid) {
  using Ticks = kj::Maybe<uint64_t>;
  auto path = kj::str("/proc/", pid, "/stat");
  auto stat = readSmallFile(path);
  if (stat.is<Problem>()) return kj::mv(stat.get<Problem>());
  KJ_IF_MAYBE (line, stat.get<kj::Maybe<kj::String>>()) {
    // The name, in brackets, may hold anything: fields are counted from its end.
    const char* at = std::strrchr(line->cStr(), ')');
    if (at == nullptr || at[1] != ' ') return unreadable(path, "it has another form than expected");
    if (at[2] == 'Z' || at[2] == 'X') return Ticks(nullptr);
    at += 2;
    for (int field = 3; field < 22; ++field) {
      at = std::strchr(at, ' ');
      if (at == nullptr) return unreadable(path, "it has fewer fields than expected");
      ++at;
    }
    return Ticks(std::strtoull(at, nullptr, 10));
  }
  return Ticks(nullptr);
}

int openHandle(int64_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

Result<kj::Maybe<ProcessName>> nameOfProcess(int64_t pid) {
  using Name = kj::Maybe<ProcessName>;
  auto started = startTicks(pid);
  if (started.is<Problem>()) return kj::mv(started.get<Problem>());
  KJ_IF_MAYBE (ticks, started.get<kj::Maybe<uint64_t>>()) {
    auto boot = bootId();
    if (boot.is<Problem>()) return kj::mv(boot.get<Problem>());
    return Name(ProcessName{pid, *ticks, kj::mv(boot.get<kj::String>())});
  }
  return Name(nullptr);
}

Result<kj::Maybe<kj::Own<WatchedProcess>>> WatchedProcess::find(kj::UnixEventPort& port,
                                                                const ProcessName& name) {
  using Found = kj::Maybe<kj::Own<WatchedProcess>>;
  if (name.pid <= 0) return Found(nullptr);
  auto boot = bootId();
  if (boot.is<Problem>()) return kj::mv(boot.get<Problem>());
  if (name.bootId != boot.get<kj::String>()) return Found(nullptr);
  int fd = openHandle(name.pid);
  if (fd < 0) {
    if (errno == ESRCH) return Found(nullptr);
    return Problem(ErrorCode::INTERNAL, kj::str("cannot look at process ", name.pid))
        .because(kj::str(strerror(errno)))
        .retryable(RetryHint::SAME_REQUEST_LATER);
  }
  kj::AutoCloseFd handle(fd);
  // The handle holds the process, so what is read after it was opened is of the same one or tells
  // that it is gone.
  auto started = startTicks(name.pid);
  if (started.is<Problem>()) return kj::mv(started.get<Problem>());
  KJ_IF_MAYBE (ticks, started.get<kj::Maybe<uint64_t>>()) {
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
