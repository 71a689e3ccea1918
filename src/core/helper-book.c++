#include "core/helper-book.h"

#include "base/encoding.h"
#include "store/control-server-table.h"
#include "store/secret-table.h"

#include <kj/debug.h>

namespace capstan {

namespace {

constexpr size_t PAGE = 100;

// One row a helper and kind: the kind of a secret's row never changes.
kj::String secretId(Credential::Kind kind, kj::StringPtr name) {
  return kj::str(kind == Credential::Kind::NONCE ? "nonce-" : "token-", name);
}

SecretRecord secretRecord(Credential::Kind kind, kj::StringPtr name, UnixMs at) {
  SecretRecord record;
  record.id = secretId(kind, name);
  record.kind =
      kind == Credential::Kind::NONCE ? SecretRecord::Kind::NONCE : SecretRecord::Kind::TOKEN;
  record.createdAt = record.updatedAt = at;
  return record;
}

Outcome putSecret(Connection& db, SecretRecord record, kj::ArrayPtr<const kj::byte> sealed) {
  SecretTable secrets(db);
  KJ_IF_MAYBE (present, secrets.find(record.id)) {
    record.version = present->version;
    record.createdAt = present->createdAt;
  }
  auto put = secrets.put(record, sealed);
  if (put.is<Problem>()) return kj::mv(put.get<Problem>());
  return nullptr;
}

void removeSecret(Connection& db, kj::StringPtr id) {
  // An absent one was never written, or went with an earlier call.
  KJ_IF_MAYBE (problem, SecretTable(db).remove(id)) {
    if (problem->code != ErrorCode::NOT_FOUND) KJ_LOG(WARNING, "a helper's secret stays", *problem);
  }
}

struct Stored {
  ControlServerRecord record;
  kj::Array<kj::byte> sealed;
};

// Without its credential.
HelperEntry entryOf(const ControlServerRecord& record) {
  auto identity = decodeHex(record.serverId);
  auto serverId = identity == nullptr ? kj::Array<kj::byte>() : kj::mv(KJ_ASSERT_NONNULL(identity));
  return HelperEntry{kj::str(record.id),
                     kj::str(record.endpoint),
                     record.pid,
                     record.startTicks,
                     kj::str(record.bootId),
                     kj::mv(serverId),
                     nullptr,
                     record.rotation,
                     kj::str(record.logPath),
                     nullptr};
}

}  // namespace

kj::Promise<Result<kj::Maybe<HelperEntry>>> StoredHelperBook::current() {
  using Found = kj::Maybe<HelperEntry>;
  auto read = co_await store.read([](Connection& db) -> Result<kj::Maybe<Stored>> {
    auto record = ControlServerTable(db).current();
    KJ_IF_MAYBE (present, record) {
      auto sealed = SecretTable(db).sealed(present->secretId);
      KJ_IF_MAYBE (bytes, sealed) {
        return kj::Maybe<Stored>(Stored{kj::mv(*present), kj::mv(*bytes)});
      }
      return kj::Maybe<Stored>(Stored{kj::mv(*present), nullptr});
    }
    return kj::Maybe<Stored>(nullptr);
  });
  if (read.is<Problem>()) co_return kj::mv(read.get<Problem>());
  KJ_IF_MAYBE (stored, read.get<kj::Maybe<Stored>>()) {
    auto& record = stored->record;
    auto entry = entryOf(record);
    auto opened = box.open(record.secretId, stored->sealed);
    KJ_IF_MAYBE (problem, opened.tryGet<Problem>()) {
      entry.locked = kj::mv(*problem).from("agentctl", kj::str(takeover::CREDENTIAL_UNAVAILABLE));
    } else {
      auto kind = record.rotation == 0 ? Credential::Kind::NONCE : Credential::Kind::TOKEN;
      entry.credential =
          Credential(kind, kj::heapArray<kj::byte>(opened.get<SecretBytes>().asPtr()));
    }
    co_return Found(kj::mv(entry));
  }
  co_return Found(nullptr);
}

kj::Promise<Result<kj::Vector<HelperEntry>>> StoredHelperBook::draining() {
  auto read = co_await store.read([](Connection& db) -> Result<kj::Vector<ControlServerRecord>> {
    kj::Vector<ControlServerRecord> all;
    kj::String after;
    for (;;) {
      auto page = ControlServerTable(db).list(after, PAGE);
      bool last = page.size() < PAGE;
      for (auto& record: page) {
        after = kj::str(record.id);
        if (record.state == ControlServerRecord::State::DRAINING) all.add(kj::mv(record));
      }
      if (last) return kj::mv(all);
    }
  });
  if (read.is<Problem>()) co_return kj::mv(read.get<Problem>());
  kj::Vector<HelperEntry> result;
  for (auto& record: read.get<kj::Vector<ControlServerRecord>>())
    result.add(entryOf(record));
  co_return kj::mv(result);
}

kj::Promise<Outcome> StoredHelperBook::add(HelperEntry entry) {
  auto& credential = KJ_REQUIRE_NONNULL(entry.credential, "a new helper's credential is known");
  auto secret = secretRecord(credential.kind(), entry.name, now());
  auto sealed = box.seal(secret.id, credential.key(), entropy);
  if (sealed.is<Problem>()) return Outcome(kj::mv(sealed.get<Problem>()));
  ControlServerRecord record;
  record.id = kj::mv(entry.name);
  record.endpoint = kj::mv(entry.endpoint);
  record.secretId = kj::str(secret.id);
  record.logPath = kj::mv(entry.logPath);
  record.createdAt = now();
  return store.write(
      [record = kj::mv(record), secret = kj::mv(secret),
       sealed = kj::mv(sealed.get<kj::Array<kj::byte>>())](Connection& db) -> Outcome {
        SecretRecord copy;
        copy.id = kj::str(secret.id);
        copy.kind = secret.kind;
        copy.createdAt = copy.updatedAt = secret.createdAt;
        KJ_IF_MAYBE (problem, putSecret(db, kj::mv(copy), sealed)) {
          return kj::mv(*problem);
        }
        return ControlServerTable(db).add(record);
      });
}

kj::Promise<Outcome> StoredHelperBook::started(kj::String name, int64_t pid, uint64_t startTicks,
                                               kj::String bootId) {
  return store.write(
      [name = kj::mv(name), pid, startTicks, bootId = kj::mv(bootId)](Connection& db) -> Outcome {
        ControlServerTable servers(db);
        KJ_IF_MAYBE (record, servers.find(name)) {
          record->pid = pid;
          record->startTicks = startTicks;
          record->bootId = kj::str(bootId);
          return servers.change(*record);
        }
        return Problem(ErrorCode::NOT_FOUND, kj::str("no helper '", name, "' is written down"));
      });
}

kj::Promise<Outcome> StoredHelperBook::remove(kj::String name) {
  return store.write([name = kj::mv(name)](Connection& db) -> Outcome {
    removeSecret(db, secretId(Credential::Kind::NONCE, name));
    removeSecret(db, secretId(Credential::Kind::TOKEN, name));
    KJ_IF_MAYBE (problem, ControlServerTable(db).remove(name)) {
      if (problem->code != ErrorCode::NOT_FOUND) return kj::mv(*problem);
    }
    return nullptr;
  });
}

kj::Promise<Outcome> StoredHelperBook::keepToken(kj::String name, kj::Array<kj::byte> serverId,
                                                 kj::String build,
                                                 kj::Array<kj::String> capabilities,
                                                 Credential token, uint64_t rotation) {
  auto at = now();
  auto sealed = box.seal(secretId(Credential::Kind::TOKEN, name), token.key(), entropy);
  if (sealed.is<Problem>()) return Outcome(kj::mv(sealed.get<Problem>()));
  return store.write(
      [name = kj::mv(name), serverId = encodeHex(serverId), build = kj::mv(build),
       capabilities = kj::mv(capabilities), rotation, at,
       sealed = kj::mv(sealed.get<kj::Array<kj::byte>>())](Connection& db) -> Outcome {
        ControlServerTable servers(db);
        KJ_IF_MAYBE (record, servers.find(name)) {
          auto secret = secretRecord(Credential::Kind::TOKEN, name, at);
          record->secretId = kj::str(secret.id);
          record->serverId = kj::str(serverId);
          record->build = kj::str(build);
          auto words = kj::heapArrayBuilder<kj::String>(capabilities.size());
          for (auto& each: capabilities)
            words.add(kj::str(each));
          record->capabilities = words.finish();
          record->rotation = rotation;
          KJ_IF_MAYBE (problem, putSecret(db, kj::mv(secret), sealed)) {
            return kj::mv(*problem);
          }
          removeSecret(db, secretId(Credential::Kind::NONCE, name));
          return servers.change(*record);
        }
        return nullptr;
      });
}

}  // namespace capstan
