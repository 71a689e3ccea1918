#pragma once

#include "agent-link/link.h"
#include "backends/backend.h"

namespace capstan::test {

// A link to the helper of a place, by `key`; its tokens are kept nowhere.
inline kj::Promise<Result<kj::Own<AgentLink>>> openLink(kj::Timer& timer, Attachment& attachment,
                                                        HelperKey key) {
  return AgentLink::open(
      timer, attachment.dialer(), kj::mv(key),
      [](const HelperInfo&, const Credential&, uint64_t) -> kj::Promise<Outcome> {
        return Outcome();
      },
      Deadlines());
}
// By what the attachment says.
inline kj::Promise<Result<kj::Own<AgentLink>>> openLink(kj::Timer& timer, Attachment& attachment) {
  return openLink(timer, attachment,
                  HelperKey{attachment.credential(), attachment.rotation(), attachment.serverId()});
}
// By another credential.
inline kj::Promise<Result<kj::Own<AgentLink>>> openLink(kj::Timer& timer, Attachment& attachment,
                                                        Credential credential) {
  return openLink(timer, attachment, HelperKey{kj::mv(credential), 0, nullptr});
}

}  // namespace capstan::test
