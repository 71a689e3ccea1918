#pragma once
// The schema's `Bulk`: attached output, stdin and dialling, over a connection of their own.

#include "agentctl/server.h"

namespace capstan {

// `server` must outlive it. Dropping it ends everything that was started through it.
agentctl::Bulk::Client newBulkCap(HelperServer& server, kj::Own<HelperPeer> peer);

}  // namespace capstan
