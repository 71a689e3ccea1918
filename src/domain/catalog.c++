#include "domain/catalog.h"

#include <kj/vector.h>

namespace capstan {

namespace {

// Enough to find a slip; the lists themselves are one command away.
constexpr size_t MOST_NAMED = 10;

kj::Array<Label> clone(kj::ArrayPtr<const Label> pairs) {
  return KJ_MAP(pair, pairs) { return Label{kj::str(pair.key), kj::str(pair.value)}; };
}

template <typename Record>
kj::String listing(kj::ArrayPtr<const Record* const> rows) {
  kj::Vector<kj::String> names;
  for (auto* row: rows.slice(0, kj::min(rows.size(), MOST_NAMED))) {
    names.add(kj::str(row->id, " (", row->name, ")"));
  }
  auto text = kj::strArray(names, ", ");
  if (rows.size() <= MOST_NAMED) return text;
  return kj::str(text, " and ", rows.size() - MOST_NAMED, " more");
}

// What finding needs to know about a kind of row.
struct Kind {
  kj::StringPtr one;    // "executor"
  kj::StringPtr many;   // "executors"
  kj::StringPtr field;  // Where a launch names it.
};
constexpr Kind EXECUTOR{"executor"_kj, "executors"_kj, "spec.executorId"_kj};
constexpr Kind PROFILE{"profile"_kj, "profiles"_kj, "spec.profileId"_kj};

template <typename Record>
Result<const Record*> find(const Kind& kind, kj::ArrayPtr<const Record* const> rows,
                           kj::StringPtr name, kj::Function<bool(const Record&)> isPreferred) {
  kj::Vector<const Record*> named, beginning;
  for (auto* row: rows) {
    if (row->id == name) return row;
    if (row->name == name) named.add(row);
    if (row->id.startsWith(name) || row->name.startsWith(name)) beginning.add(row);
  }
  for (auto* matching: {&named, &beginning}) {
    if (matching->size() == 0 || name.size() == 0) continue;
    if (matching->size() == 1) return (*matching)[0];
    kj::Vector<const Record*> preferred;
    for (auto* row: *matching) {
      if (isPreferred(*row)) preferred.add(row);
    }
    if (preferred.size() == 1) return preferred[0];
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("'", name, "' stands for several ", kind.many))
        .at(kj::str(kind.field))
        .advise(kj::str("one of ", listing<Record>(matching->asPtr())));
  }
  auto problem = Problem(ErrorCode::NOT_FOUND, kj::str("no ", kind.one, " '", name, "'"))
                     .at(kj::str(kind.field));
  problem.hint = rows.size() == 0 ? kj::str("there are no ", kind.many)
                                  : kj::str("known ", kind.many, ": ", listing<Record>(rows));
  return kj::mv(problem);
}

// A default that was set, or Local PC, cannot be used.
Problem unusableDefault(kj::StringPtr what, kj::StringPtr id) {
  return Problem(ErrorCode::NOT_FOUND,
                 kj::str("no executor is given, and there is no '", id, "', ", what))
      .at(kj::str("spec.executorId"))
      .advise(kj::str("name an executor: capstan executor list shows them"));
}

kj::StringPtr reasonOf(ChosenBy by) {
  switch (by) {
    case ChosenBy::EXECUTOR:
      return "it was asked for"_kj;
    case ChosenBy::PROFILE:
      return "the profile belongs to it"_kj;
    case ChosenBy::TENANT_DEFAULT:
      return "it is the tenant's default"_kj;
    case ChosenBy::GLOBAL_DEFAULT:
      return "it is the default"_kj;
    case ChosenBy::LOCAL_PC:
      return "nothing else was chosen"_kj;
  }
  KJ_UNREACHABLE;
}

}  // namespace

