#pragma once
// Executors and profiles as tables of the client interface.

#include "admin.capnp.h"
#include "core/catalog.h"
#include "rpc/guard.h"

namespace capstan {

// The catalog outlives both.
rpc::Table<rpc::Executor>::Client newExecutorTable(Catalog& catalog, Guard guard);
rpc::Table<rpc::Profile>::Client newProfileTable(Catalog& catalog, Guard guard);

// How many rows a page has for a client that asks for `asked`: 0 and what is above the most = the
// most.
inline size_t pageLimit(size_t asked) {
  constexpr size_t MOST_ROWS = 500;
  return asked == 0 ? MOST_ROWS : kj::min(MOST_ROWS, asked);
}

}  // namespace capstan
