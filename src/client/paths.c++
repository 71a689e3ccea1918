#include "client/paths.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

kj::Maybe<kj::String> processVariable(kj::StringPtr name) {
  const char* value = std::getenv(name.cStr());
  if (value == nullptr || *value == 0) return nullptr;
  return kj::str(value);
}

kj::String runtimeDirectory(GetVariable& get, uint32_t uid) {
  KJ_IF_MAYBE (directory, get("XDG_RUNTIME_DIR"_kj)) {
    auto own = kj::str(*directory, "/capstan");
    if (own.startsWith("/") && own.size() + LONGEST_SOCKET_NAME <= SOCKET_PATH_BYTES) return own;
  }
  if (uid == 0) return kj::str("/run/capstan");
  return kj::str("/tmp/.capstan-", uid);
}

kj::String defaultSocket(GetVariable& get, uint32_t uid) {
  return kj::str(runtimeDirectory(get, uid), "/capstan.sock");
}

Result<kj::String> defaultStateDirectory(GetVariable& get) {
  KJ_IF_MAYBE (directory, get("XDG_STATE_HOME"_kj)) {
    if (directory->startsWith("/")) return kj::str(*directory, "/capstan");
  }
  KJ_IF_MAYBE (home, get("HOME"_kj)) {
    if (home->startsWith("/")) return kj::str(*home, "/.local/state/capstan");
  }
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("no folder for the daemon's state is known"))
      .because(kj::str("neither XDG_STATE_HOME nor HOME is set to an absolute path"))
      .advise(kj::str("set one of them, or pass --state-dir"));
}

namespace {

Problem refuse(kj::StringPtr path, kj::String cause) {
  return Problem(ErrorCode::DENIED, kj::str("cannot use the folder ", path))
      .because(kj::mv(cause))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

}  // namespace

Outcome ensurePrivateDirectory(kj::StringPtr path) {
  if (!path.startsWith("/")) return refuse(path, kj::str("the path is not absolute"));
  // Parents by ordinary rules; only the last folder must be private.
  for (size_t i = 1; i < path.size(); ++i) {
    if (path[i] != '/') continue;
    auto parent = kj::str(path.slice(0, i));
    if (mkdir(parent.cStr(), 0755) < 0 && errno != EEXIST) {
      return refuse(path, kj::str("cannot make ", parent, ": ", strerror(errno)));
    }
  }
  if (mkdir(path.cStr(), 0700) < 0 && errno != EEXIST) {
    return refuse(path, kj::str(strerror(errno)));
  }
  int fd = open(path.cStr(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return refuse(path, kj::str("it is no folder of its own: ", strerror(errno)));
  kj::AutoCloseFd closing(fd);
  struct stat info;
  KJ_SYSCALL(fstat(fd, &info));
  if (info.st_uid != geteuid()) {
    return refuse(path, kj::str("it belongs to user ", info.st_uid));
  }
  if ((info.st_mode & 0077) != 0 && fchmod(fd, 0700) < 0) {
    return refuse(path, kj::str("it is open to others and cannot be closed: ", strerror(errno)));
  }
  return nullptr;
}

}  // namespace capstan
