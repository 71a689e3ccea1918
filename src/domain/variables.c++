#include "domain/variables.h"

#include <kj/vector.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

namespace capstan {

namespace {

std::string_view view(kj::StringPtr text) { return {text.begin(), text.size()}; }

// What makes two definitions of a key the same. Never made from an opened secret.
struct Identity {
  bool secret;
  std::string_view text;  // The secret's name or the literal.

  bool operator<(const Identity& other) const {
    return std::tie(secret, text) < std::tie(other.secret, other.text);
  }
};

// A definition in the order that settles everything the input's order must not.
struct Entry {
  const Variable* definition;
  kj::String words;

  auto order() const {
    return std::make_tuple(view(definition->key), view(words), view(definition->secret),
                           view(definition->tenantId), view(definition->literal));
  }
  Identity identity() const {
    bool secret = definition->secret.size() > 0;
    return {secret, view(secret ? definition->secret : definition->literal)};
  }
};

// All definitions of one key with the same identity.
struct Contender {
  const Variable* first;              // Stands for all of them.
  kj::Vector<kj::StringPtr> origins;  // Distinct, ordered.
  Tier strongest;
};

kj::Vector<Contender> contendersOf(kj::ArrayPtr<const Entry> sameKey) {
  kj::Vector<Contender> contenders;
  std::map<Identity, size_t> places;
  for (auto& entry: sameKey) {
    auto tier = tierForOrigin(entry.words);
    auto [place, isNew] = places.emplace(entry.identity(), contenders.size());
    if (isNew) contenders.add(Contender{entry.definition, {}, tier});
    auto& contender = contenders[place->second];
    contender.strongest = std::min(contender.strongest, tier);
    // The entries come in the order of their origins.
    if (contender.origins.size() == 0 || contender.origins.back() != entry.words) {
      contender.origins.add(entry.words);
    }
  }
  return contenders;
}

kj::Array<kj::StringPtr> distinctOrdered(kj::Vector<kj::StringPtr> words) {
  std::sort(words.begin(), words.end());
  words.truncate(std::unique(words.begin(), words.end()) - words.begin());
  return words.releaseAsArray();
}

kj::String shownOrigin(kj::StringPtr words) {
  return isBlank(words) ? kj::str("an unnamed origin") : kj::str(words);
}

Problem conflict(kj::StringPtr key, kj::ArrayPtr<const Contender> contenders, bool withSecret) {
  kj::Vector<kj::StringPtr> all;
  for (auto& contender: contenders)
    all.addAll(contender.origins);
  auto names = KJ_MAP(words, distinctOrdered(kj::mv(all))) { return shownOrigin(words); };
  auto why = withSecret ? "is a secret in one definition and something else in another"_kj
                        : "is defined with different values of equal rank"_kj;
  return Problem(ErrorCode::VARIABLE_CONFLICT, kj::str("the variable ", key, ' ', why))
      .because(kj::str("defined by ", kj::strArray(names, ", ")))
      .advise(kj::str("keep one definition of ", key))
      .at(kj::str("variables.", key))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

VariableDecision decisionFor(const Contender& winner, kj::ArrayPtr<const Contender> contenders) {
  kj::Vector<kj::StringPtr> losing;
  for (auto& contender: contenders) {
    if (&contender != &winner) losing.addAll(contender.origins);
  }
  auto& definition = *winner.first;
  VariableDecision decision;
  decision.key = kj::str(definition.key);
  if (definition.secret.size() > 0) {
    decision.secret = kj::str(definition.secret);
    decision.tenantId = kj::str(definition.tenantId);
  } else {
    decision.literal = kj::str(definition.literal);
  }
  decision.winners = KJ_MAP(words, winner.origins) { return kj::str(words); };
  decision.tier = winner.strongest;
  decision.losers = KJ_MAP(words, distinctOrdered(kj::mv(losing))) {
    return LosingOrigin{kj::str(words), tierForOrigin(words)};
  };
  return decision;
}

Result<VariableDecision> decideKey(kj::StringPtr key, kj::ArrayPtr<const Entry> sameKey) {
  for (auto& entry: sameKey) {
    KJ_IF_MAYBE (problem, checkVariableShape(*entry.definition, "variables"_kj)) {
      return kj::mv(*problem);
    }
  }
  auto contenders = contendersOf(sameKey);
  if (contenders.size() == 1) return decisionFor(contenders[0], contenders);

  const Contender* winner = nullptr;
  bool tied = false;
  for (auto& contender: contenders) {
    if (contender.first->secret.size() > 0) return conflict(key, contenders, true);
    if (winner == nullptr || contender.strongest < winner->strongest) {
      winner = &contender;
      tied = false;
    } else if (contender.strongest == winner->strongest) {
      tied = true;
    }
  }
  if (tied) return conflict(key, contenders, false);
  return decisionFor(*winner, contenders);
}

OverrideRecord recordOf(const VariableDecision& decision) {
  OverrideRecord record;
  record.key = kj::str(decision.key);
  record.winningOrigins = KJ_MAP(words, decision.winners) { return kj::str(words); };
  record.winningTier = decision.tier;
  record.losingOrigins = KJ_MAP(loser, decision.losers) {
    return LosingOrigin{kj::str(loser.origin), loser.tier};
  };
  return record;
}

Problem notRevealed(const VariableDecision& decision, Problem why) {
  auto origins = KJ_MAP(words, decision.winners) { return shownOrigin(words); };
  auto problem = Problem(why.code, kj::str("the secret for the variable ", decision.key, " (",
                                           kj::strArray(origins, ", "), ") cannot be had"))
                     .because(kj::mv(why.message))
                     .advise(kj::mv(why.hint))
                     .at(kj::str("variables.", decision.key))
                     .retryable(why.retry, why.retryAfterMs);
  return kj::mv(problem);
}

Result<kj::String> valueOf(const VariableDecision& decision, kj::Maybe<RevealSecret&> reveal) {
  if (decision.secret.size() == 0) return kj::str(decision.literal);
  KJ_IF_MAYBE (open, reveal) {
    auto opened = (*open)(decision);
    if (opened.is<Problem>()) return notRevealed(decision, kj::mv(opened.get<Problem>()));
    auto value = kj::mv(opened.get<kj::String>());
    if (value.findFirst('\0') != nullptr) {
      return notRevealed(decision, Problem(ErrorCode::INVALID_ARGUMENT,
                                           kj::str("its value holds a NUL character")));
    }
    return kj::mv(value);
  }
  return notRevealed(decision, Problem(ErrorCode::NOT_FOUND, kj::str("no secret may be used here"))
                                   .advise(kj::str("give the value itself")));
}

kj::String tierNumber(Tier tier) { return kj::str(static_cast<uint>(tier)); }

}  // namespace

Result<kj::Array<VariableDecision>> decideVariables(kj::ArrayPtr<const Variable> definitions) {
  kj::Vector<Entry> entries(definitions.size());
  for (auto& definition: definitions) {
    if (isBlank(definition.key)) continue;
    entries.add(Entry{&definition, originWords(definition)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.order() < b.order(); });

  kj::Vector<VariableDecision> decisions;
  for (size_t begin = 0, end; begin < entries.size(); begin = end) {
    kj::StringPtr key = entries[begin].definition->key;
    for (end = begin + 1; end < entries.size() && entries[end].definition->key == key;)
      ++end;
    auto decision = decideKey(key, entries.asPtr().slice(begin, end));
    if (decision.is<Problem>()) return kj::mv(decision.get<Problem>());
    decisions.add(kj::mv(decision.get<VariableDecision>()));
  }
  return decisions.releaseAsArray();
}

Outcome validateVariables(kj::ArrayPtr<const Variable> definitions) {
  auto decided = decideVariables(definitions);
  if (decided.is<Problem>()) return kj::mv(decided.get<Problem>());
  return nullptr;
}

Result<Resolution> resolveVariables(kj::ArrayPtr<const Variable> definitions,
                                    kj::Maybe<RevealSecret&> reveal) {
  auto decided = decideVariables(definitions);
  if (decided.is<Problem>()) return kj::mv(decided.get<Problem>());
  Resolution resolution;
  resolution.decisions = kj::mv(decided.get<kj::Array<VariableDecision>>());

  auto variables = kj::heapArrayBuilder<ProcessVariable>(resolution.decisions.size());
  kj::Vector<OverrideRecord> overrides;
  for (auto& decision: resolution.decisions) {
    auto value = valueOf(decision, reveal);
    if (value.is<Problem>()) return kj::mv(value.get<Problem>());
    variables.add(ProcessVariable{kj::str(decision.key), kj::mv(value.get<kj::String>()),
                                  decision.secret.size() > 0});
    if (decision.losers.size() > 0) overrides.add(recordOf(decision));
  }
  resolution.variables = variables.finish();
  resolution.overrides = overrides.releaseAsArray();
  return kj::mv(resolution);
}

Outcome checkVariableShape(const Variable& definition, kj::StringPtr path) {
  auto& key = definition.key;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key[i] != '=' && key[i] != '\0') continue;
    // What stands behind a '=' may be a value.
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("a variable's name may hold neither '=' nor a NUL character: it begins "
                           "with '",
                           key.slice(0, i), "'"))
        .at(kj::str(path, ".key"));
  }
  if (definition.literal.size() > 0 && definition.literal.findFirst('\0') != nullptr) {
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("the value of ", key, " holds a NUL character"))
        .at(kj::str(path, ".literal"));
  }
  return nullptr;
}

