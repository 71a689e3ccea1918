#pragma once
// A typed client of one agentctl: the authenticated control connection, and further connections
// for bulk streams.

#include "agent-link/convert.h"
#include "agent-link/streams.h"
#include "base/async.h"
#include "base/credential.h"
#include "base/problem.h"
#include "base/stream-dialer.h"
#include "domain/limits.h"
#include "domain/process.h"
#include "domain/takeover.h"
#include "wire/rpc-connection.h"

#include <kj/async.h>
#include <kj/function.h>
#include <kj/refcount.h>
#include <kj/timer.h>

namespace capstan {

class AgentInstance;

// What identifies an instance before it has a process.
struct InstanceSpec {
  kj::String id;
  kj::String sessionId;
  kj::String environmentId;
  kj::String taskId;
  kj::String directory;  // For the spool; empty = memory only.
  bool ephemeral = false;
  bool pauseWhenFull = false;
  uint64_t spoolLimitBytes = 0;  // 0 = agentctl's default
  kj::Duration stopGrace = 10 * kj::SECONDS;
};

// What its process shall be. Every variable of the process; nothing is inherited.
struct InstanceVariable {
  kj::String key;
  kj::String value;
};
struct InstanceConfig {
  kj::Array<kj::String> command;
  kj::Array<InstanceVariable> variables;
  kj::String workingDirectory;
  kj::Maybe<Terminal> terminal;
};

// What opens a helper: a nonce (rotation 0), or the token of a rotation.
struct HelperKey {
  Credential credential;
  uint64_t rotation = 0;
  kj::Array<kj::byte> serverId;  // Whose it is; empty = whoever can prove itself.
};

// Makes a new token durable. It is asked before the token before it ends, so that one of the two
// always opens the helper; a Problem leaves the old one in force.
using KeepToken = kj::Function<kj::Promise<Outcome>(const HelperInfo& helper,
                                                    const Credential& token, uint64_t rotation)>;

// One helper, reached and authenticated. Counted: instances and streams keep it. Dropping the last
// reference closes the connections; the helper then ends its ephemeral instances and nothing else.
class AgentLink final: public kj::Refcounted {
public:
  // Connects, proves and is proved to, and takes over with a fresh token, which ends `key` once
  // `keep` has made it durable. The dialer is asked for every further connection. Timer must
  // outlive the link. A peer that cannot prove itself: authFailed, and it learned nothing.
  // Deadlines: connect and handshake.
  static kj::Promise<Result<kj::Own<AgentLink>>> open(kj::Timer& timer,
                                                      kj::Own<StreamDialer> dialer, HelperKey key,
                                                      KeepToken keep, Deadlines deadlines);

  // As open(), beside a link that stands: `key` is that one's, and goes on to be good with every
  // connection made with it until confirm(). `rotation` names the new token: higher than all that
  // were confirmed; that of one that was durable and never confirmed gives the same token again.
  static kj::Promise<Result<kj::Own<AgentLink>>> openBeside(kj::Timer& timer,
                                                            kj::Own<StreamDialer> dialer,
                                                            HelperKey key, uint64_t rotation,
                                                            KeepToken keep, Deadlines deadlines);
  // Ends the credential before this link's, and every connection made with it. After open() and
  // when repeated it changes nothing.
  kj::Promise<Outcome> confirm();

  const HelperInfo& info() const { return helper; }
  // With which the helper can be reached again.
  HelperKey key() const {
    return HelperKey{token.clone(), rotation, kj::heapArray<kj::byte>(helper.serverId)};
  }

  // Resolves when the control connection is gone, whoever closed it. Any number may wait.
  kj::Promise<void> onLost();
  bool isLost() const { return lost; }

  // Reserves an instance; no process yet.
  kj::Promise<Result<kj::Own<AgentInstance>>> create(InstanceSpec spec);
  kj::Promise<Result<kj::Array<InstanceReport>>> list();
  // One that is there, made by whoever was linked before.
  kj::Promise<Result<kj::Own<AgentInstance>>> find(kj::String id);
  // The outcome is safe elsewhere: the helper may forget it. Unknown ids are fine.
  kj::Promise<Outcome> acknowledge(kj::String id);
  // Deletes an ended instance with its log.
  kj::Promise<Outcome> remove(kj::String id);
  // Ends all instances, then the helper.
  kj::Promise<Outcome> shutdown(kj::Duration grace);

  // Opens a bulk connection and delivers the output log of instance `id` to `receiver`. Dropping
  // the result stops the delivery.
  kj::Promise<Result<kj::Own<OutputReading>>> readOutput(kj::String id, OutputRequest what,
                                                         kj::Own<OutputReceiver> receiver);
  // Opens a bulk connection for writing to the instance's stdin. One writer at a time.
  kj::Promise<Result<kj::Own<StdinWriter>>> openStdin(kj::String id, TakeOver takeOver);

  // Only by open().
  AgentLink(kj::Timer& timer, kj::Own<StreamDialer> dialer, Credential token, uint64_t rotation,
            Deadlines deadlines, kj::Own<RpcConnection> connection,
            agentctl::Control::Client control, HelperInfo helper);
  ~AgentLink() noexcept(false);

private:
  kj::Timer& timer;
  kj::Own<StreamDialer> dialer;
  Credential token;
  uint64_t rotation;
  Deadlines deadlines;
  kj::Own<RpcConnection> connection;
  agentctl::Control::Client control;
  HelperInfo helper;
  bool lost = false;
  kj::ForkedPromise<void> lostFork;

  // Bulk connections that prove themselves at once: far fewer than the helper bears.
  AsyncLock handshakes[8];
  uint32_t nextHandshake = 0;

  kj::Promise<Result<kj::Own<BulkConnection>>> openBulk();
  kj::Promise<Result<kj::Own<BulkConnection>>> takeBulkInTurn();
};

// One instance of a helper. Counted; keeps the link.
class AgentInstance final: public kj::Refcounted {
public:
  AgentInstance(kj::Own<AgentLink> link, kj::String id, agentctl::Instance::Client instance,
                kj::Timer& timer, Deadlines deadlines);

  kj::StringPtr id() const { return name; }
  AgentLink& link() { return *owner; }

  // Once, before start.
  kj::Promise<Outcome> configure(InstanceConfig config);
  // Resolves to the pid once execve has succeeded; notFound or denied with the errno's name in
  // upstreamCode when it has not.
  kj::Promise<Result<int>> start();
  kj::Promise<Outcome> signal(kj::String signalName);
  kj::Promise<Outcome> resize(uint16_t columns, uint16_t rows);
  // The process's own exit, after the end of its output. No deadline.
  kj::Promise<Result<ExitStatus>> wait();
  // Ends the whole tree; resolves to the number of processes that could not be signalled.
  kj::Promise<Result<uint32_t>> stop(kj::Duration grace, StopMode mode);
  kj::Promise<Result<InstanceReport>> report();

private:
  kj::Own<AgentLink> owner;
  kj::String name;
  agentctl::Instance::Client instance;
  kj::Timer& timer;
  Deadlines deadlines;
};

}  // namespace capstan
