#include "core/secrets.h"

#include "base/ids.h"
#include "domain/catalog-changes.h"
#include "domain/variables-assembly.h"
#include "store/profile-table.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr size_t RESEALED_AT_ONCE = 16;  // Values of up to 1 MiB: the store's other work waits.
constexpr size_t OPENED_AT_ONCE = 512u << 10;  // Octets; well below a millisecond.
constexpr size_t MOST_IDS = 10000;             // Permissions in one page of a list.

// All of it in the store's thread, which may wait for files. Every function there opens a box of
// its own, so that the loop's is touched by the loop only.
Result<SecretBox> ownBox(kj::StringPtr directory, Entropy& entropy) {
  return SecretBox::open(directory, entropy, SecretBox::WhenAbsent::REFUSE);
}

Problem unknown(kj::StringPtr name) {
  return Problem(ErrorCode::NOT_FOUND, kj::str("no secret '", name, "'"))
      .at(kj::str("name"))
      .advise(kj::str("capstan secret list shows them"));
}

bool isNamed(const ProfileRecord& profile, kj::StringPtr secret) {
  for (auto& variable: profile.variables) {
    if (variable.secret == secret) return true;
  }
  return false;
}

}  // namespace

kj::Promise<Result<SecretBox>> openSecretBox(Database& store, kj::String directory) {
  return store.read([directory = kj::mv(directory)](Connection& db) -> Result<SecretBox> {
    SystemEntropy entropy;
    auto whenAbsent =
        SecretTable(db).any() ? SecretBox::WhenAbsent::REFUSE : SecretBox::WhenAbsent::MAKE;
    return SecretBox::open(directory, entropy, whenAbsent);
  });
}

Result<kj::ArrayPtr<const kj::byte>> RevealedSecrets::find(kj::StringPtr name) const {
  KJ_IF_MAYBE (value, byName.find(name)) {
    return value->asPtr();
  }
  return Problem(ErrorCode::NOT_FOUND, kj::str("no such secret may be used here"))
      .advise(kj::str("an administrator can allow it: capstan secret allow NAME ENV|PROFILE"));
}

RevealSecret RevealedSecrets::revealer() const {
  return [this](const VariableDecision& winner) -> Result<kj::String> {
    auto found = find(winner.secret);
    if (found.is<Problem>()) return kj::mv(found.get<Problem>());
    return kj::heapString(found.get<kj::ArrayPtr<const kj::byte>>().asChars());
  };
}

SecretVault::SecretVault(Database& store, SecretBox& box, kj::String directory, kj::Timer& timer,
                         const kj::Clock& clock, Entropy& entropy, Limits limits)
    : store(store),
      box(box),
      directory(kj::mv(directory)),
      timer(timer),
      clock(clock),
      entropy(entropy),
      limits(limits),
      tasks(*this) {
  if (box.isRotating()) {
    tasks.add(rotate().then([](Result<uint64_t>&& done) {
      KJ_IF_MAYBE (problem, done.tryGet<Problem>()) {
        KJ_LOG(WARNING, "the change of the secrets' key did not end, both keys stay", *problem);
      }
    }));
  }
}

SecretVault::~SecretVault() noexcept(false) {}

