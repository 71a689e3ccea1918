#include "backends/fake/fake-abilities.h"

#include "backends/fake/fake-bringup.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr UnixMs FIRST_MS = 1'700'000'000'000;  // When the timer stands at its origin.

// Dials a helper that no place has yet.
class HelperDialer final: public StreamDialer {
public:
  explicit HelperDialer(kj::Own<FakeHelper> helper): helper(kj::mv(helper)) {}
  kj::Promise<kj::Own<kj::AsyncIoStream>> dial() override { return helper->dial(); }

private:
  kj::Own<FakeHelper> helper;
};

// The place's attachment, with another helper.
class StagedAttachment final: public Attachment {
public:
  StagedAttachment(kj::Own<Attachment> base, kj::Own<FakeHelper> helper)
      : base(kj::mv(base)), helper(kj::mv(helper)) {}

  kj::StringPtr helperKey() const override { return helper->key(); }
  kj::StringPtr generation() const override { return base->generation(); }
  kj::Own<StreamDialer> dialer() override { return kj::heap<HelperDialer>(kj::addRef(*helper)); }
  Credential credential() const override { return helper->credential(); }
  kj::StringPtr workspace() const override { return base->workspace(); }
  kj::String runDirectory(kj::StringPtr runId) const override { return base->runDirectory(runId); }
  kj::Array<ProcessVariable> inheritedVariables() const override {
    return base->inheritedVariables();
  }

private:
  kj::Own<Attachment> base;
  kj::Own<FakeHelper> helper;
};

