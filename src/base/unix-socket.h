#pragma once
// Unix sockets bound by hand: kj's own listen() leaves mode 0755 and fails on a stale file.

#include "base/problem.h"

#include <kj/io.h>
#include <kj/string.h>

namespace capstan {

// Most octets of a path that every kernel and both of our programs take (sockaddr_un has 107).
inline constexpr size_t UNIX_PATH_BYTES = 99;

// Binds and listens at `path` with mode 0600. A socket file of this user that nobody listens on
// any more is replaced; anything else there is left alone: portInUse. The path's folder must be
// this user's. Ask from one process at a time (the caller holds a lock).
Result<kj::AutoCloseFd> listenUnix(kj::StringPtr path);

// Which process of this user listens at `path`; null = none does, or another user's.
kj::Maybe<int64_t> listenerOf(kj::StringPtr path);

}  // namespace capstan
