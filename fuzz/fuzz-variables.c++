// Four octets a definition of an environment variable (key, origin, value, tenant), drawn from
// small stocks so that definitions meet. Whatever comes: the order of the definitions never
// matters, the outcome is that of the rules said a second time below, validation agrees with
// resolution, and no value or secret's name stands in an error or a record. All of those, and
// nothing else, hold a '<'.

#include "domain/variables.h"

#include <kj/array.h>
#include <kj/debug.h>
#include <kj/string.h>
#include <kj/vector.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>

namespace capstan {
namespace {

constexpr size_t MOST_DEFINITIONS = 48;
constexpr size_t ALL_ORDERS_UP_TO = 5;  // 120 orders; of more definitions some orders are tried.
constexpr size_t SOME_ORDERS = 8;

// Letters from 'a' on choose in their order, so that a corpus can be read.
template <typename T, size_t N>
const T& pick(const T (&stock)[N], uint8_t octet) {
  return stock[static_cast<uint8_t>(octet - 'a') % N];
}

struct From {
  Origin origin;
  kj::StringPtr name;
};
struct Value {
  kj::StringPtr literal;
  kj::StringPtr secret;
};

Variable readDefinition(const uint8_t* octets) {
  static const kj::StringPtr KEYS[] = {"K", "L", "M", "k", "", " \t", "K=<0>", "L\0<0>"_kj};
  static const From ORIGINS[] = {
      {Origin::MANAGED_RUNTIME, ""},        {Origin::MANAGED_CREDENTIALS, ""},
      {Origin::EXECUTOR_PROFILE, ""},       {Origin::AGENT_PROFILE, ""},
      {Origin::MANAGED_AGENT_DEFAULTS, ""}, {Origin::REPOSITORY, "app"},
      {Origin::REPOSITORY, "lib"},          {Origin::REPOSITORY, " "},
      {Origin::OTHER, "house rules"},       {Origin::OTHER, "agent profile"},
      {Origin::OTHER, "repository\tapp"},   {Origin::UNSET, ""}};
  static const Value VALUES[] = {{"<0>", ""},  {"<1>", ""},  {"", ""},
                                 {"", "<s0>"}, {"", "<s1>"}, {"<0>", "<s0>"},
                                 {"<s0>", ""}, {"<2>", ""},  {"<\0>"_kj, ""}};
  static const kj::StringPtr TENANTS[] = {"", "<t0>", "<t1>", "<refused>"};

  Variable definition;
  definition.key = kj::str(pick(KEYS, octets[0]));
  auto& from = pick(ORIGINS, octets[1]);
  definition.origin = from.origin;
  (from.origin == Origin::REPOSITORY ? definition.repository : definition.otherOrigin) =
      kj::str(from.name);
  auto& value = pick(VALUES, octets[2]);
  definition.literal = kj::str(value.literal);
  definition.secret = kj::str(value.secret);
  definition.tenantId = kj::str(pick(TENANTS, octets[3]));
  return definition;
}

std::string text(kj::StringPtr given) { return std::string(given.begin(), given.size()); }

Result<kj::String> open(const VariableDecision& winner) {
  if (winner.tenantId == "<refused>") {
    return Problem(ErrorCode::NOT_FOUND, kj::str("no such secret"));
  }
  return kj::str(winner.secret, winner.tenantId);
}

void checkSilent(kj::StringPtr said) {
  KJ_ASSERT(said.findFirst('<') == nullptr, "a value or a secret's name was told", said);
}

// The rules once more, without the resolver's ways: the winner's literal or secret's name of each
// key, null when some key has none.
using Winners = std::map<std::string, std::string>;
kj::Maybe<Winners> expectedOf(kj::ArrayPtr<const Variable> set) {
  std::map<std::string, std::map<std::string, uint>> tiers;  // key -> identity -> strongest tier
  for (auto& each: set) {
    if (isBlank(each.key)) continue;
    for (char c: each.key) {
      if (c == '=' || c == 0) return nullptr;
    }
    for (char c: each.literal) {
      if (c == 0) return nullptr;
    }
    bool secret = each.secret.size() > 0;
    auto identity = (secret ? "s" : "l") + text(secret ? each.secret : each.literal);
    auto tier = static_cast<uint>(tierForOrigin(originWords(each)));
    auto& known = tiers[text(each.key)].try_emplace(identity, tier).first->second;
    known = std::min(known, tier);
  }
  Winners winners;
  for (auto& [key, identities]: tiers) {
    std::multiset<uint> ranks;
    for (auto& [identity, tier]: identities) {
      if (identities.size() > 1 && identity[0] == 's') return nullptr;
      ranks.insert(tier);
    }
    if (ranks.count(*ranks.begin()) > 1) return nullptr;
    for (auto& [identity, tier]: identities) {
      if (tier == *ranks.begin()) winners[key] = identity.substr(1);
    }
  }
  return kj::mv(winners);
}

// All that a resolve says, as one text.
kj::String outcomeOf(kj::ArrayPtr<const Variable> set) {
  RevealSecret reveal = open;
  auto result = resolveVariables(set, reveal);
  KJ_IF_MAYBE (problem, validateVariables(set)) {
    KJ_ASSERT(result.is<Problem>(), "validation refused what resolves", *problem);
    KJ_ASSERT(expectedOf(set) == nullptr, "refused against the rules", *problem);
    KJ_ASSERT(kj::str(*problem) == kj::str(result.get<Problem>()));
  } else {
    KJ_ASSERT(expectedOf(set) != nullptr, "accepted against the rules");
  }
  if (result.is<Problem>()) {
    auto& problem = result.get<Problem>();
    auto said = kj::str(errorCodeName(problem.code), problem, problem.field);
    checkSilent(said);
    return said;
  }

  auto& resolution = result.get<Resolution>();
  auto expected = KJ_ASSERT_NONNULL(expectedOf(set));
  KJ_ASSERT(resolution.decisions.size() == expected.size());
  KJ_ASSERT(resolution.variables.size() == expected.size());
  kj::Vector<kj::String> said;
  for (auto i: kj::indices(resolution.decisions)) {
    auto& decision = resolution.decisions[i];
    auto& variable = resolution.variables[i];
    KJ_ASSERT(variable.key == decision.key);
    KJ_ASSERT(i == 0 || resolution.decisions[i - 1].key < decision.key);
    auto winner = expected.find(text(decision.key));
    KJ_ASSERT(winner != expected.end());
    KJ_ASSERT(winner->second == text(variable.secret ? decision.secret : decision.literal));
    said.add(kj::str(variable.key, '=', variable.value, static_cast<uint>(decision.tier), ' ',
                     kj::strArray(decision.winners, ",")));
  }
  for (auto& record: resolution.overrides) {
    KJ_ASSERT(record.winningOrigins.size() > 0 && record.losingOrigins.size() > 0);
    for (auto& loser: record.losingOrigins)
      KJ_ASSERT(loser.tier > Tier::AUTHORITATIVE);
    auto told = kj::str(overrideLogFields(record, "t", "s"),
                        kj::strArray(overrideCounterKeys(record), " "));
    checkSilent(told);
    said.add(kj::mv(told));
  }
  return kj::strArray(said, "\n");
}

void checkEveryOrder(kj::ArrayPtr<const Variable> set) {
  kj::Vector<size_t> order;
  for (auto i: kj::indices(set))
    order.add(i);
  auto outcome = outcomeOf(set);
  auto checkOrder = [&]() {
    auto permuted = KJ_MAP(i, order) { return set[i].clone(); };
    KJ_ASSERT(outcomeOf(permuted) == outcome, "the order of definitions matters");
  };
  if (set.size() <= ALL_ORDERS_UP_TO) {
    while (std::next_permutation(order.begin(), order.end()))
      checkOrder();
    return;
  }
  std::minstd_rand chance(static_cast<uint32_t>(set.size()));
  std::reverse(order.begin(), order.end());
  for (size_t i = 0; i < SOME_ORDERS; ++i) {
    checkOrder();
    std::shuffle(order.begin(), order.end(), chance);
  }
}

}  // namespace
}  // namespace capstan

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto count = std::min(size / 4, capstan::MOST_DEFINITIONS);
  auto set = kj::heapArrayBuilder<capstan::Variable>(count);
  for (size_t i = 0; i < count; ++i)
    set.add(capstan::readDefinition(data + 4 * i));
  capstan::checkEveryOrder(set.finish());
  return 0;
}
