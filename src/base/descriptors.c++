#include "base/descriptors.h"

#include <kj/debug.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr int FIRST_OTHER = STDERR_FILENO + 1;
constexpr rlim_t MOST_DESCRIPTORS = 1u << 20;  // The kernel's own limit, unless it was changed.

}  // namespace

void openStandardStreams() {
  for (int fd = STDIN_FILENO; fd < FIRST_OTHER; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    int fresh;
    // The lowest free number, hence `fd`: those below it are open by now.
    KJ_SYSCALL(fresh = open("/dev/null", O_RDWR));
    KJ_ASSERT(fresh == fd);
  }
}

void closeInheritedDescriptors() {
  if (syscall(SYS_close_range, FIRST_OTHER, ~0U, 0) == 0) return;
  // A kernel before 5.9.
  long most = sysconf(_SC_OPEN_MAX);
  if (most < 0 || most > 65536) most = 65536;
  for (int fd = FIRST_OTHER; fd < most; ++fd)
    close(fd);
}

uint64_t raiseDescriptorLimit() {
  rlimit limit;
  KJ_SYSCALL(getrlimit(RLIMIT_NOFILE, &limit));
  auto before = limit.rlim_cur;
  limit.rlim_cur = std::max(before, std::min(limit.rlim_max, MOST_DESCRIPTORS));
  KJ_SYSCALL(setrlimit(RLIMIT_NOFILE, &limit));
  return before;
}

}  // namespace capstan
