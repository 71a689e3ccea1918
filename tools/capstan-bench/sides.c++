#include "tools/capstan-bench/bench.h"

#include <kj/debug.h>

#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace capstan::bench {

BarePeer::BarePeer(kj::Function<capnp::Capability::Client()> makeObject) {
  int ends[2];
  KJ_SYSCALL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  socket = kj::AutoCloseFd(ends[0]);
  kj::AutoCloseFd theirs(ends[1]);
  KJ_SYSCALL(child = fork());
  if (child != 0) return;
  socket = nullptr;
  {
    auto io = kj::setupAsyncIo();
    auto stream = io.lowLevelProvider->wrapSocketFd(kj::mv(theirs));
    capnp::TwoPartyVatNetwork network(*stream, capnp::rpc::twoparty::Side::SERVER);
    auto rpcSystem = capnp::makeRpcServer(network, makeObject());
    network.onDisconnect().wait(io.waitScope);
  }
  _exit(0);
}

BarePeer::~BarePeer() noexcept(false) {
  socket = nullptr;
  int status;
  KJ_SYSCALL(waitpid(child, &status, 0));
}

BareClient::BareClient(kj::AsyncIoContext& io, kj::AutoCloseFd socket)
    : stream(io.lowLevelProvider->wrapSocketFd(kj::mv(socket))),
      network(*stream, capnp::rpc::twoparty::Side::CLIENT),
      rpcSystem(capnp::makeRpcClient(network)) {}

capnp::Capability::Client BareClient::object() {
  capnp::word scratch[4] = {};
  capnp::MallocMessageBuilder message(scratch);
  auto vatId = message.getRoot<capnp::rpc::twoparty::VatId>();
  vatId.setSide(capnp::rpc::twoparty::Side::SERVER);
  return rpcSystem.bootstrap(vatId);
}

OwnEnvironment::OwnEnvironment(kj::AsyncIoContext& io, kj::StringPtr socket)
    : io(io), connection(ClientConnection::connectUnix(io, kj::str(socket)).wait(io.waitScope)) {
  auto request = connection->supervisor().ensureRequest();
  request.initSpec().setTaskId(kj::str("bench-", getpid()));
  auto response = request.send().wait(io.waitScope);
  KJ_REQUIRE(response.getError().getCode() == rpc::ErrorCode::NONE, response.getError());
  environment = response.getEnvironment();
}

rpc::Run::Client OwnEnvironment::launch(kj::ArrayPtr<const kj::StringPtr> words) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  KJ_REQUIRE(n > 0 && n < static_cast<ssize_t>(sizeof(path)), "cannot read /proc/self/exe");
  auto request = environment.launchRequest();
  auto spec = request.initSpec();
  spec.setPauseWhenFull(true);  // A log that loses octets would measure less than the amount.
  auto command = spec.initCommand(words.size() + 1);
  command.set(0, kj::heapString(path, n));
  for (auto i: kj::indices(words))
    command.set(i + 1, words[i]);
  auto response = request.send().wait(io.waitScope);
  KJ_REQUIRE(response.getError().getCode() == rpc::ErrorCode::NONE, response.getError());
  return response.getRun();
}

void OwnEnvironment::remove() {
  auto request = environment.cleanupRequest();
  request.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  auto response = request.send().wait(io.waitScope);
  KJ_REQUIRE(response.getError().getCode() == rpc::ErrorCode::NONE, response.getError());
}

uint64_t nowNs() {
  timespec now;
  KJ_SYSCALL(clock_gettime(CLOCK_MONOTONIC, &now));
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace capstan::bench
