#include "wire/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace capstan {

namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the primes.
constexpr std::array<uint32_t, 64> ROUND = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t readBigEndian(const kj::byte* from) {
  return uint32_t{from[0]} << 24 | uint32_t{from[1]} << 16 | uint32_t{from[2]} << 8 | from[3];
}

void writeBigEndian(kj::byte* to, uint32_t value) {
  to[0] = static_cast<kj::byte>(value >> 24);
  to[1] = static_cast<kj::byte>(value >> 16);
  to[2] = static_cast<kj::byte>(value >> 8);
  to[3] = static_cast<kj::byte>(value);
}

}  // namespace

void zeroBytes(kj::ArrayPtr<kj::byte> bytes) {
  if (bytes.size() == 0) return;
  std::memset(bytes.begin(), 0, bytes.size());
  __asm__ __volatile__("" : : "r"(bytes.begin()) : "memory");  // The zeros are observed.
}

bool equalInConstantTime(kj::ArrayPtr<const kj::byte> a, kj::ArrayPtr<const kj::byte> b) {
  if (a.size() != b.size()) return false;
  volatile kj::byte difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<kj::byte>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

Sha256::Sha256()
    : state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

Sha256::~Sha256() noexcept(false) {
  zeroBytes(block);
  zeroBytes(kj::arrayPtr(state.data(), state.size()).asBytes());
}

void Sha256::compress(const kj::byte* input) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = readBigEndian(input + 4 * i);
  }
  for (size_t i = 16; i < 64; ++i) {
    uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + ROUND[i] + w[i];
    uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  uint32_t added[] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) {
    state[i] += added[i];
  }
}

void Sha256::update(kj::ArrayPtr<const kj::byte> bytes) {
  totalBytes += bytes.size();
  while (bytes.size() > 0) {
    if (blockSize == 0 && bytes.size() >= block.size()) {
      compress(bytes.begin());
      bytes = bytes.slice(block.size(), bytes.size());
      continue;
    }
    size_t taken = std::min(block.size() - blockSize, bytes.size());
    std::memcpy(block.begin() + blockSize, bytes.begin(), taken);
    blockSize += taken;
    bytes = bytes.slice(taken, bytes.size());
    if (blockSize == block.size()) {
      compress(block.begin());
      blockSize = 0;
    }
  }
}

Sha256Digest Sha256::finish() {
  uint64_t bits = totalBytes * 8;
  block[blockSize++] = 0x80;
  if (blockSize > 56) {
    std::fill(block.begin() + blockSize, block.end(), 0);
    compress(block.begin());
    blockSize = 0;
  }
  std::fill(block.begin() + blockSize, block.begin() + 56, 0);
  writeBigEndian(block.begin() + 56, static_cast<uint32_t>(bits >> 32));
  writeBigEndian(block.begin() + 60, static_cast<uint32_t>(bits));
  compress(block.begin());
  Sha256Digest digest;
  for (size_t i = 0; i < 8; ++i) {
    writeBigEndian(digest.begin() + 4 * i, state[i]);
  }
  return digest;
}

Sha256Digest hmacSha256(kj::ArrayPtr<const kj::byte> key,
                        kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> parts) {
  kj::FixedArray<kj::byte, 64> padded;
  std::fill(padded.begin(), padded.end(), 0);
  if (key.size() > padded.size()) {
    Sha256 hash;
    hash.update(key);
    auto digest = hash.finish();
    std::copy(digest.begin(), digest.end(), padded.begin());
    zeroBytes(digest);
  } else {
    std::copy(key.begin(), key.end(), padded.begin());
  }
  for (auto& octet: padded) {
    octet ^= 0x36;
  }
  Sha256 inner;
  inner.update(padded);
  for (auto part: parts) {
    inner.update(part);
  }
  auto digest = inner.finish();
  for (auto& octet: padded) {
    octet ^= 0x36 ^ 0x5c;  // From the inner padding to the outer.
  }
  Sha256 outer;
  outer.update(padded);
  outer.update(digest);
  zeroBytes(padded);
  return outer.finish();
}

}  // namespace capstan