ExecutorRecord clone(const ExecutorRecord& record) {
  ExecutorRecord copy;
  copy.id = kj::str(record.id);
  copy.name = kj::str(record.name);
  copy.type = kj::str(record.type);
  copy.status = record.status;
  copy.isSystem = record.isSystem;
  copy.resumable = record.resumable;
  copy.config = clone(record.config.asPtr());
  copy.createdAt = record.createdAt;
  copy.updatedAt = record.updatedAt;
  copy.deletedAt = record.deletedAt;
  copy.version = record.version;
  return copy;
}

ProfileRecord clone(const ProfileRecord& record) {
  ProfileRecord copy;
  copy.id = kj::str(record.id);
  copy.executorId = kj::str(record.executorId);
  copy.name = kj::str(record.name);
  copy.mcpPolicy = kj::str(record.mcpPolicy);
  copy.config = clone(record.config.asPtr());
  copy.prepareScript = kj::str(record.prepareScript);
  copy.cleanupScript = kj::str(record.cleanupScript);
  copy.variables = KJ_MAP(variable, record.variables) { return variable.clone(); };
  copy.createdAt = record.createdAt;
  copy.updatedAt = record.updatedAt;
  copy.version = record.version;
  return copy;
}

namespace {

size_t bytesOf(kj::ArrayPtr<const Label> pairs) {
  size_t bytes = 0;
  for (auto& pair: pairs)
    bytes += sizeof(Label) + pair.key.size() + pair.value.size();
  return bytes;
}

}  // namespace

size_t bytesOf(const ExecutorRecord& record) {
  return sizeof(record) + record.name.size() + bytesOf(record.config.asPtr());
}

size_t bytesOf(const ProfileRecord& record) {
  size_t bytes = sizeof(record) + record.name.size() + record.mcpPolicy.size() +
                 bytesOf(record.config.asPtr()) + record.prepareScript.size() +
                 record.cleanupScript.size();
  for (auto& variable: record.variables) {
    bytes += sizeof(variable) + variable.key.size() + variable.literal.size() +
             variable.secret.size() + variable.otherOrigin.size() + variable.repository.size() +
             variable.tenantId.size();
  }
  return bytes;
}

size_t CatalogRows::bytes() const {
  size_t bytes = 0;
  for (auto& entry: executorById)
    bytes += bytesOf(entry.value);
  for (auto& entry: profileById)
    bytes += bytesOf(entry.value);
  return bytes;
}

bool CatalogScope::admits(kj::StringPtr executorId) const {
  KJ_IF_MAYBE (ids, executorIds) {
    for (auto& id: *ids) {
      if (id == executorId) return true;
    }
    return false;
  }
  return true;
}

kj::Maybe<const ExecutorRecord&> CatalogRows::executor(kj::StringPtr id) const {
  return executorById.find(id);
}

kj::Maybe<const ProfileRecord&> CatalogRows::profile(kj::StringPtr id) const {
  return profileById.find(id);
}

kj::Vector<const ExecutorRecord*> CatalogRows::executors(const CatalogScope& scope) const {
  kj::Vector<const ExecutorRecord*> rows(executorById.size());
  for (auto& entry: executorById) {
    if (scope.admits(entry.key)) rows.add(&entry.value);
  }
  return rows;
}

kj::Vector<const ProfileRecord*> CatalogRows::profiles(const CatalogScope& scope) const {
  kj::Vector<const ProfileRecord*> rows(profileById.size());
  for (auto& entry: profileById) {
    if (scope.admits(entry.value.executorId)) rows.add(&entry.value);
  }
  return rows;
}

Result<const ExecutorRecord*> CatalogRows::findExecutor(kj::StringPtr name,
                                                        const CatalogScope& scope) const {
  auto rows = executors(scope);
  return find<ExecutorRecord>(EXECUTOR, rows, name, [](const ExecutorRecord&) { return false; });
}