kj::Promise<Result<SecretVault::Set>> SecretVault::set(kj::String name, SecretBytes value) {
  KJ_IF_MAYBE (problem, checkSecretName(name)) {
    co_return kj::mv(*problem);
  }
  if (value.asPtr().size() == 0) {
    co_return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the secret's value is empty"))
        .at(kj::str("value"))
        .advise(kj::str("remove the secret if it is to be gone"));
  }
  constexpr int MOST_TRIES = 5;
  for (int tries = 1;; ++tries) {
    auto found = co_await store.read(
        [name = kj::str(name)](Connection& db) -> Result<kj::Maybe<SecretRecord>> {
          return SecretTable(db).findByName(name);
        });
    if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
    SecretRecord record;
    record.id = newId(IdKind::SECRET, entropy);
    record.createdAt = now();
    KJ_IF_MAYBE (present, found.get<kj::Maybe<SecretRecord>>()) {
      record = kj::mv(*present);
    }
    record.name = kj::str(name);
    record.updatedAt = now();
    bool made = record.version == 0;
    auto sealed = box.seal(record.id, value.asPtr(), entropy);
    if (sealed.is<Problem>()) co_return kj::mv(sealed.get<Problem>());
    auto octets = kj::mv(sealed.get<kj::Array<kj::byte>>());
    size_t size = octets.size();
    auto written = co_await store.write(
        [record = kj::mv(record), octets = kj::mv(octets),
         most = limits.secrets](Connection& db) -> Result<uint64_t> {
          SecretTable table(db);
          if (record.version == 0 && table.countNames() >= most) {
            return Problem(ErrorCode::RESOURCE_EXHAUSTED,
                           kj::str("at most ", most, " secrets are kept"))
                .advise(kj::str("remove some: capstan secret remove"))
                .retryable(RetryHint::AFTER_USER_ACTION);
          }
          return table.put(record, octets);
        },
        size + 512);
    KJ_IF_MAYBE (problem, written.tryGet<Problem>()) {
      // Somebody else made, changed or removed it between the two.
      bool overtaken = problem->code == ErrorCode::ALREADY_EXISTS ||
                       problem->code == ErrorCode::WRONG_STATE ||
                       problem->code == ErrorCode::NOT_FOUND;
      if (overtaken && tries < MOST_TRIES) continue;
      co_return kj::mv(*problem);
    }
    KJ_LOG(INFO, "secret set", name);
    co_return made ? Set::MADE : Set::REPLACED;
  }
}

kj::Promise<Result<SecretVault::Page>> SecretVault::list(kj::String after, size_t limit) {
  return store.read([after = kj::mv(after), limit](Connection& db) -> Result<Page> {
    SecretTable table(db);
    Page page;
    size_t ids = 0;
    for (auto& record: table.listNames(after, limit + 1)) {
      if (page.secrets.size() == limit || ids > MOST_IDS) {
        page.more = true;
        break;
      }
      SecretInfo info;
      info.environmentIds = table.environmentsOf(record.id, MOST_IDS);
      info.profileIds = table.profilesOf(record.id, MOST_IDS);
      ids += info.environmentIds.size() + info.profileIds.size();
      info.record = kj::mv(record);
      page.secrets.add(kj::mv(info));
    }
    return kj::mv(page);
  });
}

kj::Promise<Outcome> SecretVault::remove(kj::String name) {
  auto refused = co_await store.write([name = kj::str(name)](Connection& db) -> Outcome {
    SecretTable table(db);
    KJ_IF_MAYBE (record, table.findByName(name)) {
      return table.remove(record->id);
    }
    return unknown(name);
  });
  if (refused == nullptr) KJ_LOG(INFO, "secret removed", name);
  co_return refused;
}

kj::Promise<Outcome> SecretVault::allow(kj::String name, Binding binding) {
  return bind(kj::mv(name), kj::mv(binding), true);
}

kj::Promise<Outcome> SecretVault::disallow(kj::String name, Binding binding) {
  return bind(kj::mv(name), kj::mv(binding), false);
}

kj::Promise<Outcome> SecretVault::bind(kj::String name, Binding binding, bool allowed) {
  if ((binding.environmentId.size() > 0) == (binding.profileId.size() > 0)) {
    co_return Problem(ErrorCode::INVALID_ARGUMENT,
                      kj::str("a secret is allowed to one environment or to one profile"))
        .advise(kj::str("give exactly one of the two"));
  }
  auto environmentId = kj::str(binding.environmentId), profileId = kj::str(binding.profileId);
  auto refused = co_await store.write(
      [name = kj::str(name), binding = kj::mv(binding), allowed](Connection& db) -> Outcome {
        SecretTable table(db);
        KJ_IF_MAYBE (record, table.findByName(name)) {
          if (binding.environmentId.size() > 0) {
            return allowed ? table.allowEnvironment(record->id, binding.environmentId)
                           : table.disallowEnvironment(record->id, binding.environmentId);
          }
          return allowed ? table.allowProfile(record->id, binding.profileId)
                         : table.disallowProfile(record->id, binding.profileId);
        }
        return unknown(name);
      });
  if (refused == nullptr) {
    KJ_LOG(INFO, "use of a secret decided", name, environmentId, profileId, allowed);
  }
  co_return refused;
}

