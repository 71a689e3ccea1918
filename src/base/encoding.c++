#include "base/encoding.h"

#include <kj/vector.h>

#include <cstdint>

namespace capstan {

namespace {

constexpr char HEX[] = "0123456789abcdef";
constexpr char BASE32[] = "abcdefghijklmnopqrstuvwxyz234567";

// -1 = not of the alphabet
int hexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int base32Value(char c) {
  if (c >= 'a' && c <= 'z') return c - 'a';
  if (c >= '2' && c <= '7') return c - '2' + 26;
  return -1;
}

}  // namespace

kj::String encodeHex(kj::ArrayPtr<const kj::byte> bytes) {
  auto result = kj::heapString(bytes.size() * 2);
  char* out = result.begin();
  for (auto byte: bytes) {
    *out++ = HEX[byte >> 4];
    *out++ = HEX[byte & 15];
  }
  return result;
}

kj::Maybe<kj::Array<kj::byte>> decodeHex(kj::StringPtr text) {
  if (text.size() % 2 != 0) return nullptr;
  auto result = kj::heapArray<kj::byte>(text.size() / 2);
  for (size_t i = 0; i < result.size(); ++i) {
    int high = hexValue(text[2 * i]);
    int low = hexValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return nullptr;
    result[i] = static_cast<kj::byte>(high << 4 | low);
  }
  return kj::mv(result);
}

kj::String encodeBase32(kj::ArrayPtr<const kj::byte> bytes) {
  auto result = kj::heapString((bytes.size() * 8 + 4) / 5);
  char* out = result.begin();
  uint32_t held = 0;
  uint32_t bits = 0;
  for (auto byte: bytes) {
    held = held << 8 | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      *out++ = BASE32[held >> bits & 31];
    }
  }
  if (bits > 0) *out++ = BASE32[held << (5 - bits) & 31];
  return result;
}

kj::Maybe<kj::Array<kj::byte>> decodeBase32(kj::StringPtr text) {
  auto result = kj::heapArray<kj::byte>(text.size() * 5 / 8);
  if ((result.size() * 8 + 4) / 5 != text.size()) return nullptr;
  size_t at = 0;
  uint32_t held = 0;
  uint32_t bits = 0;
  for (char c: text) {
    int value = base32Value(c);
    if (value < 0) return nullptr;
    held = held << 5 | static_cast<uint32_t>(value);
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      result[at++] = static_cast<kj::byte>(held >> bits);
    }
  }
  if ((held & ((1u << bits) - 1)) != 0) return nullptr;
  return kj::mv(result);
}

bool isBase32(kj::ArrayPtr<const char> text) {
  for (char c: text) {
    if (base32Value(c) < 0) return false;
  }
  return true;
}

}  // namespace capstan
