#include "tools/capstan-bench/bench.h"

#include <kj/debug.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

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

void OwnEnvironment::remove() { removeEnvironment(io, environment); }

void removeEnvironment(kj::AsyncIoContext& io, rpc::TaskEnvironment::Client environment) {
  auto request = environment.cleanupRequest();
  request.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  auto response = request.send().wait(io.waitScope);
  KJ_REQUIRE(response.getError().getCode() == rpc::ErrorCode::NONE, response.getError());
}

namespace {

sockaddr_un unixAddress(kj::StringPtr path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  KJ_REQUIRE(path.size() < sizeof(address.sun_path), "too long a path for a socket", path);
  std::memcpy(address.sun_path, path.begin(), path.size());
  return address;
}

kj::AutoCloseFd unixSocket() {
  int fd;
  KJ_SYSCALL(fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return kj::AutoCloseFd(fd);
}

}  // namespace

kj::AutoCloseFd listenOn(kj::StringPtr path) {
  auto listener = unixSocket();
  auto address = unixAddress(path);
  KJ_SYSCALL(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), path);
  KJ_SYSCALL(listen(listener, SOMAXCONN));
  return listener;
}

pid_t daemonOf(kj::StringPtr socket) {
  auto caller = unixSocket();
  auto address = unixAddress(socket);
  KJ_SYSCALL(connect(caller, reinterpret_cast<sockaddr*>(&address), sizeof(address)), socket);
  ucred peer;
  socklen_t size = sizeof(peer);
  KJ_SYSCALL(getsockopt(caller, SOL_SOCKET, SO_PEERCRED, &peer, &size));
  return peer.pid;
}

uint64_t residentOctets(pid_t process) {
  auto path = kj::str("/proc/", process, "/statm");
  int fd;
  KJ_SYSCALL(fd = open(path.cStr(), O_RDONLY | O_CLOEXEC), path);
  kj::AutoCloseFd file(fd);
  char text[256] = {};
  KJ_SYSCALL(read(file, text, sizeof(text) - 1), path);
  unsigned long long whole, resident;
  KJ_REQUIRE(std::sscanf(text, "%llu %llu", &whole, &resident) == 2, path, text);
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

kj::String folderOf(kj::StringPtr path) {
  KJ_IF_MAYBE (slash, path.findLast('/')) {
    return kj::heapString(path.slice(0, *slash));
  }
  return kj::str(".");
}

uint64_t nowNs() {
  timespec now;
  KJ_SYSCALL(clock_gettime(CLOCK_MONOTONIC, &now));
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace capstan::bench
