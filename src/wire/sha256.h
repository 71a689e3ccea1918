#pragma once
// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104) for the helper's handshake and for checking
// what was copied. Written here because the helper links no cryptographic library; nothing but
// these two may be built on it.

#include <kj/array.h>
#include <kj/common.h>

#include <array>
#include <cstdint>

namespace capstan {

constexpr size_t SHA256_BYTES = 32;
using Sha256Digest = kj::FixedArray<kj::byte, SHA256_BYTES>;

// Overwrites `bytes` with zeros in a way the compiler may not leave out.
void zeroBytes(kj::ArrayPtr<kj::byte> bytes);

// Whether both are equal, in a time that depends on their sizes only. Different sizes: false.
bool equalInConstantTime(kj::ArrayPtr<const kj::byte> a, kj::ArrayPtr<const kj::byte> b);

// One running SHA-256. update() any number of times, then finish() once. The destructor zeroes
// the state, so that it may hash secrets.
class Sha256 {
public:
  Sha256();
  ~Sha256() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Sha256);

  void update(kj::ArrayPtr<const kj::byte> bytes);
  Sha256Digest finish();

private:
  std::array<uint32_t, 8> state;
  kj::FixedArray<kj::byte, 64> block;
  size_t blockSize = 0;
  uint64_t totalBytes = 0;

  void compress(const kj::byte* input);
};

// HMAC-SHA256 of the concatenation of `parts` under `key` (any size). All parts are borrowed for
// the call only.
Sha256Digest hmacSha256(kj::ArrayPtr<const kj::byte> key,
                        kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> parts);

}  // namespace capstan
