#include "wire/handshake.h"

#include <kj/debug.h>
#include <kj/string.h>

#include <sys/random.h>

namespace capstan {

namespace {

kj::StringPtr roleWord(HandshakeRole role) {
  return role == HandshakeRole::AGENTCTL ? "capstan-agentctl"_kj : "capstan-daemon--"_kj;
}

}  // namespace

bool isWellFormed(const HandshakeView& seen) {
  return (seen.kind == agentctl::CredentialKind::NONCE ||
          seen.kind == agentctl::CredentialKind::TOKEN) &&
         seen.serverId.size() == SERVER_ID_BYTES &&
         seen.clientChallenge.size() == CHALLENGE_BYTES &&
         seen.serverChallenge.size() == CHALLENGE_BYTES;
}

Sha256Digest handshakeProof(kj::ArrayPtr<const kj::byte> credential, const HandshakeView& seen,
                            HandshakeRole role) {
  KJ_REQUIRE(isWellFormed(seen), "handshake parts have wrong sizes");
  kj::byte kind = static_cast<kj::byte>(seen.kind);
  kj::ArrayPtr<const kj::byte> parts[] = {roleWord(role).asBytes(), kj::arrayPtr(&kind, 1),
                                          seen.serverId, seen.clientChallenge,
                                          seen.serverChallenge};
  return hmacSha256(credential, parts);
}

bool handshakeProofHolds(kj::ArrayPtr<const kj::byte> credential, const HandshakeView& seen,
                         HandshakeRole role, kj::ArrayPtr<const kj::byte> proof) {
  if (!isWellFormed(seen)) return false;
  return equalInConstantTime(handshakeProof(credential, seen, role), proof);
}

kj::Array<kj::byte> randomBytes(size_t size) {
  auto bytes = kj::heapArray<kj::byte>(size);
  size_t filled = 0;
  while (filled < size) {
    ssize_t n;
    KJ_SYSCALL(n = getrandom(bytes.begin() + filled, size - filled, 0));
    filled += static_cast<size_t>(n);
  }
  return bytes;
}

}  // namespace capstan
