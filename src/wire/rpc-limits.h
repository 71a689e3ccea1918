#pragma once
// The bounds of one RPC connection, and the count of what it still owes.

#include <kj/exception.h>
#include <kj/map.h>
#include <kj/refcount.h>
#include <kj/time.h>

#include <cstdint>

namespace capstan {

// Bounds of one RPC connection. All octet counts are of whole messages.
struct RpcLimits {
  // Above this many unanswered calls CallMeter::admit() refuses further ones (retryable). Writes
  // into byte streams are left out: a few stalled uploads must not lock out everything else.
  uint32_t overloadAbove = 256;

  // Above this many unanswered calls the connection is closed: no honest client goes on after 3,800
  // refusals. Reading never pauses instead: a kill that stands behind the calls it would answer
  // has to be read. Stream writes are left out here too (a window of 1 MiB holds 10,000 tiny ones);
  // they are bounded by octets.
  uint32_t maxUnanswered = 4096;

  // Above this many octets of unanswered requests the connection is closed. Sixteen full stream
  // windows; RpcConnection::streamBudget() keeps our own clients below it. A stream write counts
  // STREAM_WRITE_COST more than its size.
  uint64_t maxRequestOctets = 16u << 20;
  static constexpr uint64_t STREAM_WRITE_COST =
      512;  // about what a held call costs beside its text

  // What the peer is taken to allow as its own maxRequestOctets.
  uint64_t peerRequestOctets = 16u << 20;

  // Above this many octets of messages that wait to be written the connection is closed: the peer
  // asks, but does not read.
  uint64_t maxQueuedOctets = 64u << 20;

  // Most octets of one received message, and most octets that reading it may touch.
  uint64_t receiveOctets = 1u << 20;

  // Most octets of one sent message; a larger one fails the call that makes it.
  uint64_t sendOctets = 64u << 20;

  // What a peer may have in flight in one `-> stream` method. Cap'n Proto takes 64 KiB for
  // anything that is not a socket, which throttles streams inside tunnels.
  uint32_t streamWindowOctets = 1u << 20;

  // Messages handed over before sockets and timers get their turn.
  uint32_t messagesPerTurn = 16;

  // How long the last words (an abort with its reason) may take after reading has ended.
  kj::Duration closeGrace = 1 * kj::SECONDS;

  // For peers that are not trusted: the daemon towards its clients, agentctl before the handshake.
  static RpcLimits forClients() { return RpcLimits(); }

  // For what dials a server it trusts to answer (client library, agent-link): replies may be long.
  static RpcLimits forServers() {
    RpcLimits result;
    result.receiveOctets = 64u << 20;
    result.maxRequestOctets = 256u << 20;  // every output stream of ours may stall at once
    return result;
  }
};

// What one connection's peer has asked and not been answered. Capability servers keep a reference
// and begin each method with admit(), so that a flood is refused while kill and stop still pass.
class CallMeter final: public kj::Refcounted {
public:
  explicit CallMeter(const RpcLimits& limits): limits(limits) {}

  // Calls of every kind that the peer has sent and whose Return has not been written.
  uint32_t unanswered() const { return total; }
  // The octets of those calls.
  uint64_t requestOctets() const { return octets; }
  // Whether methods other than signal, stop and revoke are to be refused now.
  bool overloaded() const { return guarded() > limits.overloadAbove; }
  // New bounds of calls for a peer that has proved itself: above `overload` calls are refused,
  // above `most` the connection is closed.
  void allow(uint32_t overload, uint32_t most) {
    limits.overloadAbove = overload;
    limits.maxUnanswered = most;
  }
  // Throws an *overloaded* exception (retryable) when overloaded().
  void admit() const;

  // For the message stream. A question is begun when read, answered when its Return is written,
  // finished when its Finish is read (which answers only calls that want no Return).
  struct Question {
    uint64_t octets = 0;
    bool streamWrite = false;
    bool wantsReturn = true;
  };
  void begin(uint32_t id, Question question);
  void answered(uint32_t id);
  void finished(uint32_t id);
  // Why the connection must be closed, or null.
  kj::Maybe<kj::String> excess() const;

private:
  struct Entry {
    Question question;
    uint32_t streamWrites;
    uint32_t calls = 1;  // not yet answered; above 1 only for a peer that reuses an id too early
    uint32_t begun = 1;
  };

  RpcLimits limits;
  uint32_t total = 0;
  uint32_t streamWrites = 0;
  uint64_t octets = 0;
  kj::HashMap<uint32_t, Entry> questions;

  uint32_t guarded() const { return total - streamWrites; }
};

}  // namespace capstan
