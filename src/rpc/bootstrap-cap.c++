#include "rpc/bootstrap-cap.h"

#include "rpc/admin-cap.h"
#include "rpc/convert-catalog.h"
#include "rpc/convert.h"
#include "rpc/environment-cap.h"
#include "rpc/environment-watch.h"
#include "rpc/streams.h"

namespace capstan {

namespace {

constexpr uint16_t API_VERSION = 1;

class SupervisorCap final: public rpc::Supervisor::Server {
public:
  SupervisorCap(Frontend& frontend, kj::String principal, Guard guard)
      : supervisor(frontend.supervisor),
        catalog(frontend.catalog),
        principal(kj::mv(principal)),
        guard(kj::mv(guard)) {}

protected:
  kj::Promise<void> ensure(EnsureContext context) override {
    if (guard.refuses(ruleOf("Supervisor.ensure"), context)) co_return;
    auto spec = readEnvironment(context.getParams().getSpec());
    if (spec.is<Problem>()) {
      fail(context.getResults(), spec.get<Problem>());
      co_return;
    }
    auto ensured =
        co_await supervisor.ensure(kj::str(principal), kj::mv(spec.get<EnvironmentSpec>()));
    if (ensured.is<Problem>()) {
      fail(context.getResults(), ensured.get<Problem>());
      co_return;
    }
    auto& entry = ensured.get<Supervisor::Ensured>();
    auto results = context.getResults();
    results.setId(entry.environment->id());
    results.setMade(entry.made);
    results.setEnvironment(newEnvironmentCap(supervisor, kj::mv(entry.environment), guard.clone()));
  }

  kj::Promise<void> open(OpenContext context) override {
    if (guard.refuses(ruleOf("Supervisor.open"), context)) co_return;
    auto found = supervisor.find(principal, context.getParams().getId());
    if (found.is<Problem>()) {
      fail(context.getResults(), found.get<Problem>());
      co_return;
    }
    context.getResults().setEnvironment(newEnvironmentCap(
        supervisor, kj::mv(found.get<kj::Own<EnvironmentActor>>()), guard.clone()));
  }

  kj::Promise<void> list(ListContext context) override {
    if (guard.refuses(ruleOf("Supervisor.list"), context)) co_return;
    constexpr size_t MOST_ROWS = 500;
    auto params = context.getParams();
    size_t limit = params.getLimit() == 0 ? MOST_ROWS : kj::min(MOST_ROWS, params.getLimit());
    auto rows = supervisor.list(principal, params.getAfter(), limit);
    // Sessions are rows too: a page of full environments would be no short turn.
    kj::Vector<EnvironmentStatus> statuses;
    for (size_t taken = 0; statuses.size() < rows.size() && taken < MOST_ROWS;) {
      statuses.add(rows[statuses.size()]->status());
      taken += 1 + statuses.back().sessions.size();
    }
    auto page = context.getResults().initPage(statuses.size());
    for (auto i: kj::indices(statuses))
      write(page[i], statuses[i]);
    if (statuses.size() == limit || statuses.size() < rows.size()) {
      context.getResults().setNext(statuses.back().id);
    }
  }

  kj::Promise<void> watch(WatchContext context) override {
    if (guard.refuses(ruleOf("Supervisor.watch"), context)) co_return;
    answerWatch(context, watchAll(supervisor, kj::str(principal)), supervisor.onClosed(),
                guard.clone(), supervisor.limits().watchers);
  }

  kj::Promise<void> runtimes(RuntimesContext context) override {
    if (guard.refuses(ruleOf("Supervisor.runtimes"), context)) co_return;
    auto rows = co_await supervisor.runtimes();
    auto out = context.getResults().initRuntimes(rows.size());
    for (auto i: kj::indices(rows))
      write(out[i], rows[i]);
  }

  kj::Promise<void> executors(ExecutorsContext context) override {
    if (guard.refuses(ruleOf("Supervisor.executors"), context)) co_return;
    auto executors = catalog.rows().executors();
    auto profiles = catalog.rows().profiles();
    auto results = context.getResults();
    auto executorsOut = results.initExecutors(executors.size());
    for (auto i: kj::indices(executors))
      writeNames(executorsOut[i], *executors[i]);
    auto profilesOut = results.initProfiles(profiles.size());
    for (auto i: kj::indices(profiles))
      writeNames(profilesOut[i], *profiles[i]);
  }

private:
  Supervisor& supervisor;
  Catalog& catalog;
  kj::String principal;
  Guard guard;
};

class BootstrapCap final: public rpc::Bootstrap::Server {
public:
  BootstrapCap(Frontend& frontend, Peer peer, Guard guard)
      : frontend(frontend), who(peer), guard(kj::mv(guard)) {}

protected:
  kj::Promise<void> serverInfo(ServerInfoContext context) override {
    if (guard.refuses(ruleOf("Bootstrap.serverInfo"), context)) co_return;
    auto results = context.getResults();
    results.setApiVersion(API_VERSION);
    results.setBuild(frontend.build);
  }

  kj::Promise<void> peer(PeerContext context) override {
    if (guard.refuses(ruleOf("Bootstrap.peer"), context)) co_return;
    auto out = context.getResults().initPeer();
    KJ_IF_MAYBE (uid, who.uid) {
      auto socket = out.initUnixSocket();
      socket.setUid(*uid);
      socket.setPid(who.pid);
    } else {
      out.setOther("unknown");
    }
  }

  kj::Promise<void> authenticate(AuthenticateContext context) override {
    if (guard.refuses(ruleOf("Bootstrap.authenticate"), context)) co_return;
    if (context.getParams().getCredential().which() != rpc::Bootstrap::Credential::PEER) {
      refuse(context, "this daemon knows no such token");
      co_return;
    }
    KJ_IF_MAYBE (uid, who.uid) {
      if (frontend.localAdmin && (*uid == frontend.ownUid || *uid == 0)) {
        auto results = context.getResults();
        results.setSupervisor(
            kj::heap<SupervisorCap>(frontend, kj::str("uid:", *uid), guard.clone()));
        results.setAdmin(newAdminCap(frontend, guard.clone()));
        co_return;
      }
    }
    refuse(context, "only the daemon's own user and root may come in without a token");
  }

  kj::Promise<void> restore(RestoreContext context) override {
    if (guard.refuses(ruleOf("Bootstrap.restore"), context)) co_return;
    fail(context.getResults(), Problem(ErrorCode::NOT_FOUND, kj::str("no such reference")));
  }

  kj::Promise<void> forget(ForgetContext context) override {
    if (guard.refuses(ruleOf("Bootstrap.forget"), context)) co_return;
    fail(context.getResults(), Problem(ErrorCode::NOT_FOUND, kj::str("no such reference")));
  }

private:
  Frontend& frontend;
  Peer who;
  Guard guard;

  static void refuse(AuthenticateContext context, kj::StringPtr cause) {
    fail(context.getResults(), Problem(ErrorCode::UNAUTHENTICATED, kj::str("not authenticated"))
                                   .because(kj::str(cause))
                                   .retryable(RetryHint::AFTER_USER_ACTION));
  }
};

}  // namespace

rpc::Bootstrap::Client newBootstrapCap(Frontend& frontend, Peer peer, CallMeter& meter) {
  return kj::heap<BootstrapCap>(frontend, peer, Guard(kj::addRef(meter), Rights::all()));
}

}  // namespace capstan
