#pragma once
// What only some runtimes can do, as the fake does it.

#include "backends/fake/fake-backend.h"
#include "backends/fake/fake-place.h"

namespace capstan {

class FakeBackend::Abilities final: public RemoteStatusProvider,
                                    public RemoteSessionResumer,
                                    public RemoteInstanceRefresher,
                                    public PortDialer,
                                    public ReverseListener,
                                    public ConnectionTester,
                                    public InteractiveRunner {
public:
  explicit Abilities(FakeBackend& backend): backend(backend) {}

  kj::Promise<RemoteStatus> remoteStatus(PlaceRecord place) override;
  kj::Promise<Result<kj::Own<Attachment>>> resume(CreateRequest request, ProgressSink& progress,
                                                  InventoryLog& log) override;
  kj::Promise<Result<kj::Own<StagedRefresh>>> stage(PlaceRecord place) override;
  kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> dialPort(PlaceRecord place,
                                                           uint16_t port) override;
  kj::Promise<Result<kj::Own<kj::ConnectionReceiver>>> listenPort(PlaceRecord place,
                                                                  uint16_t port) override;
  kj::Promise<Outcome> testConnection(kj::Array<Label> executorConfig,
                                      kj::Array<Label> profileConfig,
                                      ProgressSink& progress) override;
  kj::Promise<Result<Started>> runInteractive(PlaceRecord place, kj::Array<kj::String> command,
                                              Terminal terminal) override;

private:
  FakeBackend& backend;

  // A step that changes nothing by itself.
  kj::Promise<Outcome> pass(kj::StringPtr step);
  // Null when the place's compute runs.
  Outcome checkRunning(const PlaceRecord& place);
};

// A connection to the place's helper beside the present one, or a new helper in its stead.
class FakeBackend::Refresh final: public StagedRefresh {
public:
  // `restarted`: the helper that is to replace the present one; null = the same helper.
  Refresh(FakeBackend& backend, PlaceRecord place, kj::Own<Attachment> staged,
          kj::Maybe<kj::Own<FakeHelper>> restarted);

  Attachment& attachment() override { return *staged; }
  bool processRestarted() const override { return restarts; }
  // The helper, with the name of its new process.
  kj::Array<InventoryItem> changedItems() const override;
  kj::Promise<Outcome> commit(kj::Function<void(kj::Own<Attachment>)> publish) override;
  kj::Promise<void> abort() override;

private:
  enum class State { STAGED, COMMITTING, COMMITTED, ABORTED };
  FakeBackend& backend;
  PlaceRecord place;
  kj::Own<Attachment> staged;
  kj::Maybe<kj::Own<FakeHelper>> restarted;
  bool restarts;
  State state = State::STAGED;
  // The connections there were when it was staged: what a commit closes.
  kj::Vector<kj::Own<CuttableStream::Switch>> old;

  void install(kj::Function<void(kj::Own<Attachment>)> publish);
};

}  // namespace capstan
