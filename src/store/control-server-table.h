#pragma once

#include "domain/records.h"
#include "store/database-connection.h"

namespace capstan {

// The helpers that serve local environments: at most one current, any number draining.
class ControlServerTable {
public:
  explicit ControlServerTable(Connection& db): db(db) {}

  kj::Maybe<ControlServerRecord> find(kj::StringPtr id);
  kj::Maybe<ControlServerRecord> current();
  // A new record as the current one; the one before it drains from now on. alreadyExists for a
  // known id.
  Outcome add(const ControlServerRecord& record);
  // All but its state, endpoint, log and creation. notFound if there is no such one.
  Outcome change(const ControlServerRecord& record);
  // The current one takes no new work; none is current then. notFound if there is no such one.
  Outcome drain(kj::StringPtr id);
  // It has ended.
  Outcome remove(kj::StringPtr id);
  // In order of their ids, after `after`, at most `limit`.
  kj::Vector<ControlServerRecord> list(kj::StringPtr after, size_t limit);

private:
  Connection& db;
};

}  // namespace capstan