Result<const ProfileRecord*> CatalogRows::findProfile(kj::StringPtr name, const CatalogScope& scope,
                                                      kj::StringPtr preferred) const {
  auto rows = profiles(scope);
  return find<ProfileRecord>(PROFILE, rows, name, [preferred](const ProfileRecord& row) {
    return row.executorId == preferred;
  });
}

Result<Chosen> CatalogRows::choose(const Choice& choice, const CatalogScope& scope) const {
  const ExecutorRecord* chosen = nullptr;
  const ProfileRecord* profile = nullptr;
  auto by = ChosenBy::LOCAL_PC;
  if (choice.executor.size() > 0) {
    auto found = findExecutor(choice.executor, scope);
    if (found.is<Problem>()) return kj::mv(found.get<Problem>());
    chosen = found.get<const ExecutorRecord*>();
    by = ChosenBy::EXECUTOR;
  }
  if (choice.profile.size() > 0) {
    auto found = findProfile(choice.profile, scope,
                             chosen == nullptr ? kj::StringPtr() : kj::StringPtr(chosen->id));
    if (found.is<Problem>()) return kj::mv(found.get<Problem>());
    profile = found.get<const ProfileRecord*>();
    if (chosen == nullptr || chosen->id != profile->executorId) {
      chosen = &KJ_ASSERT_NONNULL(executor(profile->executorId), "a profile without executor");
      by = ChosenBy::PROFILE;
    }
  }
  if (chosen == nullptr) {
    kj::StringPtr id = LOCAL_PC, what = "which is taken then"_kj;
    KJ_IF_MAYBE (global, defaultExecutor(nullptr)) {
      id = *global;
      what = "the default"_kj;
      by = ChosenBy::GLOBAL_DEFAULT;
    }
    KJ_IF_MAYBE (own, choice.tenant.size() == 0 ? nullptr : defaultExecutor(choice.tenant)) {
      id = *own;
      what = "the tenant's default"_kj;
      by = ChosenBy::TENANT_DEFAULT;
    }
    KJ_IF_MAYBE (row, executor(id)) {
      if (scope.admits(id)) chosen = row;
    }
    if (chosen == nullptr) return unusableDefault(what, id);
  }
  if (chosen->status == ExecutorStatus::DISABLED) {
    return Problem(ErrorCode::WRONG_STATE,
                   kj::str("the executor ", chosen->id, " (", chosen->name, ") is disabled"))
        .because(kj::str(reasonOf(by)))
        .at(kj::str("spec.executorId"))
        .advise(kj::str("capstan executor update ", chosen->id, " --enable, or name another one"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  Chosen result;
  result.executor = clone(*chosen);
  if (profile != nullptr) result.profile = clone(*profile);
  result.by = by;
  return kj::mv(result);
}

kj::Maybe<kj::StringPtr> CatalogRows::defaultExecutor(kj::StringPtr tenant) const {
  return defaultByTenant.find(tenant).map([](const kj::String& id) -> kj::StringPtr { return id; });
}

void CatalogRows::put(ExecutorRecord record) {
  auto id = kj::str(record.id);
  executorById.upsert(kj::mv(id), kj::mv(record),
                      [](ExecutorRecord& old, ExecutorRecord&& next) { old = kj::mv(next); });
}

void CatalogRows::put(ProfileRecord record) {
  auto id = kj::str(record.id);
  profileById.upsert(kj::mv(id), kj::mv(record),
                     [](ProfileRecord& old, ProfileRecord&& next) { old = kj::mv(next); });
}

void CatalogRows::removeExecutor(kj::StringPtr id) { executorById.erase(id); }

void CatalogRows::removeProfile(kj::StringPtr id) { profileById.erase(id); }

void CatalogRows::setDefault(kj::StringPtr tenant, kj::StringPtr executorId) {
  defaultByTenant.erase(tenant);
  if (executorId.size() > 0) defaultByTenant.insert(kj::str(tenant), kj::str(executorId));
}

}  // namespace capstan
