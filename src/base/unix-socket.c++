#include "base/unix-socket.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr int BACKLOG = 256;

Problem cannotListen(kj::StringPtr path, int error) {
  const char* name = strerrorname_np(error);
  auto code = error == EADDRINUSE ? ErrorCode::PORT_IN_USE
              : error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM
                  ? ErrorCode::RESOURCE_EXHAUSTED
                  : ErrorCode::DENIED;
  auto problem = Problem(code, kj::str("cannot listen at ", path))
                     .because(kj::str(strerror(error)))
                     .retryable(RetryHint::AFTER_USER_ACTION);
  problem.upstreamCode = kj::str(name == nullptr ? "unknown" : name);
  return problem;
}

// Null with errno set when there is none.
kj::AutoCloseFd newSocket() {
  return kj::AutoCloseFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// 0, or the errno of bind. The file is made with mode 0600 by the umask: this program has no
// other thread that makes files meanwhile.
int bindTo(int fd, const sockaddr_un& address) {
  mode_t before = umask(0177);
  int rc = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  int error = rc < 0 ? errno : 0;
  umask(before);
  return error;
}

// Whether the file at `path` is a socket of this user on which nobody listens.
bool isStale(kj::StringPtr path, const sockaddr_un& address) {
  struct stat info;
  if (lstat(path.cStr(), &info) < 0 || !S_ISSOCK(info.st_mode) || info.st_uid != geteuid()) {
    return false;
  }
  auto probe = newSocket();
  return probe != nullptr &&
         connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) < 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

Result<kj::AutoCloseFd> listenUnix(kj::StringPtr path) {
  if (path.size() > UNIX_PATH_BYTES || !path.startsWith("/")) {
    return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("cannot listen at ", path))
        .because(kj::str("a socket's path is absolute and has at most ", UNIX_PATH_BYTES,
                         " bytes, this one has ", path.size()))
        .advise(kj::str("choose a shorter path"));
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.begin(), path.size());

  auto fd = newSocket();
  if (fd == nullptr) return cannotListen(path, errno);
  int error = bindTo(fd, address);
  if (error == EADDRINUSE && isStale(path, address)) {
    if (unlink(path.cStr()) < 0 && errno != ENOENT) return cannotListen(path, errno);
    error = bindTo(fd, address);
  }
  if (error != 0) return cannotListen(path, error);
  if (listen(fd, BACKLOG) < 0) {
    error = errno;
    unlink(path.cStr());
    return cannotListen(path, error);
  }
  return kj::mv(fd);
}

kj::Maybe<int64_t> listenerOf(kj::StringPtr path) {
  if (path.size() > UNIX_PATH_BYTES) return nullptr;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.begin(), path.size());
  auto probe = newSocket();
  if (probe == nullptr ||
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) < 0) {
    return nullptr;
  }
  // Of a listener the kernel keeps who called listen(): unix(7), SO_PEERCRED.
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != geteuid()) {
    return nullptr;
  }
  return peer.pid;
}

}  // namespace capstan
