#include "rpc/session-cap.h"

#include "rpc/convert.h"
#include "rpc/streams.h"

namespace capstan {

namespace {

// The methods of Instance, for both interfaces that have them.
template <typename Server>
class ProcessMethods: public Server {
public:
  explicit ProcessMethods(Guard guard): guard(kj::mv(guard)) {}

protected:
  using Instance = rpc::Instance::Server;

  // The process, or why there is none.
  virtual Result<kj::Own<ProcessActor>> process() = 0;
  // Null, and the answer is given, when there is none.
  template <typename Context>
  kj::Maybe<kj::Own<ProcessActor>> processFor(Context& context) {
    auto found = process();
    if (found.template is<Problem>()) {
      fail(context.getResults(), found.template get<Problem>());
      return nullptr;
    }
    return kj::mv(found.template get<kj::Own<ProcessActor>>());
  }

  kj::Promise<void> output(Instance::OutputContext context) override {
    if (guard.refuses(ruleOf("Instance.output"), context)) co_return;
    auto params = context.getParams();
    OutputRequest what{params.getOffset(), params.getFollow(), params.getHold()};
    auto found = processFor(context);
    KJ_IF_MAYBE (self, found) {
      co_await deliver(context, kj::mv(*self), guard.clone(), what);
    }
  }
  kj::Promise<void> stdin(Instance::StdinContext context) override {
    if (guard.refuses(ruleOf("Instance.stdin"), context)) co_return;
    auto takeOver = context.getParams().getTakeOver() ? TakeOver::YES : TakeOver::NO;
    auto found = processFor(context);
    if (found == nullptr) co_return;
    auto self = kj::mv(KJ_ASSERT_NONNULL(found));
    auto opened = co_await self->openStdin(takeOver);
    if (opened.template is<Problem>()) {
      fail(context.getResults(), opened.template get<Problem>());
      co_return;
    }
    context.getResults().setStdin(
        newStdin(kj::mv(opened.template get<kj::Own<StdinWriter>>()), kj::mv(self)));
  }
  kj::Promise<void> signal(Instance::SignalContext context) override {
    if (guard.refuses(ruleOf("Instance.signal"), context)) co_return;
    auto found = processFor(context);
    if (found == nullptr) co_return;
    auto self = kj::mv(KJ_ASSERT_NONNULL(found));
    KJ_IF_MAYBE (problem, co_await self->signal(copy(context.getParams().getName()))) {
      fail(context.getResults(), *problem);
    }
  }
  kj::Promise<void> resize(Instance::ResizeContext context) override {
    if (guard.refuses(ruleOf("Instance.resize"), context)) co_return;
    auto params = context.getParams();
    auto found = processFor(context);
    if (found == nullptr) co_return;
    auto self = kj::mv(KJ_ASSERT_NONNULL(found));
    KJ_IF_MAYBE (problem, co_await self->resize(params.getColumns(), params.getRows())) {
      fail(context.getResults(), *problem);
    }
  }
  template <typename Ended>
  void answer(Instance::WaitContext context, Ended&& ended) {
    if (ended.template is<Problem>()) {
      fail(context.getResults(), ended.template get<Problem>());
    } else {
      write(context.getResults().initExit(), ended.template get<ExitStatus>());
    }
  }

