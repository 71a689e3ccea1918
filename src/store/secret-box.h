#pragma once
// Seals secrets for the database: AES-256-GCM with a key in a file beside it.

#include "base/entropy.h"
#include "base/problem.h"

#include <kj/array.h>

#include <cstring>

namespace capstan {

// Octets that are zeroed at their end. Never printed.
class SecretBytes {
public:
  explicit SecretBytes(kj::Array<kj::byte> bytes): bytes(kj::mv(bytes)) {}
  SecretBytes(SecretBytes&&) = default;
  SecretBytes& operator=(SecretBytes&& other) {
    zero();
    bytes = kj::mv(other.bytes);
    return *this;
  }
  ~SecretBytes() noexcept(false) { zero(); }

  kj::ArrayPtr<const kj::byte> asPtr() const { return bytes; }
  kj::ArrayPtr<kj::byte> asPtr() { return bytes; }

private:
  kj::Array<kj::byte> bytes;

  void zero() {
    if (bytes.size() > 0) explicit_bzero(bytes.begin(), bytes.size());
  }
};

inline kj::StringPtr KJ_STRINGIFY(const SecretBytes&) { return "(secret)"_kj; }

// Holds the key. A sealed value can be opened only with the key and as the row it was sealed for.
// Const methods may be called from any thread.
class SecretBox {
public:
  static constexpr size_t KEY_BYTES = 32;
  static constexpr size_t OVERHEAD = 1 + 8 + 12 + 16;  // Format, key's mark, nonce, tag.
  static constexpr size_t MOST_BYTES = 1u << 20;       // Of one secret.

  // Reads the key from the file secret.key in `directory`, or makes it, durably, if there is none.
  // denied, naming the file, when it is no regular file of this user with mode 0600 and exactly 32
  // octets, or a symbolic link; resourceExhausted when it cannot be written for want of room.
  // `expectKey`: the store has sealed values, so an absent key is denied and none is made.
  enum class WhenAbsent { MAKE, REFUSE };
  static Result<SecretBox> open(kj::StringPtr directory, Entropy& entropy,
                                WhenAbsent whenAbsent = WhenAbsent::MAKE);

  SecretBox(SecretBox&&) = default;
  SecretBox& operator=(SecretBox&&) = default;

  // `rowId` is authenticated with the value, so a sealed value moved to another row does not open.
  // invalidArgument above MOST_BYTES.
  Result<kj::Array<kj::byte>> seal(kj::StringPtr rowId, kj::ArrayPtr<const kj::byte> value,
                                   Entropy& entropy) const;
  // storeCorrupt, naming the row and nothing of the value, when it was changed, belongs to another
  // row, or was sealed with a key that is not here.
  Result<SecretBytes> open(kj::StringPtr rowId, kj::ArrayPtr<const kj::byte> sealed) const;

  // Changing the key: begin; seal every row again (SecretTable::reseal) and commit; finish. A crash
  // in between leaves both keys, open() reads both, and isRotating() tells to do it once more.
  Outcome beginRotation(Entropy& entropy);
  bool isRotating() const { return next != nullptr; }
  // Whether a value is sealed with the key that seal() uses now.
  bool isCurrent(kj::ArrayPtr<const kj::byte> sealed) const;
  // Only after all rows are committed with the new key: the old key goes.
  Outcome finishRotation();

private:
  struct Key {
    SecretBytes bytes;
    kj::byte mark[8];  // Tells keys apart; from a hash of the key.
  };
  SecretBox(kj::String directory, Key current, kj::Maybe<Key> next)
      : directory(kj::mv(directory)), current(kj::mv(current)), next(kj::mv(next)) {}

  kj::String directory;
  Key current;
  kj::Maybe<Key> next;

  const Key& sealing() const;
  static Key makeKey(SecretBytes bytes);
  static Result<kj::Maybe<Key>> readKey(kj::StringPtr path);
  static Result<Key> writeKey(kj::StringPtr directory, kj::StringPtr name, Entropy& entropy);
};

}  // namespace capstan
