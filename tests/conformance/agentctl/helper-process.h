#pragma once
// A real agentctl for the cases of this folder, and the client's side of its handshake.

#include "agentctl.capnp.h"

#include "support/test.h"
#include "wire/handshake.h"
#include "wire/rpc-connection.h"

#include <string>
#include <sys/types.h>

namespace capstan::test {

// Every wait of a case has this limit.
template <typename T>
T await(IoLoop& loop, kj::Promise<T> promise, kj::Duration limit = 30 * kj::SECONDS) {
  return loop.timer.timeoutAfter(limit, kj::mv(promise)).wait(loop.waitScope);
}

// Repeats `question` until it says yes; false when it never did.
bool becomesTrue(IoLoop& loop, kj::Function<bool()> question,
                 kj::Duration limit = 10 * kj::SECONDS);

// One started agentctl; killed at the end. The program is $AGENTCTL unless `command` is given.
class Helper {
public:
  explicit Helper(IoLoop& loop, kj::ArrayPtr<const kj::StringPtr> options = nullptr,
                  kj::ArrayPtr<const kj::StringPtr> command = nullptr);
  ~Helper() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Helper);

  kj::StringPtr nonce = "0123456789abcdef0123456789abcdef"_kj;
  kj::StringPtr directory() const { return folder.path(); }
  kj::StringPtr addressLine() const { return line; }
  pid_t pid() const { return child; }
  void kill(int signal);
  // Whether it ended within `limit`; collects it.
  bool ends(kj::Duration limit = 10 * kj::SECONDS);

  kj::Own<RpcConnection> connect();

private:
  IoLoop& loop;
  TempDir folder;
  kj::String socketPath;
  kj::String line;
  pid_t child = -1;
  bool collected = false;
};

// What the server said in a handshake, checked against `credential`.
struct Begun {
  agentctl::Attempt::Client attempt;
  kj::Array<kj::byte> proof;  // What this side has to send.
  bool serverProved;
};
Begun begin(IoLoop& loop, RpcConnection& link, kj::ArrayPtr<const kj::byte> credential,
            agentctl::CredentialKind kind = agentctl::CredentialKind::NONCE,
            uint64_t rotationId = 0);

agentctl::Control::Client control(IoLoop& loop, RpcConnection& link,
                                  kj::ArrayPtr<const kj::byte> credential,
                                  agentctl::CredentialKind kind = agentctl::CredentialKind::NONCE,
                                  uint64_t rotationId = 0);
agentctl::Bulk::Client bulk(IoLoop& loop, RpcConnection& link,
                            kj::ArrayPtr<const kj::byte> credential);

// How a case wants an instance.
struct Wanted {
  kj::StringPtr id = "x-1"_kj;
  kj::StringPtr script;  // For `sh -c`, unless `program` is given.
  kj::StringPtr program = nullptr;
  bool ephemeral = false;
  bool terminal = false;
  kj::StringPtr directory = nullptr;
  uint64_t spoolLimit = 0;
  bool pauseWhenFull = false;
  uint64_t stopGraceMs = 500;
};
agentctl::Instance::Client configured(IoLoop& loop, agentctl::Control::Client control,
                                      const Wanted& wanted);
// And started; requires success.
agentctl::Instance::Client started(IoLoop& loop, agentctl::Control::Client control,
                                   const Wanted& wanted);

// Takes output as it comes. Must outlive its client.
class Collector final: public rpc::OutputSink::Server {
public:
  kj::Promise<void> write(WriteContext context) override;
  kj::Promise<void> gap(GapContext context) override;
  kj::Promise<void> end(EndContext context) override;

  std::string out, err;  // Only while keep is set.
  bool keep = true;
  bool stall = false;  // Never answer a write.
  uint64_t bytes = 0, gaps = 0, next = 0;
  bool consistent = true;  // Every piece began where the last one ended.
  bool ended = false;
  Sha256 hash;
};
struct Attached {
  Collector* sink;  // Owned by the capability that the helper holds: good while that lives.
  rpc::Subscription::Client subscription;
};
Attached attach(IoLoop& loop, agentctl::Bulk::Client bulk, kj::StringPtr id, bool follow = true,
                bool stall = false, bool keep = true);

// Waits for the end of the output.
void drain(IoLoop& loop, Attached& attached, kj::Duration limit = 60 * kj::SECONDS);

// How many processes have `part` in their command line.
int processesWith(kj::StringPtr part);
// VmRSS of a process in KiB; 0 = none.
uint64_t residentKiB(pid_t pid);

}  // namespace capstan::test
