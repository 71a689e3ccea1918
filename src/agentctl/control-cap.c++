#include "agentctl/control-cap.h"

namespace capstan {

namespace {

class InstanceCap final: public agentctl::Instance::Server {
public:
  InstanceCap(kj::Own<HelperPeer> peer, kj::Own<HelperInstance> instance)
      : peer(kj::mv(peer)), instance(kj::mv(instance)) {}

  kj::Promise<void> info(InfoContext context) override {
    peer->meter.admit();
    auto info = co_await instance->info();
    info.write(context.getResults().initInfo());
  }

  kj::Promise<void> configure(ConfigureContext context) override {
    peer->meter.admit();
    answer(instance->configure(context.getParams().getConfig()), context.getResults());
    return kj::READY_NOW;
  }

  kj::Promise<void> start(StartContext context) override {
    peer->meter.admit();
    auto result = co_await instance->start();
    KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
      writeProblem(*problem, context.getResults().initError());
    } else {
      context.getResults().setPid(result.get<int32_t>());
    }
  }

  // signal and stop are never refused for overload: they are the cure.
  kj::Promise<void> signal(SignalContext context) override {
    auto outcome = co_await instance->signal(kj::heapString(context.getParams().getName()));
    answer(kj::mv(outcome), context.getResults());
  }

  kj::Promise<void> resize(ResizeContext context) override {
    peer->meter.admit();
    auto params = context.getParams();
    answer(instance->resize(params.getColumns(), params.getRows()), context.getResults());
    return kj::READY_NOW;
  }

  kj::Promise<void> wait(WaitContext context) override {
    peer->meter.admit();
    context.releaseParams();
    auto result = co_await instance->wait();
    KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
      writeProblem(*problem, context.getResults().initError());
    } else {
      result.get<ExitRecord>().write(context.getResults().initExit());
    }
  }

  kj::Promise<void> stop(StopContext context) override {
    auto params = context.getParams();
    auto survivors = co_await instance->stop(params.getGraceMs(), params.getForce());
    context.getResults().setSurvivors(survivors);
  }

private:
  kj::Own<HelperPeer> peer;
  kj::Own<HelperInstance> instance;

  template <typename Results>
  static void answer(Outcome outcome, Results results) {
    KJ_IF_MAYBE (problem, outcome) {
      writeProblem(*problem, results.initError());
    }
  }
};

class ControlCap final: public agentctl::Control::Server {
public:
  ControlCap(HelperServer& server, kj::Own<HelperPeer> peer): server(server), peer(kj::mv(peer)) {
    server.ownerCame();
  }
  ~ControlCap() noexcept(false) { server.ownerWent(); }
  KJ_DISALLOW_COPY_AND_MOVE(ControlCap);

  kj::Promise<void> info(InfoContext context) override {
    peer->meter.admit();
    server.writeInfo(context.getResults().initInfo());
    return kj::READY_NOW;
  }

  kj::Promise<void> rotateCredential(RotateCredentialContext context) override {
    peer->meter.admit();
    auto made = server.credentials.rotate(context.getParams().getRotationId());
    KJ_IF_MAYBE (problem, made.tryGet<Problem>()) {
      writeProblem(*problem, context.getResults().initError());
    } else {
      auto& token = made.get<kj::Array<kj::byte>>();
      context.getResults().setToken(token);
      zeroBytes(token);
      server.endStaleConnections(*peer);
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> confirmCredential(ConfirmCredentialContext context) override {
    peer->meter.admit();
    auto id = context.getParams().getRotationId();
    auto outcome = server.credentials.confirm(id);
    KJ_IF_MAYBE (problem, outcome) {
      writeProblem(*problem, context.getResults().initError());
    } else {
      peer->generation =
          id;  // It has the token: a further rotation leaves it until it is confirmed.
      server.endStaleConnections(*peer);
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> create(CreateContext context) override {
    peer->meter.admit();
    auto made = server.create(context.getParams().getSpec());
    KJ_IF_MAYBE (problem, made.tryGet<Problem>()) {
      writeProblem(*problem, context.getResults().initError());
    } else {
      context.getResults().setInstance(
          kj::heap<InstanceCap>(kj::addRef(*peer), kj::mv(made.get<kj::Own<HelperInstance>>())));
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> list(ListContext context) override {
    peer->meter.admit();
    context.releaseParams();
    auto all = server.all();
    kj::Vector<kj::Promise<HelperInstance::Info>> asked(all.size());
    for (auto& instance: all) {
      asked.add(instance->info());
    }
    auto infos = co_await kj::joinPromises(asked.releaseAsArray());
    auto list = context.getResults().initInstances(infos.size());
    for (size_t i = 0; i < infos.size(); ++i) {
      infos[i].write(list[i]);
    }
  }

  kj::Promise<void> instance(InstanceContext context) override {
    peer->meter.admit();
    auto found = server.find(context.getParams().getId());
    KJ_IF_MAYBE (problem, found.tryGet<Problem>()) {
      writeProblem(*problem, context.getResults().initError());
    } else {
      context.getResults().setInstance(
          kj::heap<InstanceCap>(kj::addRef(*peer), kj::mv(found.get<kj::Own<HelperInstance>>())));
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> acknowledge(AcknowledgeContext context) override {
    peer->meter.admit();
    server.acknowledge(context.getParams().getId());
    return kj::READY_NOW;
  }

  kj::Promise<void> remove(RemoveContext context) override {
    peer->meter.admit();
    auto outcome = server.remove(context.getParams().getId());
    KJ_IF_MAYBE (problem, outcome) {
      writeProblem(*problem, context.getResults().initError());
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> drain(DrainContext context) override {
    server.drain();
    return kj::READY_NOW;
  }

  kj::Promise<void> shutdown(ShutdownContext context) override {
    auto survivors = co_await server.shutdown(context.getParams().getGraceMs());
    if (survivors > 0) {
      writeProblem(Problem(ErrorCode::INTERNAL,
                           kj::str(survivors, " processes are left that could not be ended")),
                   context.getResults().initError());
    }
  }

private:
  HelperServer& server;
  kj::Own<HelperPeer> peer;
};

}  // namespace

agentctl::Control::Client newControlCap(HelperServer& server, kj::Own<HelperPeer> peer) {
  return kj::heap<ControlCap>(server, kj::mv(peer));
}

}  // namespace capstan
