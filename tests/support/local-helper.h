#pragma once
// Real agentctl processes as helpers of fake places.

#include "backends/fake/fake-helper.h"
#include "base/async.h"
#include "base/entropy.h"
#include "support/test.h"
#include "transport/uv-loop.h"

namespace capstan::test {

// Starts agentctl processes in a folder of its own; each is killed with the last place that it
// serves, or with this object.
class LocalHelpers final: public FakeHelperLauncher {
public:
  enum class Sharing {
    ONE_FOR_ALL,  // Cheap: one process for any number of places. Losing a place kills no process
                  // and cuts no connection.
    ONE_EACH,     // Losing a place loses its processes, as it is with real runtimes.
  };
  // `program`: an agentctl. All references must outlive it and the worlds that hold helpers of it.
  LocalHelpers(IoLoop& loop, UvLoop& uv, Entropy& entropy, kj::String program, Sharing sharing);
  ~LocalHelpers() noexcept(false);

  kj::Promise<Result<kj::Own<FakeHelper>>> launch(kj::String name) override;
  size_t launched() const { return count; }

private:
  class Process;
  IoLoop& loop;
  UvLoop& uv;
  Entropy& entropy;
  kj::String program;
  Sharing sharing;
  TempDir folder;
  size_t count = 0;
  kj::Maybe<kj::Own<FakeHelper>> shared;
  kj::Maybe<Problem> failure;  // Of the last start of the shared one.
  SingleFlight starting;

  kj::Promise<void> startShared();
  kj::Promise<Result<kj::Own<FakeHelper>>> start();
};

// $AGENTCTL_DIR/agentctl-linux-ARCH; throws when the test was started without it.
kj::String builtAgentctl();

}  // namespace capstan::test
