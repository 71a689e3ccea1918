#pragma once

#include "agent-link/link.h"
#include "backends/backend.h"

namespace capstan::test {

// A link to the helper of a place, by what the attachment says.
inline kj::Promise<Result<kj::Own<AgentLink>>> openLink(kj::Timer& timer, Attachment& attachment) {
  return AgentLink::open(timer, attachment.dialer(), attachment.credential(), Deadlines());
}
// By another credential.
inline kj::Promise<Result<kj::Own<AgentLink>>> openLink(kj::Timer& timer, Attachment& attachment,
                                                        Credential credential) {
  return AgentLink::open(timer, attachment.dialer(), kj::mv(credential), Deadlines());
}

}  // namespace capstan::test
