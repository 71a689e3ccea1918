// Ids, encodings, back-off: what takes randomness as an argument.

#include "base/backoff.h"
#include "base/encoding.h"
#include "base/ids.h"

#include "support/test.h"

#include <set>
#include <string>

namespace capstan {
namespace {

class FixedEntropy final: public Entropy {
public:
  explicit FixedEntropy(kj::byte octet): octet(octet) {}
  void fill(kj::ArrayPtr<kj::byte> bytes) override {
    for (auto& byte: bytes) {
      byte = octet;
    }
  }
  kj::byte octet;
};

kj::ArrayPtr<const kj::byte> bytes(kj::StringPtr text) { return text.asBytes(); }

TEST_CASE("base32 agrees with the vectors of RFC 4648 section 10") {
  CHECK(encodeBase32(bytes("")) == "");
  CHECK(encodeBase32(bytes("f")) == "my");
  CHECK(encodeBase32(bytes("fo")) == "mzxq");
  CHECK(encodeBase32(bytes("foo")) == "mzxw6");
  CHECK(encodeBase32(bytes("foob")) == "mzxw6yq");
  CHECK(encodeBase32(bytes("fooba")) == "mzxw6ytb");
  CHECK(encodeBase32(bytes("foobar")) == "mzxw6ytboi");
  CHECK(KJ_ASSERT_NONNULL(decodeBase32("mzxw6ytboi")) == bytes("foobar"));
}

TEST_CASE("base32 refuses what it would not have written") {
  CHECK(decodeBase32("m") == nullptr);     // no octet has five bits
  CHECK(decodeBase32("mz1q") == nullptr);  // not of the alphabet
  CHECK(decodeBase32("MZXQ") == nullptr);  // upper case
  CHECK(decodeBase32("mz") == nullptr);    // bits set beyond the last octet
  CHECK(decodeBase32("my======") == nullptr);
  CHECK(KJ_ASSERT_NONNULL(decodeBase32("")).size() == 0);
}

TEST_CASE("hexadecimal goes both ways and refuses the rest") {
  kj::byte all[] = {0x00, 0x7f, 0x80, 0xff};
  CHECK(encodeHex(all) == "007f80ff");
  CHECK(KJ_ASSERT_NONNULL(decodeHex("007F80ff")) == kj::arrayPtr(all, 4));
  CHECK(decodeHex("0") == nullptr);
  CHECK(decodeHex("0g") == nullptr);
}

TEST_CASE("ids have their prefix and 80 random bits") {
  SystemEntropy entropy;
  for (auto kind: {IdKind::ENVIRONMENT, IdKind::SESSION, IdKind::RUN, IdKind::GRANT, IdKind::EXEC,
                   IdKind::PRINCIPAL}) {
    auto id = newId(kind, entropy);
    CHECK(isId(kind, id));
    CHECK(id.size() == idPrefix(kind).size() + 16);
  }
  FixedEntropy ones(0xff);
  CHECK(newId(IdKind::RUN, ones) == "r-7777777777777777");
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(newId(IdKind::SESSION, entropy).cStr());
  }
  CHECK(seen.size() == 1000);
}

TEST_CASE("ids of another kind, length or alphabet are refused") {
  CHECK_FALSE(isId(IdKind::SESSION, "r-7777777777777777"));
  CHECK_FALSE(isId(IdKind::RUN, "r-777777777777777"));
  CHECK_FALSE(isId(IdKind::RUN, "r-77777777777777777"));
  CHECK_FALSE(isId(IdKind::RUN, "r-777777777777777A"));
  CHECK_FALSE(isId(IdKind::RUN, "r-7777777777777 77"));
  CHECK_FALSE(isId(IdKind::RUN, ""));
}

TEST_CASE("task ids are what the rule says, to the last character") {
  CHECK(isTaskId("a"));
  CHECK(isTaskId("Fix.the_bug-7"));
  CHECK(isTaskId(kj::str(kj::repeat('a', 63))));
  CHECK_FALSE(isTaskId(kj::str(kj::repeat('a', 64))));
  CHECK_FALSE(isTaskId(""));
  CHECK_FALSE(isTaskId("-a"));
  CHECK_FALSE(isTaskId("a-"));
  CHECK_FALSE(isTaskId(".."));
  CHECK_FALSE(isTaskId("a/b"));
  CHECK_FALSE(isTaskId("a b"));
  CHECK_FALSE(isTaskId("\xc3\xa4"));
  CHECK_FALSE(isTaskId(kj::StringPtr("a\0b", 3)));
  SystemEntropy entropy;
  auto id = newTaskId(entropy);
  CHECK(isTaskId(id));
  CHECK(id.size() == 12);
  CHECK(id.startsWith("t-"));
}

TEST_CASE("back-off doubles to its cap with full jitter above a floor") {
  BackoffOptions options;
  options.first = 100 * kj::MILLISECONDS;
  options.cap = 1 * kj::SECONDS;
  options.floor = 10 * kj::MILLISECONDS;
  SystemEntropy entropy;
  auto now = kj::origin<kj::TimePoint>();
  kj::Duration most[6] = {};
  for (int round = 0; round < 300; ++round) {
    Backoff backoff(entropy, options);
    for (auto& longest: most) {
      auto delay = backoff.next(now);
      CHECK(delay >= options.floor);
      longest = kj::max(longest, delay);
    }
  }
  kj::Duration ceilings[] = {100 * kj::MILLISECONDS,  200 * kj::MILLISECONDS,
                             400 * kj::MILLISECONDS,  800 * kj::MILLISECONDS,
                             1000 * kj::MILLISECONDS, 1000 * kj::MILLISECONDS};
  for (size_t i = 0; i < 6; ++i) {
    CHECK(most[i] <= ceilings[i]);
    CHECK(most[i] > ceilings[i] / 2);  // it does use its span
  }
}

TEST_CASE("back-off begins anew after success or a quiet time") {
  BackoffOptions options;
  options.first = 1 * kj::SECONDS;
  options.cap = 8 * kj::SECONDS;
  options.floor = 0 * kj::SECONDS;
  options.quiet = 60 * kj::SECONDS;
  FixedEntropy zero(0);
  Backoff backoff(zero, options);
  auto now = kj::origin<kj::TimePoint>();
  CHECK(backoff.next(now) == 0 * kj::SECONDS);
  backoff.next(now);
  CHECK(backoff.count() == 2);
  backoff.next(now + 59 * kj::SECONDS);
  CHECK(backoff.count() == 3);
  backoff.next(now + 119 * kj::SECONDS);
  CHECK(backoff.count() == 1);
  backoff.reset();
  CHECK(backoff.count() == 0);
}

}  // namespace
}  // namespace capstan
