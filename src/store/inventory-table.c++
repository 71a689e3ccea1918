#include "store/inventory-table.h"

#include "store/environment-table.h"
#include "store/stored-values.h"

namespace capstan {

namespace {

constexpr kj::StringPtr STATES[] = {"intended"_kj, "made"_kj};

#define INVENTORY_COLUMNS                                                                         \
  "environment_id, seq, runtime, step, kind, name, identity, state, details_values, created_ms, " \
  "changed_ms"

InventoryItem read(Query& row) {
  InventoryItem item;
  item.environmentId = row.text(0);
  item.seq = row.integer(1);
  item.runtime = row.text(2);
  item.step = row.text(3);
  item.kind = row.text(4);
  item.name = row.text(5);
  item.identity = row.text(6);
  item.state = valueOf<InventoryItem::State>(row.text(7), STATES);
  item.details = decodePairs(row.bytes(8));
  item.createdAt = row.integer(9);
  item.changedAt = row.integer(10);
  return item;
}

Problem noItem(kj::StringPtr environmentId, uint64_t seq) {
  return rowNotFound("inventory item", kj::str(environmentId, "/", seq));
}

}  // namespace

Result<uint64_t> InventoryTable::intend(const InventoryItem& item, UnixMs at) {
  if (EnvironmentTable(db).find(item.environmentId) == nullptr) {
    return rowNotFound("environment", item.environmentId);
  }
  uint64_t seq = 1;
  {
    auto last = db.query(
        "SELECT seq FROM inventory WHERE environment_id = ? ORDER BY seq DESC "
        "LIMIT 1",
        item.environmentId);
    if (last.next()) seq = last.integer(0) + 1;
  }
  auto details = encodePairs(item.details);
  KJ_REQUIRE(item.state == InventoryItem::State::INTENDED || item.identity.size() > 0,
             "what was made has an identity");
  db.run("INSERT INTO inventory (" INVENTORY_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         item.environmentId, seq, item.runtime, item.step, item.kind, item.name, item.identity,
         wordOf(item.state, STATES), details, at, at);
  return seq;
}

Outcome InventoryTable::confirm(kj::StringPtr environmentId, uint64_t seq, kj::StringPtr identity,
                                kj::ArrayPtr<const Label> details, UnixMs at) {
  KJ_REQUIRE(identity.size() > 0, "what was made has an identity");
  {
    auto row = db.query(
        "SELECT identity, kind, name FROM inventory WHERE environment_id = ? AND "
        "seq = ? LIMIT 1",
        environmentId, seq);
    if (!row.next()) return noItem(environmentId, seq);
    auto known = row.text(0);
    if (known.size() > 0 && known != identity) {
      return Problem(ErrorCode::OWNERSHIP_MISMATCH,
                     kj::str(row.text(1), " '", row.text(2), "' is not the one that was made"))
          .because(kj::str("'", known, "' was recorded, '", identity, "' is there"));
    }
  }
  db.run(
      "UPDATE inventory SET identity = ?, state = 'made', details_values = ?, changed_ms = ? "
      "WHERE environment_id = ? AND seq = ?",
      identity, encodePairs(details), at, environmentId, seq);
  return nullptr;
}

Outcome InventoryTable::remove(kj::StringPtr environmentId, uint64_t seq) {
  if (db.run("DELETE FROM inventory WHERE environment_id = ? AND seq = ?", environmentId, seq) ==
      0) {
    return noItem(environmentId, seq);
  }
  return nullptr;
}

kj::Vector<InventoryItem> InventoryTable::list(kj::StringPtr environmentId, Order order) {
  kj::Vector<InventoryItem> result;
  auto row = order == Order::OLDEST_FIRST
                 ? db.query("SELECT " INVENTORY_COLUMNS
                            " FROM inventory WHERE environment_id = ? ORDER BY seq LIMIT 1000",
                            environmentId)
                 : db.query("SELECT " INVENTORY_COLUMNS
                            " FROM inventory WHERE environment_id = ? ORDER BY seq DESC LIMIT 1000",
                            environmentId);
  while (row.next())
    result.add(read(row));
  return result;
}

}  // namespace capstan
