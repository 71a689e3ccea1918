#include "support/daemon.h"

#include <cstdlib>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan::test {

namespace {

HelperFiles helperFiles() {
  const char* folder = std::getenv("AGENTCTL_DIR");
  KJ_REQUIRE(folder != nullptr, "the test needs AGENTCTL_DIR, the folder of the built agentctl");
  return HelperFiles::ofInstallation(kj::StringPtr(folder), nullptr, "/nowhere/test");
}

}  // namespace

Daemon::Daemon(): uv(loop.io.unixEventPort), offload(uv), files(helperFiles()) {
  StandaloneOptions options;
  options.stateDirectory = kj::str(state.path());
  options.runtimeDirectory = kj::str(state.path());
  options.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")},
                              ProcessVariable{kj::str("HOME"), kj::str(state.path())});
  KJ_REQUIRE(mkdir((state / "environments").cStr(), 0700) == 0);
  DatabaseOptions databaseOptions;
  databaseOptions.path = kj::str(state.path(), "/capstan.db");
  auto opened = Database::open(kj::mv(databaseOptions)).wait(loop.waitScope);
  KJ_REQUIRE(opened.is<kj::Own<Database>>(), opened.get<Problem>());
  store = kj::mv(opened.get<kj::Own<Database>>());
  auto& clock = kj::systemPreciseCalendarClock();
  auto openedBox = openSecretBox(*store, kj::str(state.path())).wait(loop.waitScope);
  KJ_REQUIRE(openedBox.is<SecretBox>(), openedBox.get<Problem>());
  box = kj::mv(openedBox.get<SecretBox>());
  vault = kj::heap<SecretVault>(*store, KJ_ASSERT_NONNULL(box), kj::str(state.path()), loop.timer,
                                clock, entropy, Limits());
  helpers = kj::heap<StoredHelperBook>(*store, KJ_ASSERT_NONNULL(box), clock, entropy);
  standalone =
      kj::heap<StandaloneBackend>(loop.io, uv, offload, files, entropy, *helpers, kj::mv(options));
  runtimes.add(*standalone);
  auto loaded = Catalog::load(*store, clock, entropy, Limits()).wait(loop.waitScope);
  KJ_REQUIRE(loaded.is<kj::Own<Catalog>>(), loaded.get<Problem>());
  catalog = kj::mv(loaded.get<kj::Own<Catalog>>());
  services = kj::heap<Services>(
      Services{loop.timer, clock, entropy, runtimes, *store, *catalog, *vault, *helpers, Limits()});
  supervisor = kj::heap<Supervisor>(*services);
  KJ_REQUIRE(supervisor->load().wait(loop.waitScope) == nullptr);
  frontend =
      kj::heap<Frontend>(Frontend{*supervisor, *catalog, *vault, "test", geteuid(), true, []() {}});
  server = kj::heap<RpcServer>(loop.timer, *frontend);
}

Daemon::~Daemon() noexcept(false) {
  server = nullptr;
  // Else it would outlive the daemon, as it should elsewhere.
  for (auto& link: supervisor->helperLinks().live())
    link->shutdown(0 * kj::SECONDS).wait(loop.waitScope);
  supervisor->close()
      .then([this]() { return standalone->close(); })
      .then([this]() { return store->close(); })
      .wait(loop.waitScope);
}

kj::Own<ClientConnection> Daemon::connect() {
  Peer peer;
  peer.uid = geteuid();
  return connect(peer);
}

kj::Own<ClientConnection> Daemon::connect(Peer peer) {
  auto pipe = kj::newTwoWayPipe();
  server->serve(kj::mv(pipe.ends[0]), peer);
  return ClientConnection::over(loop.timer, kj::mv(pipe.ends[1]));
}

bool Daemon::becomesTrue(kj::Function<bool()> question) {
  for (int i = 0; i < 1000; ++i) {
    if (question()) return true;
    loop.timer.afterDelay(10 * kj::MILLISECONDS).wait(loop.waitScope);
  }
  return false;
}

Collector::Collector(Seen& seen, kj::Maybe<kj::Promise<void>> holdUntil): seen(seen) {
  KJ_IF_MAYBE (promise, holdUntil) {
    hold = promise->fork();
  }
}

kj::Promise<void> Collector::write(WriteContext context) {
  auto params = context.getParams();
  auto bytes = params.getBytes();
  if (params.getOffset() != seen.next) seen.ordered = false;
  seen.next = params.getOffset() + bytes.size();
  seen.octets += bytes.size();
  if (seen.keep) {
    auto& text = params.getStream() == rpc::OutputStream::STDERR ? seen.err : seen.out;
    text.append(bytes.asChars().begin(), bytes.size());
  }
  KJ_IF_MAYBE (fork, hold) {
    return fork->addBranch();
  }
  return kj::READY_NOW;
}

kj::Promise<void> Collector::gap(GapContext context) {
  seen.next = context.getParams().getTo();
  return kj::READY_NOW;
}

kj::Promise<void> Collector::end(EndContext) {
  seen.ended = true;
  return kj::READY_NOW;
}

void setCommand(rpc::LaunchSpec::Builder spec, std::initializer_list<kj::StringPtr> words) {
  auto out = spec.initCommand(words.size());
  uint32_t i = 0;
  for (auto word: words)
    out.set(i++, word);
}

}  // namespace capstan::test
