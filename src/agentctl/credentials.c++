#include "agentctl/credentials.h"

namespace capstan {

Credentials::Credentials(kj::Array<kj::byte> nonce)
    : current{0, kj::mv(nonce)}, unknown(randomBytes(CREDENTIAL_BYTES)) {}

Credentials::~Credentials() noexcept(false) {
  zeroBytes(current.bytes);
  KJ_IF_MAYBE (next, pending) {
    zeroBytes(next->bytes);
  }
}

Credentials::Key Credentials::find(agentctl::CredentialKind kind, uint64_t rotationId) const {
  bool wantsToken = kind == agentctl::CredentialKind::TOKEN;
  bool currentIsToken = current.generation != 0;
  if (wantsToken == currentIsToken &&
      (!wantsToken || rotationId == 0 || rotationId == current.generation)) {
    return {current.bytes, current.generation, true};
  }
  KJ_IF_MAYBE (next, pending) {
    if (wantsToken && (rotationId == 0 || rotationId == next->generation)) {
      return {next->bytes, next->generation, true};
    }
  }
  return {unknown, UINT64_MAX, false};
}

Result<kj::Array<kj::byte>> Credentials::rotate(uint64_t id) {
  KJ_IF_MAYBE (next, pending) {
    if (next->generation == id) return kj::heapArray<kj::byte>(next->bytes);
  }
  if (id == 0 || id == UINT64_MAX) {
    return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("this is no rotation id"))
        .at(kj::str("rotationId"));
  }
  if (id <= lastId) {
    return Problem(ErrorCode::WRONG_STATE, kj::str("an old rotation id"))
        .because(kj::str("the last one was ", lastId));
  }
  KJ_IF_MAYBE (next, pending) {
    zeroBytes(next->bytes);
  }
  lastId = id;
  auto& made = pending.emplace(Secret{id, randomBytes(CREDENTIAL_BYTES)});
  return kj::heapArray<kj::byte>(made.bytes);
}

Outcome Credentials::confirm(uint64_t id) {
  KJ_IF_MAYBE (next, pending) {
    if (next->generation == id) {
      zeroBytes(current.bytes);
      current = kj::mv(*next);
      pending = nullptr;
      return nullptr;
    }
  }
  if (id != 0 && id == current.generation) return nullptr;
  if (id <= lastId) return Problem(ErrorCode::WRONG_STATE, kj::str("an old rotation id"));
  return Problem(ErrorCode::NOT_FOUND, kj::str("no such rotation is in progress"));
}

bool Credentials::isValid(uint64_t generation) const {
  if (generation == current.generation) return true;
  KJ_IF_MAYBE (next, pending) {
    return next->generation == generation;
  }
  return false;
}

}  // namespace capstan
