#pragma once
// What listens inside fake places, for the ways into them that do not go through the helper.

#include "base/problem.h"
#include "domain/process.h"

#include <kj/async-io.h>
#include <kj/function.h>
#include <kj/map.h>
#include <kj/refcount.h>

namespace capstan {

// All in memory.
class FakeNetwork final {
public:
  using Serve = kj::Function<void(kj::Own<kj::AsyncIoStream>)>;
  // Runs `command` on the terminal's inner end.
  using Run = kj::Function<kj::Promise<ExitStatus>(kj::Array<kj::String> command,
                                                   kj::Own<kj::AsyncIoStream> terminal)>;

  FakeNetwork() = default;
  ~FakeNetwork() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(FakeNetwork);

  // ---- for tests
  // Whoever dials that port of the environment is handed to `serve`.
  void servePort(kj::StringPtr environmentId, uint16_t port, Serve serve);
  void endPort(kj::StringPtr environmentId, uint16_t port);
  // Connects, inside the environment, to a port on which a reverse listener stands.
  kj::Maybe<kj::Own<kj::AsyncIoStream>> connect(kj::StringPtr environmentId, uint16_t port);
  // What an interactive run does; without it there is none.
  kj::Maybe<Run> run;

  // ---- for the backend
  // unreachable when nothing listens there.
  Result<kj::Own<kj::AsyncIoStream>> dial(kj::StringPtr environmentId, uint16_t port);
  // portInUse. Port 0 = any.
  Result<kj::Own<kj::ConnectionReceiver>> listen(kj::StringPtr environmentId, uint16_t port);

private:
  class Receiver;
  kj::HashMap<kj::String, Serve> served;
  kj::HashMap<kj::String, Receiver*> receivers;  // Each removes itself.

  static kj::String keyOf(kj::StringPtr environmentId, uint16_t port) {
    return kj::str(environmentId, ':', port);
  }
};

}  // namespace capstan
