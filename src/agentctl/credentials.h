#pragma once
// Which secrets open this helper: the nonce of whoever started it, then tokens made here, at most
// two at a time. Pure: no I/O but the kernel's random source.

#include "base/problem.h"
#include "wire/handshake.h"

#include <kj/array.h>

namespace capstan {

// A credential is named by its generation: 0 = the nonce, else the rotation id of a token.
class Credentials {
public:
  explicit Credentials(kj::Array<kj::byte> nonce);
  ~Credentials() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Credentials);

  struct Key {
    kj::ArrayPtr<const kj::byte> bytes;  // Good until the next rotate() or confirm().
    uint64_t generation;
    bool known;  // False: `bytes` is a key nobody knows, for an answer that looks like any other.
  };
  // As the schema's `begin` says.
  Key find(agentctl::CredentialKind kind, uint64_t rotationId) const;

  // A copy of the token of rotation `id`: a new one if the id is higher than all before, the same
  // one if it is the rotation in progress. A new one replaces one that was never confirmed.
  // Problems: invalidArgument (0), wrongState (an old id).
  Result<kj::Array<kj::byte>> rotate(uint64_t id);

  // Ends the credential before rotation `id`. Idempotent. Problems: wrongState, notFound.
  Outcome confirm(uint64_t id);

  // Whether connections made with that generation may go on.
  bool isValid(uint64_t generation) const;

private:
  struct Secret {
    uint64_t generation;
    kj::Array<kj::byte> bytes;
  };
  Secret current;
  kj::Maybe<Secret> pending;
  uint64_t lastId = 0;
  kj::Array<kj::byte> unknown;
};

}  // namespace capstan
