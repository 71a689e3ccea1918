#pragma once
// The handshake maths of schema/agentctl.capnp (`Agentctl.begin`), for both of its sides. No
// secret travels: each side proves with HMAC-SHA256(K, role || kind || serverId || clientChallenge
// || serverChallenge) that it knows the credential K.

#include "agentctl.capnp.h"
#include "wire/sha256.h"

#include <kj/array.h>

namespace capstan {

constexpr size_t CREDENTIAL_BYTES = 32;  // A token's size; a nonce has at least NONCE_MIN_BYTES.
constexpr size_t NONCE_MIN_BYTES = 16;
constexpr size_t NONCE_MAX_BYTES = 256;
constexpr size_t SERVER_ID_BYTES = 16;
constexpr size_t CHALLENGE_BYTES = 32;
constexpr size_t PROOF_BYTES = SHA256_BYTES;

// Who made a proof; 16 octets each: "capstan-agentctl", "capstan-daemon--".
enum class HandshakeRole { AGENTCTL, DAEMON };

// What both sides saw of one handshake. Borrows everything.
struct HandshakeView {
  agentctl::CredentialKind kind;
  kj::ArrayPtr<const kj::byte> serverId;         // SERVER_ID_BYTES
  kj::ArrayPtr<const kj::byte> clientChallenge;  // CHALLENGE_BYTES, random, of the daemon
  kj::ArrayPtr<const kj::byte> serverChallenge;  // CHALLENGE_BYTES, random, of agentctl
};

// Whether every part has its exact size. Ask before using what a peer sent.
bool isWellFormed(const HandshakeView& seen);

// The proof that `role` knows `credential`. Requires isWellFormed(seen).
Sha256Digest handshakeProof(kj::ArrayPtr<const kj::byte> credential, const HandshakeView& seen,
                            HandshakeRole role);

// Whether `proof` is what `role` would have sent. Constant time; false also when ill-formed.
bool handshakeProofHolds(kj::ArrayPtr<const kj::byte> credential, const HandshakeView& seen,
                         HandshakeRole role, kj::ArrayPtr<const kj::byte> proof);

// `size` octets from the kernel's random source. Throws (failed) when there is none.
kj::Array<kj::byte> randomBytes(size_t size);

}  // namespace capstan
