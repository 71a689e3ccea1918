// The bootstrap object and one handshake: the schema's `Agentctl` and `Attempt`.

#include "agentctl/bulk-cap.h"
#include "agentctl/control-cap.h"
#include "agentctl/server.h"

#include <kj/debug.h>

namespace capstan {

namespace {

class AttemptCap final: public agentctl::Attempt::Server {
public:
  AttemptCap(HelperServer& server, kj::Own<HelperPeer> peer, agentctl::CredentialKind kind,
             uint64_t rotationId, capnp::Data::Reader clientChallenge,
             kj::Array<kj::byte> serverChallenge)
      : server(server),
        peer(kj::mv(peer)),
        kind(kind),
        rotationId(rotationId),
        clientChallenge(kj::heapArray<kj::byte>(clientChallenge)),
        serverChallenge(kj::mv(serverChallenge)) {}

  kj::Promise<void> control(ControlContext context) override {
    auto results = context.getResults();
    if (prove(context.getParams().getProof())) {
      results.setControl(newControlCap(server, kj::addRef(*peer)));
    } else {
      refuse(results.initError());
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> bulk(BulkContext context) override {
    auto results = context.getResults();
    if (prove(context.getParams().getProof())) {
      results.setBulk(newBulkCap(server, kj::addRef(*peer)));
    } else {
      refuse(results.initError());
    }
    return kj::READY_NOW;
  }

private:
  HelperServer& server;
  kj::Own<HelperPeer> peer;
  agentctl::CredentialKind kind;
  uint64_t rotationId;
  kj::Array<kj::byte> clientChallenge;
  kj::Array<kj::byte> serverChallenge;
  bool used = false;

  bool prove(capnp::Data::Reader proof) {
    if (used) return false;
    used = true;
    // Looked up again: it may have ended since the attempt began.
    auto key = server.credentials.find(kind, rotationId);
    HandshakeView seen{kind, server.serverId, clientChallenge, serverChallenge};
    bool holds = handshakeProofHolds(key.bytes, seen, HandshakeRole::DAEMON, proof);
    if (!holds || !key.known) return false;
    peer->prove(key.generation);
    return true;
  }

  static void refuse(rpc::Error::Builder error) {
    writeProblem(Problem(ErrorCode::UNAUTHENTICATED, kj::str("the proof was refused")), error);
  }
};

class AgentctlCap final: public agentctl::Agentctl::Server {
public:
  AgentctlCap(HelperServer& server, kj::Own<HelperPeer> peer): server(server), peer(kj::mv(peer)) {}

  kj::Promise<void> begin(BeginContext context) override {
    auto params = context.getParams();
    auto results = context.getResults();
    if (peer->begun) {
      writeProblem(Problem(ErrorCode::WRONG_STATE, kj::str("one handshake a connection")),
                   results.initError());
      return kj::READY_NOW;
    }
    auto serverChallenge = randomBytes(CHALLENGE_BYTES);
    HandshakeView seen{params.getKind(), server.serverId, params.getChallenge(), serverChallenge};
    if (!isWellFormed(seen)) {
      writeProblem(Problem(ErrorCode::INVALID_ARGUMENT, kj::str("malformed handshake")),
                   results.initError());
      return kj::READY_NOW;
    }
    peer->begun = true;
    auto key = server.credentials.find(params.getKind(), params.getRotationId());
    results.setServerId(server.serverId);
    results.setChallenge(serverChallenge);
    auto proof = handshakeProof(key.bytes, seen, HandshakeRole::AGENTCTL);
    results.setProof(kj::ArrayPtr<const kj::byte>(proof));
    results.setAttempt(kj::heap<AttemptCap>(server, kj::addRef(*peer), params.getKind(),
                                            params.getRotationId(), params.getChallenge(),
                                            kj::mv(serverChallenge)));
    return kj::READY_NOW;
  }

private:
  HelperServer& server;
  kj::Own<HelperPeer> peer;
};

}  // namespace

agentctl::Agentctl::Client newAgentctlCap(HelperServer& server, kj::Own<HelperPeer> peer) {
  return kj::heap<AgentctlCap>(server, kj::mv(peer));
}

}  // namespace capstan
