#pragma once
// What tools/bench runs: one side of one measure a process, its figures as a line of JSON.

#include "client/connection.h"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/function.h>

#include <sys/types.h>

namespace capstan::bench {

// Which side of a comparison a process plays.
enum class Side { OURS, PEER };

// A second process that serves one object by Cap'n Proto alone, over a pair of unix sockets: what
// Capstan is compared with.
class BarePeer {
public:
  // Forks, so it stands before setupAsyncIo(). The child ends with the connection.
  explicit BarePeer(kj::Function<capnp::Capability::Client()> makeObject);
  KJ_DISALLOW_COPY_AND_MOVE(BarePeer);
  // Waits for the child. Drop the client before.
  ~BarePeer() noexcept(false);

  // This process's end, for BareClient. Once.
  kj::AutoCloseFd takeSocket() { return kj::mv(socket); }

private:
  kj::AutoCloseFd socket;
  pid_t child;
};

// This process's connection to a BarePeer.
class BareClient {
public:
  BareClient(kj::AsyncIoContext& io, kj::AutoCloseFd socket);
  KJ_DISALLOW_COPY_AND_MOVE(BareClient);
  capnp::Capability::Client object();

private:
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpcSystem;
};

// An environment of a daemon's Local PC, for one measure; removed by remove().
class OwnEnvironment {
public:
  OwnEnvironment(kj::AsyncIoContext& io, kj::StringPtr socket);
  KJ_DISALLOW_COPY_AND_MOVE(OwnEnvironment);

  rpc::TaskEnvironment::Client get() { return environment; }
  // Starts this program with `words` as a run and returns it when it has a process.
  rpc::Run::Client launch(kj::ArrayPtr<const kj::StringPtr> words);
  void remove();

private:
  kj::AsyncIoContext& io;
  kj::Own<ClientConnection> connection;
  rpc::TaskEnvironment::Client environment = nullptr;
};

uint64_t nowNs();

// Removes an environment with its workspace.
void removeEnvironment(kj::AsyncIoContext& io, rpc::TaskEnvironment::Client environment);

// A listening unix socket at a path where nothing is.
kj::AutoCloseFd listenOn(kj::StringPtr path);
// The process that listens on a unix socket; of a daemon, that daemon.
pid_t daemonOf(kj::StringPtr socket);
// The memory of a process that is in RAM.
uint64_t residentOctets(pid_t process);
// The folder that a path names a file of; the daemon's own for its socket.
kj::String folderOf(kj::StringPtr path);

// The measures; each prints its figures. `socket` is the daemon's, for Side::OURS.
void measureCall(Side side, kj::StringPtr socket, uint32_t count);
void measureCallsInFlight(Side side, kj::StringPtr socket, uint32_t count);
void measureOutput(Side side, kj::StringPtr socket, uint64_t octets);
void measureInput(Side side, kj::StringPtr socket, uint64_t octets);
// Of these both sides need a daemon's socket: the peer is as large as that daemon, or writes to the
// same disk.
void measureLaunch(Side side, kj::StringPtr socket, uint32_t count);
void measureLaunchNew(Side side, kj::StringPtr socket, uint32_t count);
void measureConnectionMemory(Side side, kj::StringPtr socket, uint32_t count);
// Has no peer.
void measureEnvironmentMemory(kj::StringPtr socket, uint32_t count);
// Writes files of its own in `folder`.
void measureStore(Side side, kj::StringPtr folder, uint32_t writers, uint32_t count);

// The processes in the environment: write that many octets to stdout; read stdin to its end.
void produce(uint64_t octets);
void consume();

}  // namespace capstan::bench
