#pragma once
// Fakes under the names of real runtimes, with real agentctl processes, beside the standalone
// runtime of a test's daemon.

#include "backends/fake/fake-backend.h"
#include "support/daemon.h"
#include "support/local-helper.h"

namespace capstan::test {

class FakeRuntimes final: public FurtherRuntimes {
public:
  FakeRuntimes(IoLoop& loop, UvLoop& uv, Entropy& entropy, LocalHelpers::Sharing sharing)
      : loop(loop), entropy(entropy), helpers(loop, uv, entropy, builtAgentctl(), sharing) {
    world.controls.setDefaultDelay(1 * kj::MILLISECONDS);
  }

  TempDir folder;
  // Names for the next life of the daemon; all work on the one world.
  kj::Vector<kj::String> names;
  FakeWorld world{kj::str(folder.path())};

  kj::Own<FakeBackend> make(kj::StringPtr name) {
    FakeOptions options;
    options.name = kj::str(name);
    options.abilities.refresh = true;
    options.abilities.resume = true;
    options.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")});
    return kj::heap<FakeBackend>(loop.timer, entropy, world, helpers, kj::mv(options));
  }
  // One more, for a daemon that lives already.
  Backend& addLate(kj::StringPtr name) { return *late.add(make(name)); }
  kj::Vector<kj::Own<Backend>> begin() override {
    kj::Vector<kj::Own<Backend>> result;
    for (auto& name: names)
      result.add(make(name));
    return result;
  }

private:
  IoLoop& loop;
  Entropy& entropy;
  LocalHelpers helpers;
  kj::Vector<kj::Own<Backend>> late;
};

// A daemon with the fake as "docker" beside the real standalone runtime.
class DockerDaemon {
public:
  explicit DockerDaemon(Limits limits = Limits(),
                        LocalHelpers::Sharing sharing = LocalHelpers::Sharing::ONE_FOR_ALL)
      : daemon(limits, NewRuntimes([this, sharing](IoLoop& loop, UvLoop& uv, Entropy& entropy) {
                 auto made = kj::heap<FakeRuntimes>(loop, uv, entropy, sharing);
                 made->names.add(kj::str("docker"));
                 fakes = made.get();
                 return kj::Own<FurtherRuntimes>(kj::mv(made));
               })) {}

private:
  FakeRuntimes* fakes = nullptr;  // Before the daemon, which sets it.

public:
  Daemon daemon;

  FakeRuntimes& runtimes() { return *fakes; }
  FakeWorld& world() { return fakes->world; }
  FakeControls& controls() { return fakes->world.controls; }
};

}  // namespace capstan::test
