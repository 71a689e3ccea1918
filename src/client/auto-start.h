#pragma once

#include "base/problem.h"
#include "client/connection.h"

namespace capstan {

struct AutoStart {
  // Whose daemon may answer. In a shared folder such as /tmp another user can make the socket first
  // and would be told commands and variables.
  enum class Owner { US_OR_ROOT, ANYBODY };

  kj::String socket;
  kj::String daemon;                     // Path of capstand.
  kj::Maybe<kj::String> stateDirectory;  // Null = the daemon's default.
  Owner owner = Owner::US_OR_ROOT;
  kj::Duration patience = 5 * kj::SECONDS;  // For the socket to answer.
};

// The exit status of a daemon that was started by a client and found another one with its state.
constexpr int DAEMON_GAVE_WAY = 75;

// Connects to the daemon at `socket`; starts one when nobody answers there. The daemon gets a
// session of its own, ends by itself when it has been idle for 10 minutes, and writes its log into
// its state directory. Of two clients that start one at the same time the loser's daemon gives
// way, and both reach the winner's; one that is just ending is waited for. unreachable, with the
// daemon's last words, when none comes up; denied when it is another user's.
kj::Promise<Result<kj::Own<ClientConnection>>> connectOrStart(kj::AsyncIoContext& io,
                                                              AutoStart options);

}  // namespace capstan
