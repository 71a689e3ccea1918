#include "agentctl/diagnostic-log.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

DiagnosticLog::DiagnosticLog(kj::StringPtr pathParam): path(kj::heapString(pathParam)) {
  if (path.size() > 0 && !open()) {
    KJ_LOG(WARNING, "the log cannot be written; diagnostics go to stderr", path);
  }
}

bool DiagnosticLog::open() {
  fd = kj::AutoCloseFd(
      ::open(path.cStr(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd == nullptr) return false;
  struct stat found;
  written = fstat(fd, &found) == 0 ? static_cast<uint64_t>(found.st_size) : 0;
  return true;
}

void DiagnosticLog::logMessage(kj::LogSeverity severity, const char* file, int line, int,
                               kj::String&& text) {
  const char* base = std::strrchr(file, '/');
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  gmtime_r(&now.tv_sec, &parts);
  char when[32];
  std::strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &parts);
  auto entry =
      kj::str(when, "Z ", severity, ' ', base == nullptr ? file : base + 1, ':', line, ": ", text);
  // One entry is one line, whatever it holds.
  for (char& c: entry) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  size_t size = std::min(entry.size(), MAX_LINE_BYTES - 1);
  entry.begin()[size] = '\n';
  if (fd != nullptr && written + size > MAX_FILE_BYTES) {
    std::rename(path.cStr(), kj::str(path, ".1").cStr());
    open();
  }
  ssize_t n = ::write(fd != nullptr ? fd.get() : STDERR_FILENO, entry.begin(), size + 1);
  if (n > 0) written += static_cast<uint64_t>(n);  // A log that cannot be written is given up.
}

}  // namespace capstan
