#include "core/catalog.h"

#include "base/ids.h"
#include "store/environment-table.h"
#include "store/executor-table.h"
#include "store/profile-table.h"
#include "store/setting-table.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// A setting "default_executor" and, for each tenant that has its own, "default_executor/TENANT".
constexpr kj::StringPtr DEFAULT_EXECUTOR = "default_executor"_kj;

kj::String settingOf(kj::StringPtr tenant) {
  return tenant.size() == 0 ? kj::str(DEFAULT_EXECUTOR) : kj::str(DEFAULT_EXECUTOR, '/', tenant);
}

// The tenant of a setting of that kind: empty = everybody; null = another kind.
kj::Maybe<kj::StringPtr> tenantOf(kj::StringPtr key) {
  if (key == DEFAULT_EXECUTOR) return ""_kj;
  if (!key.startsWith(DEFAULT_EXECUTOR) || key[DEFAULT_EXECUTOR.size()] != '/') return nullptr;
  return key.slice(DEFAULT_EXECUTOR.size() + 1);
}

kj::String defaultWords(kj::StringPtr tenant) {
  return tenant.size() == 0 ? kj::str("the default executor")
                            : kj::str("the default executor of tenant '", tenant, "'");
}

Problem notFound(kj::StringPtr what, kj::StringPtr id) {
  return Problem(ErrorCode::NOT_FOUND, kj::str("no ", what, " '", id, "'"))
      .at(kj::str("id"))
      .advise(kj::str("capstan ", what, " list shows them"));
}

