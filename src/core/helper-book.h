#pragma once

#include "agent-link/link.h"
#include "backends/backend.h"
#include "core/services.h"
#include "store/secret-box.h"

namespace capstan {

// Helpers that outlive a daemon, as the store has them: where each listens, which process it is,
// and, sealed, what opens it. One is the current one; there is at most one book a daemon. Store,
// box, clock and entropy outlive it.
class StoredHelperBook final: public HelperBook {
public:
  StoredHelperBook(Database& store, SecretBox& box, const kj::Clock& clock, Entropy& entropy)
      : store(store), box(box), clock(clock), entropy(entropy) {}
  KJ_DISALLOW_COPY_AND_MOVE(StoredHelperBook);

  kj::Promise<Result<kj::Maybe<HelperEntry>>> current() override;
  kj::Promise<Result<kj::Vector<HelperEntry>>> draining() override;
  kj::Promise<Outcome> add(HelperEntry entry) override;
  kj::Promise<Outcome> started(kj::String name, int64_t pid, uint64_t startTicks,
                               kj::String bootId) override;
  kj::Promise<Outcome> remove(kj::String name) override;

  // The helper `name` is opened by this token from now on. One that was never added is none of
  // ours to remember: null.
  kj::Promise<Outcome> keepToken(kj::String name, kj::Array<kj::byte> serverId, kj::String build,
                                 kj::Array<kj::String> capabilities, Credential token,
                                 uint64_t rotation);

private:
  Database& store;
  SecretBox& box;
  const kj::Clock& clock;
  Entropy& entropy;

  UnixMs now() const { return (clock.now() - kj::UNIX_EPOCH) / kj::MILLISECONDS; }
};

}  // namespace capstan
