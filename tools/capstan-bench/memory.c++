#include "client/launch.h"
#include "tools/capstan-bench/bench.h"

#include <capnp/rpc-twoparty.h>
#include <kj/debug.h>
#include <kj/vector.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace capstan::bench {

namespace {

// Below this many of a kind, what the daemon makes once for all would count.
constexpr uint32_t FIRST = 50;
// What is freed late, and what is written behind, is done by then.
constexpr kj::Duration SETTLE = 500 * kj::MILLISECONDS;
constexpr kj::Duration POLL = 5 * kj::MILLISECONDS;

void allowManyDescriptors() {
  rlimit limit;
  KJ_SYSCALL(getrlimit(RLIMIT_NOFILE, &limit));
  limit.rlim_cur = limit.rlim_max;
  KJ_SYSCALL(setrlimit(RLIMIT_NOFILE, &limit));
}

uint64_t settled(kj::AsyncIoContext& io, pid_t process) {
  io.provider->getTimer().afterDelay(SETTLE).wait(io.waitScope);
  return residentOctets(process);
}

// How much `process` grows with each of what `makeOne` makes, between FIRST and `count`.
void printSlope(kj::AsyncIoContext& io, pid_t process, uint32_t count,
                kj::Function<void(uint32_t)> makeOne) {
  KJ_REQUIRE(count > FIRST, "too few to tell a slope", count, FIRST);
  uint64_t before = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (i == FIRST) before = settled(io, process);
    makeOne(i);
  }
  auto after = settled(io, process);
  auto grown = static_cast<double>(after) - static_cast<double>(before);
  std::printf("{\"kib\": %.2f, \"all\": %.1f}\n", grown / 1024 / (count - FIRST), after / 1024.0);
}

void waitUntilReady(kj::AsyncIoContext& io, rpc::TaskEnvironment::Client environment) {
  for (;;) {
    auto response = environment.statusRequest().send().wait(io.waitScope);
    auto state = response.getStatus().getState();
    if (state == rpc::EnvironmentState::READY) return;
    KJ_REQUIRE(state == rpc::EnvironmentState::PREPARING, "an environment failed",
               response.getStatus().getLastError());
    io.provider->getTimer().afterDelay(POLL).wait(io.waitScope);
  }
}

// Serves an object that does nothing to any number of connections. Does not return.
[[noreturn]] void serveBare(kj::AutoCloseFd listener) {
  auto io = kj::setupAsyncIo();
  capnp::TwoPartyServer server(kj::heap<rpc::Bootstrap::Server>());
  auto receiver = io.lowLevelProvider->wrapListenSocketFd(kj::mv(listener));
  server.listen(*receiver).wait(io.waitScope);
  _exit(0);
}

}  // namespace

void measureEnvironmentMemory(kj::StringPtr socket, uint32_t count) {
  auto io = kj::setupAsyncIo();
  auto connection = ClientConnection::connectUnix(io, kj::str(socket)).wait(io.waitScope);
  kj::Vector<rpc::TaskEnvironment::Client> made;
  printSlope(io, daemonOf(socket), count, [&](uint32_t i) {
    auto task = kj::str("bench-", getpid(), '-', i);
    auto ensured = ensureEnvironment(connection->supervisor(), kj::mv(task)).wait(io.waitScope);
    if (ensured.is<Problem>()) KJ_FAIL_REQUIRE("no environment", ensured.get<Problem>());
    auto environment = kj::mv(ensured.get<rpc::TaskEnvironment::Client>());
    waitUntilReady(io, environment);
    made.add(kj::mv(environment));
  });
  for (auto& environment: made)
    removeEnvironment(io, environment);
}

void measureConnectionMemory(Side side, kj::StringPtr socket, uint32_t count) {
  allowManyDescriptors();
  if (side == Side::OURS) {
    auto io = kj::setupAsyncIo();
    kj::Vector<kj::Own<ClientConnection>> clients;
    printSlope(io, daemonOf(socket), count, [&](uint32_t) {
      auto connection = ClientConnection::connectUnix(io, kj::str(socket)).wait(io.waitScope);
      connection->supervisor().whenResolved().wait(io.waitScope);
      clients.add(kj::mv(connection));
    });
    return;
  }
  auto path = kj::str(folderOf(socket), "/bare-", getpid(), ".sock");
  KJ_DEFER(unlink(path.cStr()));
  kj::AutoCloseFd listener(listenOn(path));
  pid_t child;
  KJ_SYSCALL(child = fork());
  if (child == 0) serveBare(kj::mv(listener));
  listener = nullptr;
  KJ_DEFER({
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  });
  auto io = kj::setupAsyncIo();
  auto address = io.provider->getNetwork().parseAddress(kj::str("unix:", path)).wait(io.waitScope);
  kj::Vector<kj::Own<kj::AsyncIoStream>> streams;  // Above those that use them.
  kj::Vector<kj::Own<capnp::TwoPartyClient>> clients;
  printSlope(io, child, count, [&](uint32_t) {
    auto stream = address->connect().wait(io.waitScope);
    auto client = kj::heap<capnp::TwoPartyClient>(*stream);
    client->bootstrap().whenResolved().wait(io.waitScope);
    streams.add(kj::mv(stream));
    clients.add(kj::mv(client));
  });
}

}  // namespace capstan::bench
