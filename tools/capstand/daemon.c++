#include "tools/capstand/daemon.h"

#include "backends/standalone/standalone-backend.h"
#include "base/unix-socket.h"
#include "base/version.h"
#include "client/paths.h"
#include "core/helper-book.h"
#include "core/supervisor.h"
#include "domain/launch-rules.h"
#include "rpc/server.h"
#include "store/database.h"
#include "store/state-lock.h"
#include "transport/loop-lag.h"

#include <kj/async-unix.h>
#include <kj/debug.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

extern char** environ;

namespace capstan {

namespace {

constexpr kj::Duration IDLE_LOOK = 30 * kj::SECONDS;
constexpr kj::Duration CLOSE_LIMIT = 60 * kj::SECONDS;
constexpr kj::Duration IDLE_LIMIT = 10 * kj::MINUTES;  // D44

// The daemon's variables from which local agents start, and no others.
kj::Array<ProcessVariable> agentVariables() {
  kj::Vector<ProcessVariable> result;
  for (char** each = environ; *each != nullptr; ++each) {
    const char* equals = std::strchr(*each, '=');
    if (equals == nullptr) continue;
    auto name = kj::heapString(*each, equals - *each);
    if (isInheritedName(name)) result.add(ProcessVariable{kj::mv(name), kj::str(equals + 1)});
  }
  return result.releaseAsArray();
}

// Resolves when the daemon has had no client, and no process that may run, for the limit.
kj::Promise<void> whenIdle(kj::Timer& timer, Supervisor& supervisor, RpcServer& server) {
  auto busyAt = timer.now();
  for (;;) {
    co_await timer.afterDelay(IDLE_LOOK);
    if (supervisor.isBusy() || server.connectionCount() > 0) busyAt = timer.now();
    if (timer.now() - busyAt >= IDLE_LIMIT) co_return;
  }
}

kj::Promise<kj::StringPtr> whenToEnd(kj::AsyncIoContext& io, kj::Promise<void> asked,
                                     kj::Promise<void> idle) {
  auto& port = io.unixEventPort;
  co_return co_await asked.then([]() -> kj::StringPtr { return "a client asked"_kj; })
      .exclusiveJoin(
          port.onSignal(SIGTERM).then([](siginfo_t&&) -> kj::StringPtr { return "SIGTERM"_kj; }))
      .exclusiveJoin(
          port.onSignal(SIGINT).then([](siginfo_t&&) -> kj::StringPtr { return "SIGINT"_kj; }))
      .exclusiveJoin(idle.then([]() -> kj::StringPtr { return "idle"_kj; }));
}

}  // namespace

Outcome runDaemon(DaemonOptions options) {
  KJ_IF_MAYBE (problem, ensurePrivateDirectory(options.stateDirectory)) {
    return kj::mv(*problem);
  }
  auto locked = StateLock::take(options.stateDirectory);
  if (locked.is<Problem>()) return kj::mv(locked.get<Problem>());
  KJ_IF_MAYBE (problem, ensurePrivateDirectory(options.runtimeDirectory)) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, ensurePrivateDirectory(options.helperSocketDirectory)) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, ensurePrivateDirectory(kj::str(options.stateDirectory, "/environments"))) {
    return kj::mv(*problem);
  }

  kj::UnixEventPort::captureSignal(SIGTERM);
  kj::UnixEventPort::captureSignal(SIGINT);
  auto io = kj::setupAsyncIo();
  io.waitScope.setBusyPollInterval(64);
  auto& timer = io.provider->getTimer();

  DatabaseOptions databaseOptions;
  databaseOptions.path = kj::str(options.stateDirectory, "/capstan.db");
  auto openedStore = Database::open(kj::mv(databaseOptions)).wait(io.waitScope);
  if (openedStore.is<Problem>()) return kj::mv(openedStore.get<Problem>());
  auto store = kj::mv(openedStore.get<kj::Own<Database>>());
  SystemEntropy entropy;
  auto& clock = kj::systemPreciseCalendarClock();
  auto openedBox = openSecretBox(*store, kj::str(options.stateDirectory)).wait(io.waitScope);
  if (openedBox.is<Problem>()) return kj::mv(openedBox.get<Problem>());
  auto& box = openedBox.get<SecretBox>();
  SecretVault vault(*store, box, kj::str(options.stateDirectory), timer, clock, entropy,
                    options.limits);
  auto loaded = Catalog::load(*store, clock, entropy, options.limits).wait(io.waitScope);
  if (loaded.is<Problem>()) return kj::mv(loaded.get<Problem>());
  auto catalog = kj::mv(loaded.get<kj::Own<Catalog>>());
  auto bound = listenUnix(options.socket);
  if (bound.is<Problem>()) return kj::mv(bound.get<Problem>());
  bool listening = true;
  KJ_DEFER(if (listening) unlink(options.socket.cStr()));

  UvLoop uv(io.unixEventPort);
  Offload offload(uv);
  LoopLag lag(timer);
  auto helperVariable = processVariable("CAPSTAN_AGENTCTL_DIR");
  auto files = HelperFiles::ofInstallation(
      options.helperDirectory.map([](kj::String& folder) -> kj::StringPtr { return folder; }),
      helperVariable.map([](kj::String& folder) -> kj::StringPtr { return folder; }),
      options.executable);
  StandaloneOptions standaloneOptions;
  standaloneOptions.stateDirectory = kj::str(options.stateDirectory);
  standaloneOptions.runtimeDirectory = kj::str(options.helperSocketDirectory);
  standaloneOptions.helperStart = options.limits.deadlines.helperStart;
  standaloneOptions.stopGrace = options.limits.deadlines.stopGrace;
  standaloneOptions.variables = agentVariables();
  standaloneOptions.agentDescriptors = options.agentDescriptors;
  StoredHelperBook helpers(*store, box, clock, entropy);
  StandaloneBackend standalone(io, uv, offload, files, entropy, helpers, kj::mv(standaloneOptions));

  RuntimeRegistry runtimes;
  runtimes.add(standalone);
  kj::Vector<kj::StringPtr> configured;
  if (options.dockerEnabled) {
    configured.add("docker");
    if (!runtimes.has("docker")) {
      KJ_LOG(WARNING,
             "agent.docker.enabled is true, but this build of Capstan does not contain the "
             "Docker runtime: tasks that ask for it are refused");
    }
  }
  Services services{timer,    clock, entropy, runtimes,       *store,
                    *catalog, vault, helpers, options.limits, configured};
  Supervisor supervisor(services);
  KJ_IF_MAYBE (problem, supervisor.load().wait(io.waitScope)) {
    return kj::mv(*problem);
  }

  auto asked = kj::newPromiseAndFulfiller<void>();
  Frontend frontend{
      supervisor, *catalog, vault, VERSION, geteuid(), options.localAdmin, [&asked]() {
        asked.fulfiller->fulfill();
      }};
  auto filter = kj::LowLevelAsyncIoProvider::NetworkFilter::getAllAllowed;
  auto listener =
      io.lowLevelProvider->wrapListenSocketFd(kj::mv(bound.get<kj::AutoCloseFd>()), filter());
  RpcServer server(timer, frontend);
  auto serving = server.listen(*listener).eagerlyEvaluate(
      [](kj::Exception&& e) { KJ_LOG(ERROR, "the listener failed", e); });
  KJ_LOG(INFO, "daemon started", VERSION, getpid(), options.socket, options.stateDirectory);

  kj::Promise<void> idle =
      options.autoStarted ? whenIdle(timer, supervisor, server) : kj::Promise<void>(kj::NEVER_DONE);
  auto reason = whenToEnd(io, kj::mv(asked.promise), kj::mv(idle)).wait(io.waitScope);
  KJ_LOG(INFO, "daemon ends", reason, lag.lag().percentile(0.99), lag.lag().max());
  // Whoever comes from here on is refused by the kernel and waits for the next daemon.
  serving = nullptr;
  listener = nullptr;
  unlink(options.socket.cStr());
  listening = false;  // From now on the file there may be another daemon's.
  // What is not done by then is taken up by the next daemon, as after a crash.
  auto port = &io.unixEventPort;
  auto closed = supervisor.close()
                    .then([&]() { return standalone.close(); })
                    .exclusiveJoin(port->onSignal(SIGTERM).ignoreResult())
                    .exclusiveJoin(port->onSignal(SIGINT).ignoreResult());
  if (within(timer, CLOSE_LIMIT, kj::mv(closed)).wait(io.waitScope) == Waited::TOO_LATE) {
    KJ_LOG(WARNING, "the daemon ends although not all is closed");
  }
  store->close().wait(io.waitScope);
  return nullptr;
}

}  // namespace capstan
