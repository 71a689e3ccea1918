#pragma once

#include "admin.capnp.h"
#include "rpc/frontend.h"
#include "rpc/guard.h"

namespace capstan {

// Administration of the daemon.
rpc::Admin::Client newAdminCap(Frontend& frontend, Guard guard);

}  // namespace capstan
