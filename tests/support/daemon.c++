#include "support/daemon.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
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

Daemon::Daemon(Limits limits, kj::Maybe<NewRuntimes> newRuntimes)
    : limits(limits), uv(loop.io.unixEventPort), offload(uv), files(helperFiles()) {
  KJ_REQUIRE(mkdir((state / "environments").cStr(), 0700) == 0);
  KJ_IF_MAYBE (make, newRuntimes) {
    further = (*make)(loop, uv, entropy);
  }
  begin();
}

Daemon::~Daemon() noexcept(false) {
  if (supervisor.get() != nullptr) {
    // Else it would outlive the daemon, as it should elsewhere.
    for (auto& link: supervisor->helperLinks().live())
      link->shutdown(0 * kj::SECONDS).wait(loop.waitScope);
    endOrderly();
  }
  // Those that this daemon was not linked to, or no more.
  for (auto pid: helperPids())
    kill(pid, SIGTERM);
}

void Daemon::begin() {
  StandaloneOptions options;
  options.stateDirectory = kj::str(state.path());
  options.runtimeDirectory = kj::str(state.path());
  options.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")},
                              ProcessVariable{kj::str("HOME"), kj::str(state.path())});
  DatabaseOptions databaseOptions;
  databaseOptions.path = databasePath();
  databaseOptions.connection.busyTimeoutMs = 1000;
  auto opened = Database::open(kj::mv(databaseOptions)).wait(loop.waitScope);
  KJ_REQUIRE(opened.is<kj::Own<Database>>(), opened.get<Problem>());
  store = kj::mv(opened.get<kj::Own<Database>>());
  auto openedBox = openSecretBox(*store, kj::str(state.path())).wait(loop.waitScope);
  KJ_REQUIRE(openedBox.is<SecretBox>(), openedBox.get<Problem>());
  box = kj::mv(openedBox.get<SecretBox>());
  vault = kj::heap<SecretVault>(*store, KJ_ASSERT_NONNULL(box), kj::str(state.path()), loop.timer,
                                clock, entropy, limits);
  helpers = kj::heap<StoredHelperBook>(*store, KJ_ASSERT_NONNULL(box), clock, entropy);
  standalone =
      kj::heap<StandaloneBackend>(loop.io, uv, offload, files, entropy, *helpers, kj::mv(options));
  runtimes = kj::heap<RuntimeRegistry>();
  runtimes->add(*standalone);
  KJ_IF_MAYBE (each, further) {
    backends = (*each)->begin();
  }
  for (auto& backend: backends)
    runtimes->add(*backend);
  auto loaded = Catalog::load(*store, clock, entropy, limits).wait(loop.waitScope);
  KJ_REQUIRE(loaded.is<kj::Own<Catalog>>(), loaded.get<Problem>());
  catalog = kj::mv(loaded.get<kj::Own<Catalog>>());
  services = kj::heap<Services>(
      Services{loop.timer, clock, entropy, *runtimes, *store, *catalog, *vault, *helpers, limits});
  supervisor = kj::heap<Supervisor>(*services);
  KJ_REQUIRE(supervisor->load().wait(loop.waitScope) == nullptr);
  frontend =
      kj::heap<Frontend>(Frontend{*supervisor, *catalog, *vault, "test", geteuid(), true, []() {}});
  server = kj::heap<RpcServer>(loop.timer, *frontend);
}

void Daemon::endOrderly() {
  supervisor->close()
      .then([this]() { return standalone->close(); })
      .then([this]() { return store->close(); })
      .wait(loop.waitScope);
  dropAll();
}

void Daemon::endAsIfKilled() {
  // Nothing runs between the death and that of the helper: no end of a run is seen.
  auto helpers = helperPids();
  dropAll();
  for (auto pid: helpers) {
    KJ_SYSCALL(kill(pid, SIGKILL));
    KJ_REQUIRE(becomesTrue([&]() { return access(kj::str("/proc/", pid).cStr(), F_OK) < 0; }));
  }
}

void Daemon::dropAll() {
  server = nullptr;
  frontend = nullptr;
  supervisor = nullptr;
  services = nullptr;
  catalog = nullptr;
  runtimes = nullptr;
  backends.clear();
  standalone = nullptr;
  helpers = nullptr;
  vault = nullptr;
  box = nullptr;
  store = nullptr;
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

namespace {

// Empty when its process has just ended: the standard library throws then.
std::string contentOf(const std::filesystem::path& path) {
  try {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

kj::Vector<pid_t> Daemon::helperPids() {
  kj::Vector<pid_t> pids;
  auto socket = kj::str(state.path(), "/agentctl-");
  for (auto& entry: std::filesystem::directory_iterator("/proc")) {
    auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    auto words = contentOf(entry.path() / "cmdline");
    // The helper itself: its reapers are copies of it, below it.
    if (words.find(socket.cStr()) == std::string::npos) continue;
    auto text = contentOf(entry.path() / "stat");
    auto behind = text.rfind(')');
    if (behind == std::string::npos) continue;
    if (std::atoi(text.c_str() + behind + 4) == getpid()) pids.add(std::atoi(name.c_str()));
  }
  return pids;
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