Problem inUse(kj::StringPtr what, kj::StringPtr id, kj::String by, kj::String cure) {
  return Problem(ErrorCode::WRONG_STATE, kj::str("the ", what, " '", id, "' is in use"))
      .because(kj::mv(by))
      .advise(kj::mv(cure))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

Problem usedBy(kj::StringPtr what, kj::StringPtr id, const EnvironmentRecord& environment) {
  return inUse(what, id,
               kj::str("the environment ", environment.id, " of task '", environment.spec.taskId,
                       "' was made with it"),
               kj::str("remove it first: capstan env destroy ", environment.id));
}

Problem full(kj::String what) {
  return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::mv(what))
      .advise(kj::str("remove some first"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

// Every row of a table, page by page.
template <typename Table, typename Add>
void readAll(Table table, Add add) {
  constexpr size_t PAGE = 500;
  kj::String after = kj::str();
  for (;;) {
    auto rows = table.list(after, PAGE);
    for (auto& row: rows) {
      if constexpr (requires { row.id; }) {
        after = kj::str(row.id);
      } else {
        after = kj::str(row.key);
      }
      add(kj::mv(row));
    }
    if (rows.size() < PAGE) return;
  }
}

Result<CatalogRows> readRows(Connection& db) {
  CatalogRows rows;
  readAll(ExecutorTable(db), [&](ExecutorRecord row) { rows.put(kj::mv(row)); });
  readAll(ProfileTable(db), [&](ProfileRecord row) { rows.put(kj::mv(row)); });
  readAll(SettingTable(db), [&](SettingRecord row) {
    KJ_IF_MAYBE (tenant, tenantOf(row.key)) {
      rows.setDefault(*tenant, row.value);
    }
  });
  return kj::mv(rows);
}

// The store's part of a save: merge with what is there at this very moment, check, write.
template <typename Table, typename Record, typename Change>
Result<Record> saveRow(Connection& db, const Change& change, kj::StringPtr newId,
                       const Limits& limits, UnixMs now, kj::StringPtr what) {
  Table table(db);
  kj::Maybe<Record> present;
  if (change.id.size() > 0 && change.ifVersion != NEW_ROW) {
    present = table.find(change.id);
    bool there = false;
    KJ_IF_MAYBE (row, present) {
      if constexpr (requires { row->deletedAt; }) {
        there = row->deletedAt == 0;
      } else {
        there = true;
      }
    }
    if (!there) return notFound(what, change.id);
  }
  auto merged =
      applied(present.map([](Record& row) -> const Record& { return row; }), change, limits, now);
  if (merged.template is<Problem>()) return kj::mv(merged.template get<Problem>());
  auto row = kj::mv(merged.template get<Record>());
  if (present == nullptr) row.id = kj::str(newId);
  auto written = table.put(row);
  if (written.template is<Problem>()) return kj::mv(written.template get<Problem>());
  row.version = written.template get<uint64_t>();
  return kj::mv(row);
}

uint64_t versionToFind(uint64_t ifVersion, uint64_t present) {
  return ifVersion == ANY_VERSION ? present : ifVersion;
}

Outcome eraseExecutor(Connection& db, kj::StringPtr id, uint64_t ifVersion, UnixMs now) {
  ExecutorTable table(db);
  auto present = table.find(id);
  KJ_IF_MAYBE (row, present) {
    if (row->deletedAt != 0) return notFound("executor", id);
    if (!row->isSystem) {
      KJ_IF_MAYBE (environment, EnvironmentTable(db).findByExecutor(id)) {
        return usedBy("executor", id, *environment);
      }
      kj::Maybe<kj::String> tenant;
      readAll(SettingTable(db), [&](SettingRecord setting) {
        KJ_IF_MAYBE (name, tenantOf(setting.key)) {
          if (setting.value == id) tenant = kj::str(*name);
        }
      });
      KJ_IF_MAYBE (name, tenant) {
        auto option = name->size() == 0 ? kj::str() : kj::str(" --tenant ", *name);
        return inUse("executor", id, kj::str("it is ", defaultWords(*name)),
                     kj::str("capstan executor default --clear", option));
      }
    }
    return table.remove(id, versionToFind(ifVersion, row->version), now);
  }
  return notFound("executor", id);
}

Outcome eraseProfile(Connection& db, kj::StringPtr id, uint64_t ifVersion) {
  ProfileTable table(db);
  KJ_IF_MAYBE (row, table.find(id)) {
    KJ_IF_MAYBE (environment, EnvironmentTable(db).findByProfile(id)) {
      return usedBy("profile", id, *environment);
    }
    return table.remove(id, versionToFind(ifVersion, row->version));
  }
  return notFound("profile", id);
}

Outcome writeDefault(Connection& db, kj::StringPtr tenant, kj::StringPtr executorId) {
  SettingTable settings(db);
  auto key = settingOf(tenant);
  uint64_t version = 0;
  KJ_IF_MAYBE (present, settings.find(key)) {
    version = present->version;
  }
  if (executorId.size() == 0) return version == 0 ? Outcome() : settings.remove(key, version);
  bool there = false;
  KJ_IF_MAYBE (row, ExecutorTable(db).find(executorId)) {
    there = row->deletedAt == 0;
  }
  if (!there) return notFound("executor", executorId);
  auto written = settings.put(key, executorId, version);
  if (written.is<Problem>()) return kj::mv(written.get<Problem>());
  return nullptr;
}

}  // namespace

kj::Promise<Result<kj::Own<Catalog>>> Catalog::load(Database& store, const kj::Clock& clock,
                                                    Entropy& entropy, Limits limits) {
  auto rows = co_await store.read([](Connection& db) { return readRows(db); });
  if (rows.is<Problem>()) co_return kj::mv(rows.get<Problem>());
  auto catalog = kj::heap<Catalog>(Private(), store, clock, entropy, limits);
  catalog->held = kj::mv(rows.get<CatalogRows>());
  co_return kj::mv(catalog);
}

Catalog::Catalog(Private, Database& store, const kj::Clock& clock, Entropy& entropy, Limits limits)
    : store(store), clock(clock), entropy(entropy), limits(limits), tasks(*this) {}

Catalog::~Catalog() noexcept(false) {}

template <typename T>
kj::Promise<T> Catalog::inTurn(kj::Function<kj::Promise<T>()> work) {
  auto pair = kj::newPromiseAndFulfiller<T>();
  // Whether the caller stays or not, memory has to follow the store.
  tasks.add(saving.with([work = kj::mv(work), fulfiller = kj::mv(pair.fulfiller)]() mutable
                            -> kj::Promise<void> { return deliver(work(), kj::mv(fulfiller)); }));
  return kj::mv(pair.promise);
}

kj::Promise<Result<ExecutorRecord>> Catalog::save(ExecutorChange change) {
  return inTurn<Result<ExecutorRecord>>(
      [this, change = kj::mv(change)]() mutable { return saveNow(kj::mv(change)); });
}

kj::Promise<Result<ProfileRecord>> Catalog::save(ProfileChange change) {
  return inTurn<Result<ProfileRecord>>(
      [this, change = kj::mv(change)]() mutable { return saveNow(kj::mv(change)); });
}

kj::Promise<Outcome> Catalog::removeExecutor(kj::String id, uint64_t ifVersion) {
  return inTurn<Outcome>([this, id = kj::mv(id), ifVersion]() mutable {
    return removeExecutorNow(kj::mv(id), ifVersion);
  });
}

kj::Promise<Outcome> Catalog::removeProfile(kj::String id, uint64_t ifVersion) {
  return inTurn<Outcome>([this, id = kj::mv(id), ifVersion]() mutable {
    return removeProfileNow(kj::mv(id), ifVersion);
  });
}

kj::Promise<Outcome> Catalog::setDefaultExecutor(kj::String tenant, kj::String executorId) {
  return inTurn<Outcome>(
      [this, tenant = kj::mv(tenant), executorId = kj::mv(executorId)]() mutable {
        return setDefaultNow(kj::mv(tenant), kj::mv(executorId));
      });
}

kj::Promise<Result<ExecutorRecord>> Catalog::saveNow(ExecutorChange change) {
  if (change.ifVersion == NEW_ROW && held.executors().size() >= limits.executors) {
    co_return full(kj::str("at most ", limits.executors, " executors are kept"));
  }
  size_t bytes = bytesOf(change);
  if (held.bytes() + bytes > limits.catalogBytes) {
    co_return full(kj::str("executors and profiles may take ", limits.catalogBytes >> 20, " MiB"));
  }
  auto saved = co_await store.write(
      [change = kj::mv(change), id = newId(IdKind::EXECUTOR, entropy), limits = limits,
       at = now()](Connection& db) {
        return saveRow<ExecutorTable, ExecutorRecord>(db, change, id, limits, at, "executor");
      },
      bytes + 512);
  if (saved.is<Problem>()) co_return kj::mv(saved.get<Problem>());
  auto& row = saved.get<ExecutorRecord>();
  KJ_LOG(INFO, "executor saved", row.id, row.name, row.version);
  held.put(clone(row));
  tell(CatalogRow::EXECUTOR, row.id);
  co_return kj::mv(row);
}

kj::Promise<Result<ProfileRecord>> Catalog::saveNow(ProfileChange change) {
  if (change.ifVersion == NEW_ROW && held.profiles().size() >= limits.profiles) {
    co_return full(kj::str("at most ", limits.profiles, " profiles are kept"));
  }
  size_t bytes = bytesOf(change);
  if (held.bytes() + bytes > limits.catalogBytes) {
    co_return full(kj::str("executors and profiles may take ", limits.catalogBytes >> 20, " MiB"));
  }
  auto saved = co_await store.write(
      [change = kj::mv(change), id = newId(IdKind::PROFILE, entropy), limits = limits,
       at = now()](Connection& db) {
        return saveRow<ProfileTable, ProfileRecord>(db, change, id, limits, at, "profile");
      },
      bytes + 512);
  if (saved.is<Problem>()) co_return kj::mv(saved.get<Problem>());
  auto& row = saved.get<ProfileRecord>();
  KJ_LOG(INFO, "profile saved", row.id, row.name, row.executorId, row.version);
  held.put(clone(row));
  tell(CatalogRow::PROFILE, row.id);
  co_return kj::mv(row);
}

kj::Promise<Outcome> Catalog::removeExecutorNow(kj::String id, uint64_t ifVersion) {
  auto refused =
      co_await store.write([id = kj::str(id), ifVersion, at = now()](Connection& db) -> Outcome {
        return eraseExecutor(db, id, ifVersion, at);
      });
  if (refused != nullptr) co_return refused;
  KJ_LOG(INFO, "executor removed", id);
  held.removeExecutor(id);
  tell(CatalogRow::EXECUTOR, id);
  co_return nullptr;
}

kj::Promise<Outcome> Catalog::removeProfileNow(kj::String id, uint64_t ifVersion) {
  auto refused = co_await store.write([id = kj::str(id), ifVersion](Connection& db) -> Outcome {
    return eraseProfile(db, id, ifVersion);
  });
  if (refused != nullptr) co_return refused;
  KJ_LOG(INFO, "profile removed", id);
  held.removeProfile(id);
  tell(CatalogRow::PROFILE, id);
  co_return nullptr;
}

kj::Promise<Outcome> Catalog::setDefaultNow(kj::String tenant, kj::String executorId) {
  bool hasNul = tenant.size() > 0 && tenant.findFirst('\0') != nullptr;
  if (hasNul || tenant.size() > limits.textBytes) {
    co_return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the tenant's name cannot be used"))
        .because(kj::str("it has at most ", limits.textBytes, " bytes and no NUL character"))
        .at(kj::str("tenantId"));
  }
  bool another = executorId.size() > 0 && held.defaultExecutor(tenant) == nullptr;
  if (another && held.defaults().size() >= limits.tenantDefaults) {
    co_return full(kj::str("at most ", limits.tenantDefaults, " default executors are kept"));
  }
  auto refused = co_await store.write(
      [tenant = kj::str(tenant), executorId = kj::str(executorId)](Connection& db) -> Outcome {
        return writeDefault(db, tenant, executorId);
      });
  if (refused != nullptr) co_return refused;
  KJ_LOG(INFO, "default executor set", tenant, executorId);
  held.setDefault(tenant, executorId);
  ++changes;
  co_return nullptr;
}

void Catalog::tell(CatalogRow kind, kj::StringPtr id) {
  ++changes;
  for (auto& listener: listeners)
    listener.changed(kind, id);
}

void Catalog::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "a save of the catalog failed", exception);
}

}  // namespace capstan
