#include "agentctl/listener.h"

#include <unistd.h>

namespace capstan {

Result<UnixListener> UnixListener::bind(kj::StringPtr path) {
  auto bound = listenUnix(path);
  KJ_IF_MAYBE (problem, bound.tryGet<Problem>()) {
    problem->source = kj::str("agentctl");
    return kj::mv(*problem);
  }
  return UnixListener(kj::heapString(path), kj::mv(bound.get<kj::AutoCloseFd>()));
}

UnixListener::~UnixListener() noexcept(false) {
  if (path.size() > 0) unlink(path.cStr());
}

}  // namespace capstan
