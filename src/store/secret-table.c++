#include "store/secret-table.h"

#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr KINDS[] = {"user"_kj, "nonce"_kj, "token"_kj};

#define SECRET_COLUMNS "id, kind, name, created_ms, updated_ms, version"

SecretRecord read(Query& row) {
  SecretRecord record;
  record.id = row.text(0);
  record.kind = valueOf<SecretRecord::Kind>(row.text(1), KINDS);
  record.name = row.text(2);
  record.createdAt = row.integer(3);
  record.updatedAt = row.integer(4);
  record.version = row.integer(5);
  return record;
}

}  // namespace

kj::Maybe<SecretRecord> SecretTable::find(kj::StringPtr id) {
  auto row = db.query("SELECT " SECRET_COLUMNS " FROM secret WHERE id = ? LIMIT 1", id);
  if (!row.next()) return nullptr;
  return read(row);
}

kj::Maybe<SecretRecord> SecretTable::findByName(kj::StringPtr name) {
  auto row = db.query("SELECT " SECRET_COLUMNS " FROM secret WHERE name = ? LIMIT 1", name);
  if (!row.next()) return nullptr;
  return read(row);
}

kj::Maybe<kj::Array<kj::byte>> SecretTable::sealed(kj::StringPtr id) {
  auto row = db.query("SELECT sealed FROM secret WHERE id = ? LIMIT 1", id);
  if (!row.next()) return nullptr;
  return row.bytes(0);
}

Result<uint64_t> SecretTable::put(const SecretRecord& record, kj::ArrayPtr<const kj::byte> sealed) {
  KJ_REQUIRE((record.kind == SecretRecord::Kind::USER) == (record.name.size() > 0),
             "secrets of users, and no others, have a name");
  KJ_IF_MAYBE (present, find(record.id)) {
    if (record.version == 0) {
      return Problem(ErrorCode::ALREADY_EXISTS,
                     kj::str("there is a secret '", record.id, "' already"));
    }
    if (present->version != record.version) {
      return rowChanged("secret", record.id, record.version, present->version);
    }
    db.run("UPDATE secret SET sealed = ?, updated_ms = ?, version = version + 1 WHERE id = ?",
           sealed, record.updatedAt, record.id);
    return record.version + 1;
  }
  if (record.version != 0) return rowNotFound("secret", record.id);
  if (record.name.size() > 0 && findByName(record.name) != nullptr) {
    return Problem(ErrorCode::ALREADY_EXISTS,
                   kj::str("there is a secret '", record.name, "' already"));
  }
  db.run(
      "INSERT INTO secret (id, kind, name, sealed, created_ms, updated_ms, version) "
      "VALUES (?, ?, ?, ?, ?, ?, 1)",
      record.id, wordOf(record.kind, KINDS), orNull(record.name), sealed, record.createdAt,
      record.updatedAt);
  return uint64_t(1);
}

Outcome SecretTable::remove(kj::StringPtr id) {
  if (db.run("DELETE FROM secret WHERE id = ?", id) == 0) return rowNotFound("secret", id);
  return nullptr;
}

kj::Vector<SecretRecord> SecretTable::listNames(kj::StringPtr after, size_t limit) {
  kj::Vector<SecretRecord> result;
  auto row = db.query("SELECT " SECRET_COLUMNS
                      " FROM secret WHERE name IS NOT NULL AND name > ? ORDER BY name LIMIT ?",
                      after, limit);
  while (row.next())
    result.add(read(row));
  return result;
}

Outcome SecretTable::allowEnvironment(kj::StringPtr id, kj::StringPtr environmentId) {
  if (find(id) == nullptr) return rowNotFound("secret", id);
  auto there = db.query("SELECT 1 FROM environment WHERE id = ? LIMIT 1", environmentId);
  if (!there.next()) return rowNotFound("environment", environmentId);
  db.run("INSERT OR IGNORE INTO secret_grant (secret_id, environment_id) VALUES (?, ?)", id,
         environmentId);
  return nullptr;
}