Problem notRunning() {
  return Problem(ErrorCode::UNREACHABLE, kj::str("the environment's compute does not run"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

}  // namespace

kj::Promise<Outcome> FakeBackend::Abilities::pass(kj::StringPtr step) {
  return backend.step(kj::str(step), []() -> kj::Promise<Outcome> { return Outcome(); });
}

Outcome FakeBackend::Abilities::checkRunning(const PlaceRecord& place) {
  KJ_IF_MAYBE (compute, findThing(backend.world, place.inventory, fake_kind::COMPUTE)) {
    if (compute->running) return nullptr;
  }
  return notRunning();
}

kj::Promise<RemoteStatus> FakeBackend::Abilities::remoteStatus(PlaceRecord place) {
  RemoteStatus status;
  auto outcome = co_await pass("remote-status");
  status.runtime = kj::str(backend.name());
  status.lastCheckedAt =
      FIRST_MS + (backend.timer.now() - kj::origin<kj::TimePoint>()) / kj::MILLISECONDS;
  status.createdAt = FIRST_MS;
  status.details = kj::str("{}");
  KJ_IF_MAYBE (problem, outcome) {
    status.state = kj::str("unknown");
    status.errorMessage = kj::str(*problem);
    co_return kj::mv(status);
  }
  status.state = kj::str("absent");
  KJ_IF_MAYBE (compute, findThing(backend.world, place.inventory, fake_kind::COMPUTE)) {
    status.remoteName = kj::str(compute->name);
    status.state = kj::str(compute->running ? "running" : "stopped");
  }
  co_return kj::mv(status);
}

kj::Promise<Result<kj::Own<Attachment>>> FakeBackend::Abilities::resume(CreateRequest request,
                                                                        ProgressSink& progress,
                                                                        InventoryLog& log) {
  KJ_IF_MAYBE (problem, co_await pass("resume")) {
    co_return kj::mv(*problem);
  }
  request.reuseRequired = true;
  Bringup bringup(backend, kj::mv(request), progress, log);
  co_return co_await bringup.run();
}

kj::Promise<Result<kj::Own<kj::AsyncIoStream>>> FakeBackend::Abilities::dialPort(PlaceRecord place,
                                                                                 uint16_t port) {
  auto outcome = co_await pass("dial-port");
  if (outcome == nullptr) outcome = checkRunning(place);
  KJ_IF_MAYBE (problem, outcome) {
    co_return kj::mv(*problem);
  }
  co_return backend.world.network.dial(place.environmentId, port);
}

kj::Promise<Result<kj::Own<kj::ConnectionReceiver>>> FakeBackend::Abilities::listenPort(
    PlaceRecord place, uint16_t port) {
  auto outcome = co_await pass("listen-port");
  if (outcome == nullptr) outcome = checkRunning(place);
  KJ_IF_MAYBE (problem, outcome) {
    co_return kj::mv(*problem);
  }
  co_return backend.world.network.listen(place.environmentId, port);
}

kj::Promise<Outcome> FakeBackend::Abilities::testConnection(kj::Array<Label>, kj::Array<Label>,
                                                            ProgressSink& progress) {
  FakeStep reporting(progress, kj::str("Connect"), 0, 1);
  auto outcome = co_await pass("test");
  reporting.end(outcome.map([](Problem& problem) { return kj::str(problem); }));
  co_return kj::mv(outcome);
}

kj::Promise<Result<InteractiveRunner::Started>> FakeBackend::Abilities::runInteractive(
    PlaceRecord place, kj::Array<kj::String> command, Terminal) {
  auto outcome = co_await pass("interactive");
  if (outcome == nullptr) outcome = checkRunning(place);
  KJ_IF_MAYBE (problem, outcome) {
    co_return kj::mv(*problem);
  }
  KJ_IF_MAYBE (run, backend.world.network.run) {
    auto pipe = kj::newTwoWayPipe();
    auto exit = (*run)(kj::mv(command), kj::mv(pipe.ends[1]));
    co_return InteractiveRunner::Started{kj::mv(pipe.ends[0]), kj::mv(exit)};
  }
  co_return Problem(ErrorCode::NOT_FOUND, kj::str("no such command: ", command[0]));
}

// ---- refresh

kj::Promise<Result<kj::Own<StagedRefresh>>> FakeBackend::Abilities::stage(PlaceRecord place) {
  KJ_IF_MAYBE (problem, co_await pass("stage")) {
    co_return kj::mv(*problem);
  }
  kj::Maybe<kj::Own<FakeHelper>> restarted;
  if (backend.world.refreshRestarts) {
    auto name = FakeWorld::nameOf(place.environmentId, fake_kind::HELPER);
    auto launched = co_await backend.launcher.launch(kj::mv(name));
    if (launched.is<Problem>()) co_return kj::mv(launched.get<Problem>());
    restarted = kj::mv(launched.get<kj::Own<FakeHelper>>());
  }
  KJ_IF_MAYBE (present, backend.attach(place)) {
    auto staged = kj::mv(*present);
    KJ_IF_MAYBE (helper, restarted) {
      staged = kj::heap<StagedAttachment>(kj::mv(staged), kj::addRef(**helper));
    }
    co_return kj::Own<StagedRefresh>(
        kj::heap<Refresh>(backend, kj::mv(place), kj::mv(staged), kj::mv(restarted)));
  }
  co_return notRunning();
}

FakeBackend::Refresh::Refresh(FakeBackend& backend, PlaceRecord placeParam,
                              kj::Own<Attachment> staged,
                              kj::Maybe<kj::Own<FakeHelper>> restartedParam)
    : backend(backend),
      place(kj::mv(placeParam)),
      staged(kj::mv(staged)),
      restarted(kj::mv(restartedParam)),
      restarts(restarted != nullptr) {
  KJ_IF_MAYBE (helper, findThing(backend.world, place.inventory, fake_kind::HELPER)) {
    for (auto& each: helper->connections)
      old.add(kj::addRef(*each));
  }
}

kj::Array<InventoryItem> FakeBackend::Refresh::changedItems() const {
  KJ_IF_MAYBE (fresh, restarted) {
    auto changed = kj::heapArrayBuilder<InventoryItem>(1);
    changed.add(cloneItem(KJ_ASSERT_NONNULL(findItem(place.inventory, fake_kind::HELPER))));
    auto nonce = kj::str(nonceOf(changed[0]));
    changed[0].details = kj::arr(Label{kj::str(FAKE_NONCE), kj::mv(nonce)},
                                 Label{kj::str(FAKE_PROCESS), kj::str((*fresh)->key())});
    return changed.finish();
  }
  return nullptr;
}

kj::Promise<Outcome> FakeBackend::Refresh::commit(kj::Function<void(kj::Own<Attachment>)> publish) {
  if (state != State::STAGED) {
    co_return Problem(ErrorCode::WRONG_STATE, kj::str("this refresh has been decided already"));
  }
  state = State::COMMITTING;
  auto act = [this, &publish]() -> kj::Promise<Outcome> {
    if (state != State::COMMITTING) {
      return Outcome(Problem(ErrorCode::WRONG_STATE, kj::str("the refresh was aborted")));
    }
    if (findThing(backend.world, place.inventory, fake_kind::HELPER) == nullptr) {
      return Outcome(notRunning());
    }
    install(kj::mv(publish));
    return Outcome();
  };
  auto outcome = co_await backend.step(kj::str("commit"), kj::mv(act));
  if (state == State::COMMITTING) state = State::ABORTED;
  co_return kj::mv(outcome);
}

void FakeBackend::Refresh::install(kj::Function<void(kj::Own<Attachment>)> publish) {
  state = State::COMMITTED;
  auto& helper = KJ_ASSERT_NONNULL(findThing(backend.world, place.inventory, fake_kind::HELPER));
  KJ_IF_MAYBE (fresh, restarted) {
    helper.helper = kj::addRef(**fresh);
    helper.running = true;
  }
  publish(kj::mv(staged));
  auto closing = kj::mv(old);
  for (auto& each: closing)
    each->cut();
}

kj::Promise<void> FakeBackend::Refresh::abort() {
  if (state == State::COMMITTED) return kj::READY_NOW;
  state = State::ABORTED;
  restarted = nullptr;
  return kj::READY_NOW;
}

// ---- which of them there are

kj::Maybe<RemoteStatusProvider&> FakeBackend::remoteStatus() {
  if (!options.abilities.remoteStatus) return nullptr;
  return *abilities;
}
kj::Maybe<RemoteSessionResumer&> FakeBackend::resumer() {
  if (!options.abilities.resume) return nullptr;
  return *abilities;
}
kj::Maybe<RemoteInstanceRefresher&> FakeBackend::refresher() {
  if (!options.abilities.refresh) return nullptr;
  return *abilities;
}
kj::Maybe<PortDialer&> FakeBackend::portDialer() {
  if (!options.abilities.dialPorts) return nullptr;
  return *abilities;
}
kj::Maybe<ReverseListener&> FakeBackend::reverseListener() {
  if (!options.abilities.listenPorts) return nullptr;
  return *abilities;
}
kj::Maybe<ConnectionTester&> FakeBackend::tester() {
  if (!options.abilities.test) return nullptr;
  return *abilities;
}
kj::Maybe<InteractiveRunner&> FakeBackend::interactiveRunner() {
  if (!options.abilities.interactive) return nullptr;
  return *abilities;
}

}  // namespace capstan