// ---- opening

kj::Promise<Result<RevealedSecrets>> SecretVault::reveal(kj::String environmentId,
                                                         kj::String profileId,
                                                         kj::Array<kj::String> names) {
  if (names.size() == 0) co_return RevealedSecrets();
  for (;;) {
    auto found = co_await store.read(
        [environmentId = kj::str(environmentId), profileId = kj::str(profileId),
         names = KJ_MAP(name, names) { return kj::str(name); },
         most = limits.launchSecretBytes](Connection& db) -> Result<kj::Vector<SealedSecret>> {
          SecretTable table(db);
          auto profile = ProfileTable(db).find(profileId);
          kj::Vector<SealedSecret> result;
          size_t total = 0;
          for (auto& name: names) {
            auto record = table.findByName(name);
            KJ_IF_MAYBE (secret, record) {
              bool bound = table.isAllowed(secret->id, environmentId, profileId);
              KJ_IF_MAYBE (row, profile) {
                bound = bound || isNamed(*row, name);
              }
              if (!bound) continue;
              auto octets = KJ_ASSERT_NONNULL(table.sealed(secret->id));
              total += octets.size();
              if (total > most) {
                return Problem(
                    ErrorCode::RESOURCE_EXHAUSTED,
                    kj::str("the secrets of one launch have more than ", most >> 20, " MiB"));
              }
              result.add(SealedSecret{kj::str(name), kj::mv(secret->id), kj::mv(octets)});
            }
          }
          return kj::mv(result);
        });
    if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
    auto opened = co_await openAll(kj::mv(found.get<kj::Vector<SealedSecret>>()));
    if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
    KJ_IF_MAYBE (secrets, opened.get<kj::Maybe<RevealedSecrets>>()) {
      co_return kj::mv(*secrets);
    }
  }
}

// Null = the key was changed meanwhile, and what was read is to be read again.
kj::Promise<Result<kj::Maybe<RevealedSecrets>>> SecretVault::openAll(
    kj::Vector<SealedSecret> sealed) {
  using Answer = Result<kj::Maybe<RevealedSecrets>>;
  RevealedSecrets result;
  auto changesBefore = keyChanges;
  size_t octets = 0;
  for (auto& each: sealed) {
    auto value = box.open(each.id, each.octets);
    if (value.is<Problem>()) {
      if (keyChanges != changesBefore) co_return Answer(kj::Maybe<RevealedSecrets>());
      co_return Answer(kj::mv(value.get<Problem>()));
    }
    result.byName.upsert(kj::mv(each.name), kj::mv(value.get<SecretBytes>()),
                         [](SecretBytes&, SecretBytes&&) {});
    octets += each.octets.size();
    if (octets > OPENED_AT_ONCE) {
      octets = 0;
      co_await timer.afterDelay(0 * kj::NANOSECONDS);
    }
  }
  co_return Answer(kj::Maybe<RevealedSecrets>(kj::mv(result)));
}

kj::Promise<Result<RevealedSecrets>> SecretVault::revealFor(
    kj::String environmentId, kj::String profileId, kj::ArrayPtr<const Variable> definitions) {
  kj::Vector<Variable> counted;
  for (auto& definition: definitions) {
    if (!isBlankProfileEntry(definition)) counted.add(definition.clone());
  }
  kj::Vector<kj::String> names;
  auto decided = decideVariables(counted);
  if (decided.is<kj::Array<VariableDecision>>()) {
    for (auto& decision: decided.get<kj::Array<VariableDecision>>()) {
      if (decision.secret.size() > 0) names.add(kj::mv(decision.secret));
    }
  }
  return reveal(kj::mv(environmentId), kj::mv(profileId), names.releaseAsArray());
}

