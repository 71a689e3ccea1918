#include "store/state-lock.h"

#include <kj/time.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

Problem cannotLock(kj::StringPtr path, kj::String cause) {
  return Problem(ErrorCode::DENIED, kj::str("cannot lock ", path))
      .because(kj::mv(cause))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

Problem cannotLock(kj::StringPtr path, int error) {
  auto cause = kj::str(strerror(error));
  if (error != ENOSPC && error != EDQUOT) return cannotLock(path, kj::mv(cause));
  return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("state store full: ", path))
      .because(kj::mv(cause))
      .advise(kj::str("free space on that file system"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

// What the owner wrote about itself; only shown, never relied on.
kj::String readOwner(int fd) {
  char text[256];
  ssize_t n = pread(fd, text, sizeof(text), 0);
  while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
    --n;
  if (n <= 0) return kj::str("an unknown process");
  return kj::heapString(text, n);
}

kj::String describeSelf() {
  time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  char when[32];
  strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return kj::str("pid ", getpid(), ", started ", when, "\n");
}

}  // namespace

Result<StateLock> StateLock::take(kj::StringPtr directory) {
  auto path = kj::str(directory, "/lock");
  int fd = open(path.cStr(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    return errno == ELOOP ? cannotLock(path, kj::str("it is a symbolic link"))
                          : cannotLock(path, errno);
  }
  kj::AutoCloseFd file(fd);
  struct stat info;
  KJ_SYSCALL(fstat(fd, &info));
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return cannotLock(path, kj::str("it is not a file of this user"));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK) return cannotLock(path, errno);
    return Problem(ErrorCode::STATE_LOCKED, kj::str("another daemon owns the state in ", directory))
        .because(readOwner(fd))
        .advise(kj::str("use that one, stop it, or choose another --state-dir"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  auto self = describeSelf();
  if (ftruncate(fd, 0) < 0) return cannotLock(path, errno);
  ssize_t written = pwrite(fd, self.begin(), self.size(), 0);
  if (written < 0) return cannotLock(path, errno);
  if (written < static_cast<ssize_t>(self.size())) return cannotLock(path, ENOSPC);
  return StateLock(kj::mv(file));
}

}  // namespace capstan
