#include "rpc/environment-cap.h"

#include "rpc/convert.h"
#include "rpc/environment-watch.h"
#include "rpc/session-cap.h"
#include "rpc/streams.h"

namespace capstan {

namespace {

CleanupScope readScope(rpc::TaskEnvironment::CleanupScope scope) {
  switch (scope) {
    case rpc::TaskEnvironment::CleanupScope::ALL:
      return CleanupScope::ALL;
    case rpc::TaskEnvironment::CleanupScope::ALL_KEEP_WORKSPACE:
      return CleanupScope::ALL_KEEP_WORKSPACE;
    case rpc::TaskEnvironment::CleanupScope::COMPUTE:
      break;
  }
  return CleanupScope::COMPUTE;  // The scope that deletes least, also for an unknown one.
}

class EnvironmentCap final: public rpc::TaskEnvironment::Server {
public:
  EnvironmentCap(Supervisor& supervisor, kj::Own<EnvironmentActor> environment, Guard guard)
      : supervisor(supervisor), environment(kj::mv(environment)), guard(kj::mv(guard)) {}

protected:
  kj::Promise<void> status(StatusContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.status"), context)) co_return;
    auto status = co_await kj::addRef(*environment)->statusWithReports();
    write(context.getResults().initStatus(), status);
  }

  kj::Promise<void> watch(WatchContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.watch"), context)) co_return;
    answerWatch(context, watchOne(kj::addRef(*environment)), supervisor.onClosed(), guard.clone(),
                supervisor.limits().watchers);
  }

  kj::Promise<void> launch(LaunchContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.launch"), context)) co_return;
    auto spec = readLaunch(context.getParams().getSpec());
    if (spec.is<Problem>()) {
      fail(context.getResults(), spec.get<Problem>());
      co_return;
    }
    auto self = kj::addRef(*environment);
    ClientProgress progress(progressOf(context.getParams()));
    auto shown = self->showProgress(progress);
    auto launched = co_await self->launch(kj::mv(spec.get<LaunchSpec>()));
    if (launched.is<Problem>()) {
      fail(context.getResults(), launched.get<Problem>());
      co_return;
    }
    auto session = kj::mv(launched.get<kj::Own<SessionActor>>());
    auto results = context.getResults();
    results.setRun(newRunCap(kj::addRef(session->run()), guard.clone()));
    results.setSession(newSessionCap(kj::mv(self), kj::mv(session), guard.clone()));
  }

  kj::Promise<void> session(SessionContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.session"), context)) co_return;
    auto found = environment->findSession(context.getParams().getId());
    if (found.is<Problem>()) {
      fail(context.getResults(), found.get<Problem>());
      co_return;
    }
    context.getResults().setSession(newSessionCap(
        kj::addRef(*environment), kj::mv(found.get<kj::Own<SessionActor>>()), guard.clone()));
  }

  kj::Promise<void> exec(ExecContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.exec"), context)) co_return;
    auto params = context.getParams();
    auto spec = readLaunch(params.getSpec());
    if (spec.is<Problem>()) {
      fail(context.getResults(), spec.get<Problem>());
      co_return;
    }
    auto self = kj::addRef(*environment);
    auto made = co_await self->exec(kj::mv(spec.get<LaunchSpec>()));
    if (made.is<Problem>()) {
      fail(context.getResults(), made.get<Problem>());
      co_return;
    }
    // The process ends with `running`, whatever fails or is dropped.
    auto running = kj::mv(made.get<kj::Own<ExecProcess>>());
    auto process = kj::addRef(running->process());

    // The streams stand before the start, so that nothing of a short process is missed.
    auto count = kj::refcounted<DeliveryCount>();
    auto reading = co_await process->output(OutputRequest{0, true, true},
                                            newClientReceiver(sinkOf(params), kj::addRef(*count)));
    if (reading.is<Problem>()) {
      fail(context.getResults(), reading.get<Problem>());
      co_return;
    }
    running->keep(kj::mv(reading.get<kj::Own<OutputReading>>()));
    KJ_IF_MAYBE (problem, co_await process->start()) {
      fail(context.getResults(), *problem);
      co_return;
    }
    auto writer = co_await process->openStdin(TakeOver::NO);
    auto results = context.getResults();
    results.setInstance(newExecCap(kj::mv(running), guard.clone()));
    if (writer.is<Problem>()) {
      // It has ended already, or has no stdin: its exit says the rest.
      results.setStdin(
          KJ_EXCEPTION(DISCONNECTED, "the process takes no stdin", writer.get<Problem>()));
    } else {
      results.setStdin(newStdin(kj::mv(writer.get<kj::Own<StdinWriter>>()), kj::mv(process)));
    }
  }

  kj::Promise<void> stop(StopContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.stop"), context)) co_return;
    auto params = context.getParams();
    auto self = kj::addRef(*environment);
    auto mode = params.getForce() ? StopMode::FORCED : StopMode::GRACEFUL;
    auto outcome = co_await self->stop(self->stopGrace(params.getGraceMs()), mode);
    KJ_IF_MAYBE (problem, outcome) {
      fail(context.getResults(), *problem);
    }
  }

  kj::Promise<void> cleanup(CleanupContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.cleanup"), context)) co_return;
    auto scope = readScope(context.getParams().getScope());
    auto report = co_await supervisor.cleanUp(kj::addRef(*environment), scope);
    auto lines =
        context.getResults().initLeftovers(report.warnings.size() + report.leftInPlace.size() +
                                           report.leftovers.size());
    uint32_t next = 0;
    for (auto& line: report.warnings)
      lines.set(next++, kj::str("warning: ", line));
    for (auto& line: report.leftInPlace)
      lines.set(next++, kj::str("left in place: ", line));
    for (auto& line: report.leftovers)
      lines.set(next++, line);
    if (report.leftovers.size() > 0) {
      write(context.getResults().initError(),
            Problem(ErrorCode::INTERNAL, kj::str("the clean-up is not complete"))
                .because(kj::strArray(report.leftovers, "; "))
                .advise(kj::str("capstan env destroy ", environment->id(), " tries again"))
                .retryable(RetryHint::SAME_REQUEST_LATER));
    }
  }

  kj::Promise<void> recheck(RecheckContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.recheck"), context)) co_return;
    auto self = kj::addRef(*environment);
    auto outcome = co_await supervisor.recheck(kj::addRef(*self));
    auto status = co_await self->statusWithReports();
    write(context.getResults().initStatus(), status);
    KJ_IF_MAYBE (problem, outcome) {
      fail(context.getResults(), *problem);
    }
  }

  kj::Promise<void> rights(RightsContext context) override {
    if (guard.refuses(ruleOf("TaskEnvironment.rights"), context)) co_return;
    auto held = guard.rights();
    auto out = context.getResults().initRights();
    out.setObserve(held.has(Right::OBSERVE));
    out.setAttach(held.has(Right::ATTACH));
    out.setLaunch(held.has(Right::LAUNCH));
    out.setExec(held.has(Right::EXEC));
    out.setForward(held.has(Right::FORWARD));
    out.setStop(held.has(Right::STOP));
    out.setCleanup(held.has(Right::CLEANUP));
    out.setDelegate(held.has(Right::DELEGATE));
  }

private:
  Supervisor& supervisor;
  kj::Own<EnvironmentActor> environment;
  Guard guard;
};

}  // namespace

rpc::TaskEnvironment::Client newEnvironmentCap(Supervisor& supervisor,
                                               kj::Own<EnvironmentActor> environment, Guard guard) {
  return kj::heap<EnvironmentCap>(supervisor, kj::mv(environment), kj::mv(guard));
}

}  // namespace capstan