  Guard guard;
};

// One run of a session, also when a later one has followed it.
class RunCap final: public ProcessMethods<rpc::Run::Server> {
public:
  RunCap(kj::Own<RunActor> run, Guard guard): ProcessMethods(kj::mv(guard)), run(kj::mv(run)) {}

protected:
  Result<kj::Own<ProcessActor>> process() override { return run->process(); }
  kj::Promise<void> id(IdContext context) override {
    if (guard.refuses(ruleOf("Run.id"), context)) co_return;
    context.getResults().setRunId(run->id());
  }
  // When the end is durable: what is told here is true after a crash too.
  kj::Promise<void> wait(Instance::WaitContext context) override {
    if (guard.refuses(ruleOf("Instance.wait"), context)) co_return;
    answer(context, co_await kj::addRef(*run)->wait());
  }

private:
  kj::Own<RunActor> run;
};

class ExecCap final: public ProcessMethods<rpc::Instance::Server> {
public:
  ExecCap(kj::Own<ExecProcess> owned, Guard guard)
      : ProcessMethods(kj::mv(guard)), owned(kj::mv(owned)) {}

protected:
  Result<kj::Own<ProcessActor>> process() override { return kj::addRef(owned->process()); }
  kj::Promise<void> wait(Instance::WaitContext context) override {
    if (guard.refuses(ruleOf("Instance.wait"), context)) co_return;
    answer(context, co_await kj::addRef(owned->process())->wait());
  }

private:
  kj::Own<ExecProcess> owned;
};

class SessionCap final: public rpc::Session::Server {
public:
  SessionCap(kj::Own<EnvironmentActor> environment, kj::Own<SessionActor> session, Guard guard)
      : environment(kj::mv(environment)), session(kj::mv(session)), guard(kj::mv(guard)) {}

protected:
  kj::Promise<void> info(InfoContext context) override {
    if (guard.refuses(ruleOf("Session.info"), context)) co_return;
    auto status = co_await kj::addRef(*session)->statusWithReport();
    write(context.getResults().initInfo(), status);
  }
  kj::Promise<void> run(RunContext context) override {
    if (guard.refuses(ruleOf("Session.run"), context)) co_return;
    context.getResults().setRun(newRunCap(kj::addRef(session->run()), guard.clone()));
  }
  kj::Promise<void> start(StartContext context) override {
    if (guard.refuses(ruleOf("Session.start"), context)) co_return;
    auto self = kj::addRef(*session);
    KJ_IF_MAYBE (problem, co_await environment->startSession(kj::addRef(*self))) {
      fail(context.getResults(), *problem);
      co_return;
    }
    context.getResults().setRun(newRunCap(kj::addRef(self->run()), guard.clone()));
  }
  kj::Promise<void> resume(ResumeContext context) override {
    if (guard.refuses(ruleOf("Session.resume"), context)) co_return;
    auto spec = readLaunch(context.getParams().getSpec());
    if (spec.is<Problem>()) {
      fail(context.getResults(), spec.get<Problem>());
      co_return;
    }
    ClientProgress progress(progressOf(context.getParams()));
    auto shown = environment->showProgress(progress);
    auto resumed =
        co_await environment->resume(kj::addRef(*session), kj::mv(spec.get<LaunchSpec>()));
    if (resumed.is<Problem>()) {
      fail(context.getResults(), resumed.get<Problem>());
      co_return;
    }
    context.getResults().setRun(newRunCap(kj::mv(resumed.get<kj::Own<RunActor>>()), guard.clone()));
  }
  kj::Promise<void> saveProgress(SaveProgressContext context) override {
    if (guard.refuses(ruleOf("Session.saveProgress"), context)) co_return;
    auto params = context.getParams();
    SavedProgress progress{copy(params.getRunId()), copy(params.getResumeToken()),
                           copy(params.getLastMessageId()),
                           kj::heapString(params.getContextJson().asChars())};
    KJ_IF_MAYBE (problem,
                 co_await environment->saveProgress(kj::addRef(*session), kj::mv(progress))) {
      fail(context.getResults(), *problem);
    }
  }
  kj::Promise<void> stop(StopContext context) override {
    if (guard.refuses(ruleOf("Session.stop"), context)) co_return;
    auto params = context.getParams();
    auto self = kj::addRef(*session);
    auto grace = environment->stopGrace(params.getGraceMs());
    auto mode = params.getForce() ? StopMode::FORCED : StopMode::GRACEFUL;
    auto outcome = co_await environment->stopSession(kj::addRef(*self), grace, mode);
    KJ_IF_MAYBE (problem, outcome) {
      fail(context.getResults(), *problem);
      co_return;
    }
    KJ_IF_MAYBE (exit, self->exit()) {
      write(context.getResults().initExit(), *exit);
    }
  }
  kj::Promise<void> output(OutputContext context) override {
    if (guard.refuses(ruleOf("Session.output"), context)) co_return;
    auto params = context.getParams();
    auto position = params.getPosition();
    auto run = kj::addRef(session->run());
    if (position.getRunId().size() > 0) {
      KJ_IF_MAYBE (found, session->findRun(copy(position.getRunId()))) {
        run = kj::mv(*found);
      } else {
        fail(context.getResults(), Problem(ErrorCode::NOT_FOUND, kj::str("the session has no run '",
                                                                         position.getRunId(), "'"))
                                       .at(kj::str("position.runId")));
        co_return;
      }
    }
    auto process = run->process();
    if (process.is<Problem>()) {
      fail(context.getResults(), process.get<Problem>());
      co_return;
    }
    OutputRequest what{position.getOffset(), params.getFollow(), params.getHold()};
    co_await deliver(context, kj::mv(process.get<kj::Own<ProcessActor>>()), guard.clone(), what);
  }

private:
  kj::Own<EnvironmentActor> environment;
  kj::Own<SessionActor> session;
  Guard guard;
};

}  // namespace

rpc::Run::Client newRunCap(kj::Own<RunActor> run, Guard guard) {
  return kj::heap<RunCap>(kj::mv(run), kj::mv(guard));
}

rpc::Instance::Client newExecCap(kj::Own<ExecProcess> process, Guard guard) {
  return kj::heap<ExecCap>(kj::mv(process), kj::mv(guard));
}

rpc::Session::Client newSessionCap(kj::Own<EnvironmentActor> environment,
                                   kj::Own<SessionActor> session, Guard guard) {
  return kj::heap<SessionCap>(kj::mv(environment), kj::mv(session), kj::mv(guard));
}

}  // namespace capstan
