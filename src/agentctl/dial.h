#pragma once
// Connections from here to something that listens here. Literal addresses and localhost only: the
// helper resolves no names.

#include "base/problem.h"
#include "stream.capnp.h"

#include <kj/async-io.h>
#include <kj/async-unix.h>
#include <kj/timer.h>
#include <kj/vector.h>

#include <sys/socket.h>

namespace capstan {

struct DialAddress {
  sockaddr_storage address;
  socklen_t size;
  kj::String text;
};

// What to try, in order. Problems: invalidArgument, unsupported (a name).
Result<kj::Vector<DialAddress>> parseTarget(rpc::Target::Reader target);

// The first that answers. Problems: unreachable (errno's name of the last), timeout after 30 s.
kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> dialTarget(kj::UnixEventPort& port,
                                                           kj::Timer& timer,
                                                           kj::LowLevelAsyncIoProvider& network,
                                                           kj::Vector<DialAddress> addresses);

}  // namespace capstan
