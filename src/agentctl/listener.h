#pragma once

#include "base/problem.h"
#include "base/unix-socket.h"

#include <kj/io.h>

namespace capstan {

// The helper's listening unix socket, as listenUnix() makes it. Its file is removed at the end.
class UnixListener {
public:
  // Problems as of listenUnix(), with source "agentctl".
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