Outcome SecretTable::allowProfile(kj::StringPtr id, kj::StringPtr profileId) {
  if (find(id) == nullptr) return rowNotFound("secret", id);
  auto there = db.query("SELECT 1 FROM profile WHERE id = ? LIMIT 1", profileId);
  if (!there.next()) return rowNotFound("profile", profileId);
  db.run("INSERT OR IGNORE INTO secret_grant (secret_id, profile_id) VALUES (?, ?)", id, profileId);
  return nullptr;
}

Outcome SecretTable::disallowEnvironment(kj::StringPtr id, kj::StringPtr environmentId) {
  if (find(id) == nullptr) return rowNotFound("secret", id);
  db.run("DELETE FROM secret_grant WHERE environment_id = ? AND secret_id = ?", environmentId, id);
  return nullptr;
}

Outcome SecretTable::disallowProfile(kj::StringPtr id, kj::StringPtr profileId) {
  if (find(id) == nullptr) return rowNotFound("secret", id);
  db.run("DELETE FROM secret_grant WHERE profile_id = ? AND secret_id = ?", profileId, id);
  return nullptr;
}

kj::Vector<kj::String> SecretTable::environmentsOf(kj::StringPtr id, size_t limit) {
  kj::Vector<kj::String> result;
  auto row = db.query(
      "SELECT environment_id FROM secret_grant WHERE secret_id = ? AND environment_id IS NOT NULL "
      "ORDER BY environment_id LIMIT ?",
      id, limit);
  while (row.next())
    result.add(row.text(0));
  return result;
}

kj::Vector<kj::String> SecretTable::profilesOf(kj::StringPtr id, size_t limit) {
  kj::Vector<kj::String> result;
  auto row = db.query(
      "SELECT profile_id FROM secret_grant WHERE secret_id = ? AND profile_id IS NOT NULL "
      "ORDER BY profile_id LIMIT ?",
      id, limit);
  while (row.next())
    result.add(row.text(0));
  return result;
}

bool SecretTable::isAllowed(kj::StringPtr id, kj::StringPtr environmentId,
                            kj::StringPtr profileId) {
  auto row = db.query(
      "SELECT 1 FROM secret_grant WHERE secret_id = ? AND "
      "(environment_id = ? OR profile_id = ?) LIMIT 1",
      id, environmentId, profileId);
  return row.next();
}

size_t SecretTable::countNames() {
  auto row = db.query("SELECT count(*) FROM secret WHERE name IS NOT NULL");
  row.next();
  return row.integer(0);
}

size_t SecretTable::count() {
  auto row = db.query("SELECT count(*) FROM secret");
  row.next();
  return row.integer(0);
}

bool SecretTable::any() {
  auto row = db.query("SELECT 1 FROM secret LIMIT 1");
  return row.next();
}

Result<kj::String> SecretTable::reseal(const SecretBox& box, Entropy& entropy, kj::StringPtr after,
                                       size_t limit) {
  struct Row {
    kj::String id;
    kj::Array<kj::byte> sealed;
  };
  kj::Vector<Row> rows;
  {
    auto row =
        db.query("SELECT id, sealed FROM secret WHERE id > ? ORDER BY id LIMIT ?", after, limit);
    while (row.next())
      rows.add(Row{row.text(0), row.bytes(1)});
  }
  for (auto& row: rows) {
    if (box.isCurrent(row.sealed)) continue;
    auto value = box.open(row.id, row.sealed);
    if (value.is<Problem>()) return kj::mv(value.get<Problem>());
    auto sealed = box.seal(row.id, value.get<SecretBytes>().asPtr(), entropy);
    if (sealed.is<Problem>()) return kj::mv(sealed.get<Problem>());
    db.run("UPDATE secret SET sealed = ?, version = version + 1 WHERE id = ?",
           sealed.get<kj::Array<kj::byte>>(), row.id);
  }
  if (rows.size() < limit) return kj::str();
  return kj::mv(rows.back().id);
}

}  // namespace capstan
