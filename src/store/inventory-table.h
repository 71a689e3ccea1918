#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// What was made for each environment, in the order of the steps. Written before the step (intend)
// and after it (confirm), removed once the thing is confirmed to be gone. Only these identities are
// ever cleaned up.
class InventoryTable {
public:
  explicit InventoryTable(Connection& db): db(db) {}

  // A new item in the state it says (MADE needs an identity; INTENDED may have one that was chosen
  // beforehand); its number, the next of the environment's. notFound without the environment.
  Result<uint64_t> intend(const InventoryItem& item, UnixMs at);
  // The exact identity is known. Confirming the same identity again changes nothing; another one
  // than was confirmed before: ownershipMismatch. `details` replace the old ones.
  Outcome confirm(kj::StringPtr environmentId, uint64_t seq, kj::StringPtr identity,
                  kj::ArrayPtr<const Label> details, UnixMs at);
  // It is gone, or was never made.
  Outcome remove(kj::StringPtr environmentId, uint64_t seq);

  enum class Order { OLDEST_FIRST, NEWEST_FIRST };
  // All of an environment, at most 1000: a bring-up makes a handful.
  kj::Vector<InventoryItem> list(kj::StringPtr environmentId, Order order);

private:
  Connection& db;
};

}  // namespace capstan
