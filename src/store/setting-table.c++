#include "store/setting-table.h"

#include "store/stored-values.h"

namespace capstan {

kj::Maybe<SettingRecord> SettingTable::find(kj::StringPtr key) {
  auto row = db.query("SELECT value, version FROM setting WHERE key = ? LIMIT 1", key);
  if (!row.next()) return nullptr;
  return SettingRecord{kj::str(key), row.text(0), static_cast<uint64_t>(row.integer(1))};
}

Result<uint64_t> SettingTable::put(kj::StringPtr key, kj::StringPtr value, uint64_t ifVersion) {
  uint64_t actual = 0;
  KJ_IF_MAYBE (present, find(key)) {
    actual = present->version;
  }
  if (ifVersion == 0 && actual != 0) {
    return Problem(ErrorCode::ALREADY_EXISTS, kj::str("there is a setting '", key, "' already"));
  }
  if (ifVersion != 0 && actual == 0) return rowNotFound("setting", key);
  if (ifVersion != actual) return rowChanged("setting", key, ifVersion, actual);
  db.run("INSERT OR REPLACE INTO setting VALUES (?, ?, ?)", key, value, actual + 1);
  return actual + 1;
}

Outcome SettingTable::remove(kj::StringPtr key, uint64_t ifVersion) {
  KJ_IF_MAYBE (present, find(key)) {
    if (present->version != ifVersion) {
      return rowChanged("setting", key, ifVersion, present->version);
    }
    db.run("DELETE FROM setting WHERE key = ?", key);
    return nullptr;
  }
  return rowNotFound("setting", key);
}

kj::Vector<SettingRecord> SettingTable::list(kj::StringPtr after, size_t limit) {
  kj::Vector<SettingRecord> result;
  auto row = db.query("SELECT key, value, version FROM setting WHERE key > ? ORDER BY key LIMIT ?",
                      after, limit);
  while (row.next()) {
    result.add(SettingRecord{row.text(0), row.text(1), static_cast<uint64_t>(row.integer(2))});
  }
  return result;
}

}  // namespace capstan
