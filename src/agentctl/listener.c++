#include "agentctl/listener.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr int BACKLOG = 64;

Problem failed(ErrorCode code, kj::StringPtr what, kj::StringPtr path) {
  const char* name = strerrorname_np(errno);
  return Problem(code, kj::str(what, ' ', path))
      .from("agentctl", kj::str(name == nullptr ? "unknown" : name));
}

// Whether `path` is a socket of ours that nobody listens on.
bool isStale(kj::StringPtr path, const sockaddr_un& address) {
  struct stat found;
  if (lstat(path.cStr(), &found) < 0 || !S_ISSOCK(found.st_mode) || found.st_uid != geteuid()) {
    return false;
  }
  kj::AutoCloseFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe != nullptr &&
         connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) < 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

Result<UnixListener> UnixListener::bind(kj::StringPtr path) {
  if (!path.startsWith("/") || path.size() > MAX_PATH_BYTES) {
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("a socket's path is absolute and below 100 octets"));
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.begin(), path.size());
  kj::AutoCloseFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd == nullptr) return failed(ErrorCode::RESOURCE_EXHAUSTED, "no socket for", path);

  auto tryBind = [&]() {
    mode_t before = umask(0177);
    int rc = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    int error = errno;
    umask(before);
    errno = error;
    return rc == 0;
  };
  if (!tryBind()) {
    if (errno != EADDRINUSE || !isStale(path, address)) {
      bool inUse = errno == EADDRINUSE || errno == EAGAIN;
      return failed(inUse ? ErrorCode::PORT_IN_USE : ErrorCode::DENIED, "cannot listen on", path);
    }
    unlink(path.cStr());
    if (!tryBind()) return failed(ErrorCode::PORT_IN_USE, "cannot listen on", path);
  }
  if (listen(fd, BACKLOG) < 0) {
    unlink(path.cStr());
    return failed(ErrorCode::DENIED, "cannot listen on", path);
  }
  return UnixListener(kj::heapString(path), kj::mv(fd));
}

UnixListener::~UnixListener() noexcept(false) {
  if (path.size() > 0) unlink(path.cStr());
}

}  // namespace capstan
