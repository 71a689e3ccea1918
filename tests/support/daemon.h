#pragma once
// A whole daemon in the test's own process: the real supervisor, the standalone backend and a real
// agentctl ($AGENTCTL_DIR), spoken to over in-memory pipes.

#include "backends/standalone/standalone-backend.h"
#include "client/connection.h"
#include "core/helper-book.h"
#include "core/supervisor.h"
#include "rpc/server.h"
#include "support/test.h"

#include <string>

namespace capstan::test {

// The wall clock, set forward by hand.
class ShiftedClock final: public kj::Clock {
public:
  kj::Duration by = 0 * kj::SECONDS;
  kj::Date now() const override { return kj::systemPreciseCalendarClock().now() + by; }
};

// Runtimes beside the standalone one, and what lies behind them. Made after the loop, gone before
// it.
class FurtherRuntimes {
public:
  virtual ~FurtherRuntimes() noexcept(false) = default;
  // The backends of one life of the daemon.
  virtual kj::Vector<kj::Own<Backend>> begin() = 0;
};
using NewRuntimes =
    kj::Function<kj::Own<FurtherRuntimes>(IoLoop& loop, UvLoop& uv, Entropy& entropy)>;

class Daemon {
public:
  explicit Daemon(Limits limits = Limits(), kj::Maybe<NewRuntimes> further = nullptr);
  ~Daemon() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Daemon);

  IoLoop loop;
  TempDir state;
  ShiftedClock clock;

  // The daemon's objects end as at an orderly end, or as if its process were killed: the store
  // takes nothing more and its helpers are killed with it. Connections are cut.
  void endOrderly();
  void endAsIfKilled();
  // New objects on the same state.
  void begin();
  void restart() {
    endOrderly();
    begin();
  }

  // A new client, as the user `uid` (default: the daemon's own).
  kj::Own<ClientConnection> connect();
  kj::Own<ClientConnection> connect(Peer peer);

  // Waits with a limit of 30 s.
  template <typename T>
  T wait(kj::Promise<T> promise) {
    return loop.timer.timeoutAfter(30 * kj::SECONDS, kj::mv(promise)).wait(loop.waitScope);
  }
  template <typename Results>
  capnp::Response<Results> wait(capnp::RemotePromise<Results> promise) {
    return wait(promise.then([](capnp::Response<Results>&& response) { return kj::mv(response); }));
  }
  // Waits until `question` says yes; false after 10 s.
  bool becomesTrue(kj::Function<bool()> question);

  kj::String environmentFolder(kj::StringPtr id) {
    return kj::str(state.path(), "/environments/", id);
  }
  Supervisor& core() { return *supervisor; }
  Database& database() { return *store; }
  SecretVault& secrets() { return *vault; }
  RuntimeRegistry& registry() { return *runtimes; }
  kj::String databasePath() { return state / "capstan.db"; }
  // The helpers that this daemon has started and that still run.
  kj::Vector<pid_t> helperPids();

private:
  Limits limits;
  UvLoop uv;
  Offload offload;
  SystemEntropy entropy;
  HelperFiles files;
  kj::Maybe<kj::Own<FurtherRuntimes>> further;
  kj::Own<StandaloneBackend> standalone;
  kj::Vector<kj::Own<Backend>> backends;  // Of `further`.
  kj::Own<RuntimeRegistry> runtimes;
  kj::Own<Database> store;
  kj::Maybe<SecretBox> box;
  kj::Own<SecretVault> vault;
  kj::Own<Catalog> catalog;
  kj::Own<StoredHelperBook> helpers;
  kj::Own<Services> services;
  kj::Own<Supervisor> supervisor;
  kj::Own<Frontend> frontend;
  kj::Own<RpcServer> server;

  void dropAll();
};

// Collects an output log.
class Collector final: public rpc::OutputSink::Server {
public:
  struct Seen {
    std::string out, err;
    uint64_t next = 0;  // The offset that has to come next.
    uint64_t octets = 0;
    bool ordered = true;  // Every write began where the last one ended.
    bool ended = false;
    bool keep = true;  // false: count only.
  };
  // `seen` outlives the sink. While `*hold` is true, writes are not answered.
  explicit Collector(Seen& seen, kj::Maybe<kj::Promise<void>> hold = nullptr);

protected:
  kj::Promise<void> write(WriteContext context) override;
  kj::Promise<void> gap(GapContext context) override;
  kj::Promise<void> end(EndContext context) override;

private:
  Seen& seen;
  kj::Maybe<kj::ForkedPromise<void>> hold;
};

void setCommand(rpc::LaunchSpec::Builder spec, std::initializer_list<kj::StringPtr> words);

}  // namespace capstan::test