kj::String overrideLogFields(const OverrideRecord& record, kj::StringPtr taskId,
                             kj::StringPtr sessionId) {
  auto losers = KJ_MAP(loser, record.losingOrigins) { return kj::str(loser.origin); };
  auto tiers = KJ_MAP(loser, record.losingOrigins) { return tierNumber(loser.tier); };
  return kj::str("{env_key = ", record.key, ", winning_origins = [",
                 kj::strArray(record.winningOrigins, ", "),
                 "], winning_tier = ", tierNumber(record.winningTier), ", losing_origins = [",
                 kj::strArray(losers, ", "), "], losing_tiers = [", kj::strArray(tiers, ", "),
                 "], task_id = ", taskId, ", session_id = ", sessionId, "}");
}

kj::Array<kj::String> overrideCounterKeys(const OverrideRecord& record) {
  auto labels = KJ_MAP(words, record.winningOrigins) { return originLabel(words); };
  kj::Vector<kj::StringPtr> winners;
  for (auto& label: labels)
    winners.add(label);
  auto winner = kj::strArray(distinctOrdered(kj::mv(winners)), "+");
  return KJ_MAP(loser, record.losingOrigins) {
    return kj::str("winning_origin=", winner, ";losing_origin=", originLabel(loser.origin));
  };
}

}  // namespace capstan
