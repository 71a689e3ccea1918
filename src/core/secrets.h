#pragma once
// Secrets of users: sealed in the store, bound to environments and profiles, opened for one launch.

#include "base/async.h"
#include "domain/limits.h"
#include "domain/variables.h"
#include "store/database.h"
#include "store/secret-box.h"
#include "store/secret-table.h"

#include <kj/map.h>
#include <kj/time.h>
#include <kj/timer.h>

namespace capstan {

// The box that belongs to a store. Its key is made if there is none, but only while nothing is
// sealed; otherwise denied, naming the file. Files are read on the store's thread.
kj::Promise<Result<SecretBox>> openSecretBox(Database& store, kj::String directory);

// The values that one launch may use, opened. Zeroed at its end.
class RevealedSecrets {
public:
  // notFound for whatever is not bound, in the same words whether it exists or not.
  Result<kj::ArrayPtr<const kj::byte>> find(kj::StringPtr name) const;
  // For assembleVariables() and resolveVariables(). This object must outlive it.
  RevealSecret revealer() const;

private:
  friend class SecretVault;
  kj::HashMap<kj::String, SecretBytes> byName;
};

// What may be shown of a secret.
struct SecretInfo {
  SecretRecord record;
  kj::Vector<kj::String> environmentIds;  // Who may use it beside the profiles that name it
  kj::Vector<kj::String> profileIds;      // in their variables.
};

// Store, box, clock, timer and entropy outlive it, and it outlives its callers' promises. Whoever
// else seals with the box asks the store for the write in the same turn of the loop, or a change of
// the key may overtake it.
class SecretVault final: private kj::TaskSet::ErrorHandler {
public:
  // Goes on with a change of the key that a crash interrupted, in the background.
  SecretVault(Database& store, SecretBox& box, kj::String directory, kj::Timer& timer,
              const kj::Clock& clock, Entropy& entropy, Limits limits);
  ~SecretVault() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(SecretVault);

  enum class Set { MADE, REPLACED };
  // Empty values and those above SecretBox::MOST_BYTES are invalidArgument. What may use it stays.
  kj::Promise<Result<Set>> set(kj::String name, SecretBytes value);
  // In order of their names, after `after`, at most `limit`. Never values.
  struct Page {
    kj::Vector<SecretInfo> secrets;
    bool more = false;
  };
  kj::Promise<Result<Page>> list(kj::String after, size_t limit);
  // With all permissions for it.
  kj::Promise<Outcome> remove(kj::String name);

  // Who may use it: launches of one environment, or all with one profile. Exactly one is given, by
  // exact id. Both are idempotent; notFound when any of them is not there.
  struct Binding {
    kj::String environmentId;
    kj::String profileId;
  };
  kj::Promise<Outcome> allow(kj::String name, Binding binding);
  kj::Promise<Outcome> disallow(kj::String name, Binding binding);

  // Opens those of `names` that a launch in this environment under this profile (empty = none) may
  // use: allowed for the environment or the profile, or named by the profile's own variables. The
  // others are left out, which is no Problem here: RevealedSecrets answers for them. Opens in
  // slices, so that no turn is long. resourceExhausted above limits.launchSecretBytes.
  kj::Promise<Result<RevealedSecrets>> reveal(kj::String environmentId, kj::String profileId,
                                              kj::Array<kj::String> names);
  // reveal() for the secrets that win among `definitions`; what does not resolve reveals nothing.
  kj::Promise<Result<RevealedSecrets>> revealFor(kj::String environmentId, kj::String profileId,
                                                 kj::ArrayPtr<const Variable> definitions);

  // Values of Capstan's own, in rows that their owner writes: sealed for the row `id`. The write is
  // to be asked for in the same turn of the loop.
  Result<kj::Array<kj::byte>> seal(kj::StringPtr id, kj::ArrayPtr<const kj::byte> value) {
    return box.seal(id, value, entropy);
  }
  // Null = there is no such row.
  kj::Promise<Result<kj::Maybe<SecretBytes>>> openOwn(kj::String id);

  // A new key: everything that is sealed is sealed with it, then the old one goes. Those who ask
  // meanwhile share the run, which goes on without them. The number of sealed values, those of
  // Capstan's own included. A failure leaves both keys, and the next call goes on.
  kj::Promise<Result<uint64_t>> rotate();

private:
  struct SealedSecret {
    kj::String name;
    kj::String id;
    kj::Array<kj::byte> octets;
  };

  Database& store;
  SecretBox& box;
  kj::String directory;
  kj::Timer& timer;
  const kj::Clock& clock;
  Entropy& entropy;
  Limits limits;
  SingleFlight rotating;
  kj::Maybe<Result<uint64_t>> rotated;  // Of the latest run.
  uint64_t keyChanges = 0;
  kj::TaskSet tasks;

  UnixMs now() const { return (clock.now() - kj::UNIX_EPOCH) / kj::MILLISECONDS; }
  kj::Promise<Outcome> bind(kj::String name, Binding binding, bool allowed);
  kj::Promise<Result<kj::Maybe<RevealedSecrets>>> openAll(kj::Vector<SealedSecret> sealed);
  kj::Promise<void> runRotation();
  kj::Promise<Result<uint64_t>> rotateNow();
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
