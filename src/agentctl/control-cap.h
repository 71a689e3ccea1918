#pragma once
// The schema's `Control` and `Instance`, for a connection that has proved a credential.

#include "agentctl/server.h"

namespace capstan {

// While it lives the helper has an owner. `server` must outlive it.
agentctl::Control::Client newControlCap(HelperServer& server, kj::Own<HelperPeer> peer);

}  // namespace capstan
