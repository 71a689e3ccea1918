#pragma once

#include "agent-link/link.h"
#include "backends/backend.h"
#include "core/services.h"

#include <kj/map.h>

namespace capstan {

// One authenticated link per helper, shared by all environments that the helper serves. Opened
// once however many ask; forgotten when lost, so that the next caller opens a new one.
class HelperLinks {
public:
  explicit HelperLinks(Services& services): services(services) {}
  KJ_DISALLOW_COPY_AND_MOVE(HelperLinks);

  // The link to the attachment's helper. The attachment may go once the promise has resolved.
  // Dropping the promise does not end an opening that others wait for.
  kj::Promise<Result<kj::Own<AgentLink>>> get(Attachment& attachment);

  // Every live link, for an orderly end.
  kj::Vector<kj::Own<AgentLink>> live();

private:
  struct Entry {
    kj::Maybe<kj::Own<AgentLink>> link;
    kj::Maybe<HelperKey> key;                    // Once taken over, the attachment's is spent.
    kj::Maybe<Problem> failure;                  // Of the last opening.
    bool busy = false;                           // An opening is in progress.
    kj::Maybe<kj::ForkedPromise<void>> opening;  // Replaced only while none is in progress.
  };

  Services& services;
  kj::HashMap<kj::String, kj::Own<Entry>> entries;

  KeepToken keeperOf(kj::String name, Entry& entry);
  kj::Promise<void> open(kj::Own<StreamDialer> dialer, kj::String name, HelperKey key,
                         Entry& entry);
};

}  // namespace capstan