kj::Promise<Result<kj::Maybe<SecretBytes>>> SecretVault::openOwn(kj::String id) {
  using Found = kj::Maybe<SecretBytes>;
  for (;;) {
    auto changesBefore = keyChanges;
    auto read = co_await store.read(
        [id = kj::str(id)](Connection& db) -> Result<kj::Maybe<kj::Array<kj::byte>>> {
          return SecretTable(db).sealed(id);
        });
    if (read.is<Problem>()) co_return kj::mv(read.get<Problem>());
    KJ_IF_MAYBE (octets, read.get<kj::Maybe<kj::Array<kj::byte>>>()) {
      auto value = box.open(id, *octets);
      if (value.is<SecretBytes>()) co_return Found(kj::mv(value.get<SecretBytes>()));
      // The key was changed between the two.
      if (keyChanges == changesBefore) co_return kj::mv(value.get<Problem>());
    } else {
      co_return Found(nullptr);
    }
  }
}

// ---- the key

kj::Promise<Result<uint64_t>> SecretVault::rotate() {
  co_await rotating.run([this]() { return runRotation(); });
  auto& latest = KJ_ASSERT_NONNULL(rotated);
  if (latest.is<Problem>()) co_return latest.get<Problem>().clone();
  co_return latest.get<uint64_t>();
}

kj::Promise<void> SecretVault::runRotation() { rotated = co_await rotateNow(); }

kj::Promise<Result<uint64_t>> SecretVault::rotateNow() {
  auto begun =
      co_await store.read([directory = kj::str(directory)](Connection&) -> Result<SecretBox> {
        SystemEntropy source;
        auto own = ownBox(directory, source);
        if (own.is<Problem>()) return kj::mv(own.get<Problem>());
        KJ_IF_MAYBE (problem, own.get<SecretBox>().beginRotation(source)) {
          return kj::mv(*problem);
        }
        return kj::mv(own.get<SecretBox>());
      });
  if (begun.is<Problem>()) co_return kj::mv(begun.get<Problem>());
  box = kj::mv(begun.get<SecretBox>());  // What is sealed from here on is sealed with the new key.
  KJ_LOG(INFO, "the secrets' key is being changed");

  kj::String after;
  do {
    auto resealed = co_await store.write([directory = kj::str(directory), after = kj::str(after)](
                                             Connection& db) -> Result<kj::String> {
      SystemEntropy source;
      auto own = ownBox(directory, source);
      if (own.is<Problem>()) return kj::mv(own.get<Problem>());
      return SecretTable(db).reseal(own.get<SecretBox>(), source, after, RESEALED_AT_ONCE);
    });
    if (resealed.is<Problem>()) co_return kj::mv(resealed.get<Problem>());
    after = kj::mv(resealed.get<kj::String>());
  } while (after.size() > 0);

  uint64_t count = 0;
  auto done = co_await store.read(
      [directory = kj::str(directory)](Connection& db) -> Result<kj::Tuple<SecretBox, uint64_t>> {
        SystemEntropy source;
        auto own = ownBox(directory, source);
        if (own.is<Problem>()) return kj::mv(own.get<Problem>());
        KJ_IF_MAYBE (problem, own.get<SecretBox>().finishRotation()) {
          return kj::mv(*problem);
        }
        return kj::tuple(kj::mv(own.get<SecretBox>()), uint64_t(SecretTable(db).count()));
      });
  if (done.is<Problem>()) co_return kj::mv(done.get<Problem>());
  auto& finished = done.get<kj::Tuple<SecretBox, uint64_t>>();
  box = kj::mv(kj::get<0>(finished));
  count = kj::get<1>(finished);
  ++keyChanges;
  KJ_LOG(INFO, "the secrets' key was changed", count);
  co_return count;
}

void SecretVault::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "background work of the secrets failed", exception);
}

}  // namespace capstan
