#pragma once
// What only some runtimes can do. Core asks the backend for each of these and does without when it
// gets none.

#include "backends/backend.h"

#include <kj/async-io.h>
#include <kj/function.h>

namespace capstan {

// How the runtime itself sees a place, read from outside.
class RemoteStatusProvider {
public:
  virtual ~RemoteStatusProvider() noexcept(false) = default;
  // Reads only. A place that cannot be asked is an answer: `errorMessage` says why.
  virtual kj::Promise<RemoteStatus> remoteStatus(PlaceRecord place) = 0;
};

// Starts compute again that has stopped, in the place that was kept.
class RemoteSessionResumer {
public:
  virtual ~RemoteSessionResumer() noexcept(false) = default;
  // workspaceLost when the place is confirmed to be gone, unreachable when it cannot be told:
  // nothing is made or replaced then.
  virtual kj::Promise<Result<kj::Own<Attachment>>> resume(CreateRequest request,
                                                          ProgressSink& progress,
                                                          InventoryLog& log) = 0;
};

// A connection to a place's helper that is ready to replace the present one, which goes on serving
// until then. Dropped without commit() it is aborted.
class StagedRefresh {
public:
  virtual ~StagedRefresh() noexcept(false) = default;
  // The way to the staged helper, until commit() or abort().
  virtual Attachment& attachment() = 0;
  // Whether the helper is another process than before: what ran in the old one is gone.
  virtual bool processRestarted() const = 0;
  // The items of the place's inventory that are to say something else once it is committed, with
  // their numbers. Whoever commits writes them down before; after a refusal they say again what
  // they said.
  virtual kj::Array<InventoryItem> changedItems() const = 0;
  // Installs the connection, calls `publish` once with it, then closes the old one. A Problem has
  // installed and published nothing, and the old one serves on; after commit() or abort():
  // wrongState. `publish` must not throw. Dropping the promise before `publish` is a refusal.
  virtual kj::Promise<Outcome> commit(kj::Function<void(kj::Own<Attachment>)> publish) = 0;
  // Closes what was staged and nothing else. Repeating it is fine.
  virtual kj::Promise<void> abort() = 0;
};
// Makes a new connection to a place whose present one still serves, or has to be replaced.
class RemoteInstanceRefresher {
public:
  virtual ~RemoteInstanceRefresher() noexcept(false) = default;
  // Nothing has changed when it fails, or when the result is dropped. unreachable when the place's
  // compute does not run.
  virtual kj::Promise<Result<kj::Own<StagedRefresh>>> stage(PlaceRecord place) = 0;
};

// Reaches ports inside a place without the helper.
class PortDialer {
public:
  virtual ~PortDialer() noexcept(false) = default;
  // `port` on the place's loopback.
  virtual kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> dialPort(PlaceRecord place,
                                                                   uint16_t port) = 0;
};

// Listens inside a place without the helper.
class ReverseListener {
public:
  virtual ~ReverseListener() noexcept(false) = default;
  // Port 0 = any. The receiver listens while it lives.
  virtual kj::Promise<Result<kj::Own<kj::ConnectionReceiver>>> listenPort(PlaceRecord place,
                                                                          uint16_t port) = 0;
};

// Tries an executor's connection before anything is made with it.
class ConnectionTester {
public:
  virtual ~ConnectionTester() noexcept(false) = default;
  // Reports its steps; null = all of them went well. Changes nothing there.
  virtual kj::Promise<Outcome> testConnection(kj::Array<Label> executorConfig,
                                              kj::Array<Label> profileConfig,
                                              ProgressSink& progress) = 0;
};

// A terminal in a place that does not go through the helper.
class InteractiveRunner {
public:
  virtual ~InteractiveRunner() noexcept(false) = default;
  struct Started {
    kj::Own<kj::AsyncIoStream> terminal;
    kj::Promise<ExitStatus> exit;
  };
  virtual kj::Promise<Result<Started>> runInteractive(PlaceRecord place,
                                                      kj::Array<kj::String> command,
                                                      Terminal terminal) = 0;
};

}  // namespace capstan
