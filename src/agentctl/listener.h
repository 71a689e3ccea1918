#pragma once
// The helper's unix socket, bound by hand: kj's listen() makes a socket that others may open and
// fails on a stale one.

#include "base/problem.h"

#include <kj/io.h>

namespace capstan {

// A bound, listening socket of mode 0600. Its file is removed at the end.
class UnixListener {
public:
  static constexpr size_t MAX_PATH_BYTES = 99;

  // `path` is absolute. A socket that is already there is replaced only if it is ours and nobody
  // answers on it. Problems: invalidArgument, portInUse, denied.
  static Result<UnixListener> bind(kj::StringPtr path);

  UnixListener(UnixListener&&) = default;
  ~UnixListener() noexcept(false);

  kj::AutoCloseFd takeFd() { return kj::mv(fd); }

private:
  UnixListener(kj::String path, kj::AutoCloseFd fd): path(kj::mv(path)), fd(kj::mv(fd)) {}

  kj::String path;  // Empty: moved from.
  kj::AutoCloseFd fd;
};

}  // namespace capstan
