#pragma once

#include <kj/async-io.h>

namespace capstan {

// Opens byte streams to one place: a unix socket, a channel of a tunnel, a pod's port. Each stream
// is the caller's; the dialer must outlive the promise, not the stream.
class StreamDialer {
public:
  virtual ~StreamDialer() noexcept(false) = default;

  // One new connection. Rejects as disconnected when nobody listens there; the caller sets the
  // deadline by dropping the promise, which leaves nothing open.
  virtual kj::Promise<kj::Own<kj::AsyncIoStream>> dial() = 0;
};

}  // namespace capstan
