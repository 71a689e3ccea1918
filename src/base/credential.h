#pragma once

#include <kj/array.h>
#include <kj/string.h>

#include <cstring>

namespace capstan {

// A shared secret between the daemon and one helper: movable, zeroed at the end, never printed.
class Credential {
public:
  enum class Kind {
    NONCE,  // Given to the helper by whoever started it; ends when a token is confirmed.
    TOKEN,  // Made by the helper.
  };

  Credential(Kind kind, kj::Array<kj::byte> key): credentialKind(kind), bytes(kj::mv(key)) {}
  Credential(Credential&&) = default;
  Credential& operator=(Credential&& other) {
    zero();
    credentialKind = other.credentialKind;
    bytes = kj::mv(other.bytes);
    return *this;
  }
  ~Credential() noexcept(false) { zero(); }

  Credential clone() const { return Credential(credentialKind, kj::heapArray(bytes.asPtr())); }
  Kind kind() const { return credentialKind; }
  kj::ArrayPtr<const kj::byte> key() const { return bytes; }

private:
  Kind credentialKind;
  kj::Array<kj::byte> bytes;

  void zero() {
    if (bytes.size() > 0) explicit_bzero(bytes.begin(), bytes.size());
  }
};

// What logs show of any credential.
inline kj::StringPtr KJ_STRINGIFY(const Credential&) { return "(credential)"_kj; }

}  // namespace capstan
