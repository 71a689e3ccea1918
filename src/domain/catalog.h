#pragma once
// Executors, their profiles and the default executors as values, how names find them, and which
// executor a task gets.

#include "domain/records.h"

#include <kj/map.h>

namespace capstan {

ExecutorRecord clone(const ExecutorRecord& record);
ProfileRecord clone(const ProfileRecord& record);

// About what a row takes.
size_t bytesOf(const ExecutorRecord& record);
size_t bytesOf(const ProfileRecord& record);

// Which executors, with their profiles, a caller may list and use. What is outside is not found.
struct CatalogScope {
  kj::Maybe<kj::Array<kj::String>> executorIds;  // Null = all.

  bool admits(kj::StringPtr executorId) const;
};

// What a task says about its executor. Each is an id, a name or a unique prefix; empty = nothing.
struct Choice {
  kj::StringPtr executor;
  kj::StringPtr profile;
  kj::StringPtr tenant;  // The exact name.
};

// What decided.
enum class ChosenBy { EXECUTOR, PROFILE, TENANT_DEFAULT, GLOBAL_DEFAULT, LOCAL_PC };

// Copies: what becomes of the rows changes nothing here.
struct Chosen {
  ExecutorRecord executor;
  kj::Maybe<ProfileRecord> profile;  // Of that executor.
  ChosenBy by = ChosenBy::LOCAL_PC;
};

// All executors that are not removed, all profiles and all defaults. References and pointers into
// it are good until the next change.
class CatalogRows {
public:
  CatalogRows() = default;
  CatalogRows(CatalogRows&&) = default;
  CatalogRows& operator=(CatalogRows&&) = default;

  // By exact id.
  kj::Maybe<const ExecutorRecord&> executor(kj::StringPtr id) const;
  kj::Maybe<const ProfileRecord&> profile(kj::StringPtr id) const;

  // By id, then name, then unique prefix of either. notFound and, for a prefix or a profile's name
  // that several have, invalidArgument; both list what there is.
  Result<const ExecutorRecord*> findExecutor(kj::StringPtr name,
                                             const CatalogScope& scope = {}) const;
  // The profiles of executor `preferred` come first where a name or prefix stands for several.
  Result<const ProfileRecord*> findProfile(kj::StringPtr name, const CatalogScope& scope = {},
                                           kj::StringPtr preferred = nullptr) const;

  // In order of their ids.
  kj::Vector<const ExecutorRecord*> executors(const CatalogScope& scope = {}) const;
  kj::Vector<const ProfileRecord*> profiles(const CatalogScope& scope = {}) const;

  // The first of: the named profile's executor, the named executor, the tenant's default, the
  // global default, Local PC. A profile of another executor than the named one takes its own
  // executor along; of profiles with one name that of the named executor is meant. What is chosen
  // but disabled or gone is wrongState or notFound, never passed over.
  Result<Chosen> choose(const Choice& choice, const CatalogScope& scope = {}) const;

  // Of a tenant, or with an empty name of everybody. Null = none is set.
  kj::Maybe<kj::StringPtr> defaultExecutor(kj::StringPtr tenant) const;
  // Executor ids by tenant, the global one first, under the empty name.
  const kj::TreeMap<kj::String, kj::String>& defaults() const { return defaultByTenant; }

  // New or in place of the one with that id.
  void put(ExecutorRecord record);
  void put(ProfileRecord record);
  void removeExecutor(kj::StringPtr id);
  void removeProfile(kj::StringPtr id);
  // An empty executor id clears it.
  void setDefault(kj::StringPtr tenant, kj::StringPtr executorId);

  // About what all of it takes.
  size_t bytes() const;

private:
  kj::TreeMap<kj::String, ExecutorRecord> executorById;
  kj::TreeMap<kj::String, ProfileRecord> profileById;
  kj::TreeMap<kj::String, kj::String> defaultByTenant;
};

// The system row that is chosen when nothing else is.
inline constexpr kj::StringPtr LOCAL_PC = "exec-local-pc"_kj;

}  // namespace capstan
