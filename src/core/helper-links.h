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

  // A link of its own, beside the one that get() gives, which goes on to serve until the new one's
  // confirm(). Its token is durable. get() gives the present one until install(); without that
  // the result is closed when dropped, and whatever opens the helper next takes its token. Openings
  // of one helper take turns. The attachment may go once the promise has resolved.
  kj::Promise<Result<kj::Own<AgentLink>>> openBeside(Attachment& attachment);
  // get() gives `link` for `helperKey` from now on. Whoever has the one before keeps it.
  void install(kj::StringPtr helperKey, kj::Own<AgentLink> link);

  // Every live link, for an orderly end.
  kj::Vector<kj::Own<AgentLink>> live();

private:
  // One opening, for whoever waits for it; nobody may, by the time it is done.
  struct Opening final: public kj::Refcounted {
    kj::Maybe<Result<kj::Own<AgentLink>>> result;
  };
  struct Entry {
    kj::Maybe<kj::Own<AgentLink>> link;
    kj::Maybe<HelperKey> key;                    // Once taken over, the attachment's is spent.
    kj::Maybe<Problem> failure;                  // Of the last opening for get().
    bool busy = false;                           // An opening is in progress.
    kj::Maybe<kj::ForkedPromise<void>> opening;  // Replaced only while none is in progress.
  };

  Services& services;
  kj::HashMap<kj::String, kj::Own<Entry>> entries;

  Entry& entryOf(kj::StringPtr name);
  static HelperKey keyFor(const Entry& entry, HelperKey own);
  KeepToken keeperOf(kj::String name, Entry& entry);
  kj::Promise<void> open(kj::Own<StreamDialer> dialer, kj::String name, HelperKey key,
                         Entry& entry);
  kj::Promise<void> openSecond(kj::Own<StreamDialer> dialer, kj::String name, HelperKey key,
                               Entry& entry, kj::Own<Opening> opening);
};

}  // namespace capstan
