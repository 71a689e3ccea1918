#include "wire/handshake.h"

#include "support/test.h"

#include <kj/encoding.h>

#include <set>
#include <string>

namespace capstan {

namespace {

kj::String hexOf(const Sha256Digest& digest) { return kj::encodeHex(digest); }

Sha256Digest hashOf(kj::StringPtr text) {
  Sha256 hash;
  hash.update(text.asBytes());
  return hash.finish();
}

Sha256Digest hmacOf(kj::ArrayPtr<const kj::byte> key, kj::ArrayPtr<const kj::byte> data) {
  return hmacSha256(key, kj::arrayPtr(&data, 1));
}

kj::Array<kj::byte> repeated(kj::byte value, size_t count) {
  auto result = kj::heapArray<kj::byte>(count);
  for (auto& octet: result) {
    octet = value;
  }
  return result;
}

}  // namespace

TEST_CASE("sha256 gives the digests of RFC 6234") {
  CHECK(hexOf(hashOf("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hexOf(hashOf("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hexOf(hashOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 million;
  auto chunk = repeated('a', 1000);
  for (int i = 0; i < 1000; ++i) {
    million.update(chunk);
  }
  CHECK(hexOf(million.finish()) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256 does not depend on how its input is cut") {
  auto data = kj::heapArray<kj::byte>(257);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<kj::byte>(i * 7);
  }
  for (size_t size: {55u, 56u, 63u, 64u, 65u, 119u, 120u, 257u}) {
    Sha256 whole;
    whole.update(data.slice(0, size));
    auto expected = whole.finish();
    for (size_t cut = 0; cut <= size; cut += 13) {
      Sha256 parts;
      parts.update(data.slice(0, cut));
      parts.update(data.slice(cut, size));
      CHECK(hexOf(parts.finish()) == hexOf(expected));
    }
  }
}

TEST_CASE("hmac-sha256 gives the values of RFC 4231") {
  CHECK(hexOf(hmacOf(repeated(0x0b, 20), "Hi There"_kj.asBytes())) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hexOf(hmacOf("Jefe"_kj.asBytes(), "what do ya want for nothing?"_kj.asBytes())) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hexOf(hmacOf(repeated(0xaa, 20), repeated(0xdd, 50))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hexOf(hmacOf(repeated(0xaa, 131),
                     "Test Using Larger Than Block-Size Key - Hash Key First"_kj.asBytes())) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("comparison in constant time and zeroing") {
  auto a = repeated(1, 32);
  auto b = repeated(1, 32);
  CHECK(equalInConstantTime(a, b));
  for (size_t i = 0; i < b.size(); ++i) {
    b[i] ^= 0x80;
    CHECK_FALSE(equalInConstantTime(a, b));
    b[i] ^= 0x80;
  }
  CHECK_FALSE(equalInConstantTime(a, b.slice(0, 31)));
  zeroBytes(a);
  CHECK(equalInConstantTime(a, repeated(0, 32)));
}

TEST_CASE("a proof holds for its role, kind, server and challenges only") {
  auto credential = repeated(7, CREDENTIAL_BYTES);
  auto id = repeated(1, SERVER_ID_BYTES), other = repeated(9, CHALLENGE_BYTES);
  auto mine = repeated(2, CHALLENGE_BYTES), theirs = repeated(3, CHALLENGE_BYTES);
  HandshakeView seen{agentctl::CredentialKind::TOKEN, id, mine, theirs};
  auto proof = handshakeProof(credential, seen, HandshakeRole::DAEMON);

  // The contract, spelled out octet by octet.
  kj::Vector<kj::byte> said;
  said.addAll("capstan-daemon--"_kj.asBytes());
  said.add(1);
  said.addAll(id);
  said.addAll(mine);
  said.addAll(theirs);
  CHECK(hexOf(proof) == hexOf(hmacOf(credential, said)));

  CHECK(handshakeProofHolds(credential, seen, HandshakeRole::DAEMON, proof));
  CHECK_FALSE(handshakeProofHolds(credential, seen, HandshakeRole::AGENTCTL, proof));
  CHECK_FALSE(handshakeProofHolds(other, seen, HandshakeRole::DAEMON, proof));
  auto changed = seen;
  changed.kind = agentctl::CredentialKind::NONCE;
  CHECK_FALSE(handshakeProofHolds(credential, changed, HandshakeRole::DAEMON, proof));
  changed = seen;
  changed.serverId = other.slice(0, SERVER_ID_BYTES);
  CHECK_FALSE(handshakeProofHolds(credential, changed, HandshakeRole::DAEMON, proof));
  changed = seen;
  changed.clientChallenge = other;
  CHECK_FALSE(handshakeProofHolds(credential, changed, HandshakeRole::DAEMON, proof));
  changed.clientChallenge = theirs;
  changed.serverChallenge = mine;
  CHECK_FALSE(handshakeProofHolds(credential, changed, HandshakeRole::DAEMON, proof));
}

TEST_CASE("parts of a wrong size never prove anything") {
  auto credential = repeated(7, CREDENTIAL_BYTES);
  auto id = repeated(1, SERVER_ID_BYTES);
  auto mine = repeated(2, CHALLENGE_BYTES), theirs = repeated(3, CHALLENGE_BYTES);
  HandshakeView seen{agentctl::CredentialKind::NONCE, id, mine.slice(0, 31), theirs};
  CHECK_FALSE(isWellFormed(seen));
  CHECK_FALSE(handshakeProofHolds(credential, seen, HandshakeRole::DAEMON, mine));
  CHECK_THROWS_AS(handshakeProof(credential, seen, HandshakeRole::DAEMON), kj::Exception);
  seen.clientChallenge = mine;
  CHECK(isWellFormed(seen));
  CHECK_FALSE(handshakeProofHolds(credential, seen, HandshakeRole::DAEMON, nullptr));
}

TEST_CASE("random octets differ") {
  std::set<std::string> seen;
  for (int i = 0; i < 64; ++i) {
    seen.insert(kj::encodeHex(randomBytes(16)).cStr());
  }
  CHECK(seen.size() == 64);
}

}  // namespace capstan
