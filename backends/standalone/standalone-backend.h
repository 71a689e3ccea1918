#pragma once

#include "backends/backend.h"
#include "base/async.h"
#include "base/entropy.h"
#include "transport/child.h"
#include "transport/helper-files.h"
#include "transport/offload.h"

#include <kj/async-io.h>

namespace capstan {

struct StandaloneOptions {
  kj::String stateDirectory;             // Absolute; environments live below it.
  kj::String runtimeDirectory;           // Absolute, private; the helper's socket stands in it.
  kj::Array<ProcessVariable> variables;  // Of the daemon, for agents to start from.
  kj::Duration helperStart = 30 * kj::SECONDS;
  // How long a helper outlives its daemon's link before it ends its instances and itself.
  kj::Duration unowned = 10 * kj::MINUTES;
};

// Environments on this machine: a folder each, all served by one helper process that is started
// detached with the first of them. Isolates nothing from the daemon's user.
class StandaloneBackend final: public Backend {
public:
  // All references must outlive it.
  StandaloneBackend(kj::AsyncIoContext& io, UvLoop& uv, Offload& offload, HelperFiles& files,
                    Entropy& entropy, StandaloneOptions options);
  ~StandaloneBackend() noexcept(false);

  kj::StringPtr name() const override { return "standalone"_kj; }
  Traits traits() const override { return Traits(); }
  kj::Promise<Health> healthCheck() override;
  kj::Promise<Result<kj::Own<Attachment>>> createInstance(CreateRequest request,
                                                          ProgressSink& progress,
                                                          InventoryLog& log) override;
  kj::Promise<StopReport> stopInstance(PlaceRecord place, StopRequest request) override;
  kj::Promise<kj::Vector<Recovered>> recoverInstances(kj::Array<PlaceRecord> places) override;
  kj::Promise<CleanupReport> cleanUp(PlaceRecord place, CleanupScope scope, ProgressSink& progress,
                                     InventoryLog& log) override;
  kj::Promise<void> watch(RuntimeObserver&) override { return kj::NEVER_DONE; }
  kj::Promise<void> close() override;

private:
  class LocalAttachment;
  // The helper that serves all environments now.
  struct Helper {
    kj::Own<Child> process;
    kj::String socket;
    Credential nonce;
  };

  kj::AsyncIoContext& io;
  UvLoop& uv;
  Offload& offload;
  HelperFiles& files;
  Entropy& entropy;
  StandaloneOptions options;
  kj::Maybe<Helper> helper;
  kj::Maybe<Problem> startFailure;  // Of the last start.
  SingleFlight starting;

  kj::String environmentDirectory(kj::StringPtr environmentId) const;
  kj::Promise<Outcome> ensurePlace(CreateRequest request, InventoryLog& log);
  kj::Promise<Outcome> ensureHelper();
  kj::Promise<void> startHelper();
  kj::Promise<Outcome> launchHelper(kj::String executable);
};

}  // namespace capstan
