#include "agentctl/credentials.h"

#include "support/test.h"

namespace capstan {

namespace {

using agentctl::CredentialKind;

kj::Array<kj::byte> nonce() { return kj::heapArray<kj::byte>("0123456789abcdef"_kj.asBytes()); }

bool same(kj::ArrayPtr<const kj::byte> a, kj::ArrayPtr<const kj::byte> b) {
  return equalInConstantTime(a, b);
}

kj::Array<kj::byte> tokenOf(Result<kj::Array<kj::byte>> result) {
  REQUIRE(result.is<kj::Array<kj::byte>>());
  return kj::mv(result.get<kj::Array<kj::byte>>());
}

ErrorCode codeOf(Outcome outcome) {
  KJ_IF_MAYBE (problem, outcome) {
    return problem->code;
  }
  return ErrorCode::NONE;
}

}  // namespace

TEST_CASE("the nonce opens until a token is confirmed") {
  Credentials credentials(nonce());
  CHECK(credentials.find(CredentialKind::NONCE, 0).known);
  CHECK(same(credentials.find(CredentialKind::NONCE, 9).bytes, nonce()));
  CHECK_FALSE(credentials.find(CredentialKind::TOKEN, 0).known);
  auto token = tokenOf(credentials.rotate(3));
  CHECK(token.size() == CREDENTIAL_BYTES);
  CHECK(credentials.find(CredentialKind::NONCE, 0).known);
  CHECK(same(credentials.find(CredentialKind::TOKEN, 0).bytes, token));
  CHECK(credentials.isValid(0));
  CHECK(credentials.isValid(3));
  CHECK(codeOf(credentials.confirm(3)) == ErrorCode::NONE);
  CHECK_FALSE(credentials.find(CredentialKind::NONCE, 0).known);
  CHECK_FALSE(credentials.isValid(0));
  CHECK(same(credentials.find(CredentialKind::TOKEN, 3).bytes, token));
}

TEST_CASE("rotation ids increase, old ones do nothing, unknown ones are refused") {
  Credentials credentials(nonce());
  auto first = tokenOf(credentials.rotate(5));
  CHECK(same(first, tokenOf(credentials.rotate(5))));
  CHECK(credentials.rotate(4).get<Problem>().code == ErrorCode::WRONG_STATE);
  CHECK(credentials.rotate(0).get<Problem>().code == ErrorCode::INVALID_ARGUMENT);
  CHECK(codeOf(credentials.confirm(6)) == ErrorCode::NOT_FOUND);
  CHECK(codeOf(credentials.confirm(4)) == ErrorCode::WRONG_STATE);
  CHECK(codeOf(credentials.confirm(0)) == ErrorCode::WRONG_STATE);
  CHECK(codeOf(credentials.confirm(5)) == ErrorCode::NONE);
  CHECK(codeOf(credentials.confirm(5)) == ErrorCode::NONE);
  CHECK(credentials.rotate(5).get<Problem>().code == ErrorCode::WRONG_STATE);
}

TEST_CASE("never more than two credentials are valid") {
  Credentials credentials(nonce());
  auto first = tokenOf(credentials.rotate(1));
  auto second = tokenOf(credentials.rotate(2));  // Replaces the one that was never confirmed.
  CHECK_FALSE(same(first, second));
  CHECK_FALSE(credentials.isValid(1));
  CHECK_FALSE(credentials.find(CredentialKind::TOKEN, 1).known);
  CHECK(credentials.isValid(0));
  CHECK(codeOf(credentials.confirm(1)) == ErrorCode::WRONG_STATE);
  CHECK(codeOf(credentials.confirm(2)) == ErrorCode::NONE);
  auto third = tokenOf(credentials.rotate(3));
  CHECK(same(credentials.find(CredentialKind::TOKEN, 0).bytes, second));
  CHECK(same(credentials.find(CredentialKind::TOKEN, 2).bytes, second));
  CHECK(same(credentials.find(CredentialKind::TOKEN, 3).bytes, third));
}

TEST_CASE("an unknown credential is answered with a key nobody knows") {
  Credentials credentials(nonce());
  auto key = credentials.find(CredentialKind::TOKEN, 1);
  CHECK_FALSE(key.known);
  CHECK(key.bytes.size() == CREDENTIAL_BYTES);
  CHECK_FALSE(credentials.isValid(key.generation));
}

}  // namespace capstan
