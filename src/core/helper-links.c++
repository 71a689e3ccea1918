#include "core/helper-links.h"

#include "core/helper-book.h"

namespace capstan {

HelperLinks::Entry& HelperLinks::entryOf(kj::StringPtr name) {
  return *entries.findOrCreate(
      name, [&]() { return decltype(entries)::Entry{kj::str(name), kj::heap<Entry>()}; });
}

HelperKey HelperLinks::keyFor(const Entry& entry, HelperKey own) {
  KJ_IF_MAYBE (known, entry.key) {
    return HelperKey{known->credential.clone(), known->rotation,
                     kj::heapArray<kj::byte>(known->serverId)};
  }
  return own;
}

kj::Promise<Result<kj::Own<AgentLink>>> HelperLinks::get(Attachment& attachment) {
  auto& entry = entryOf(attachment.helperKey());
  KJ_IF_MAYBE (link, entry.link) {
    if (!(*link)->isLost()) co_return kj::addRef(**link);
    entry.link = nullptr;
  }
  if (!entry.busy) {
    HelperKey own{attachment.credential(), attachment.rotation(), attachment.serverId()};
    entry.failure = nullptr;
    entry.busy = true;
    entry.opening = open(attachment.dialer(), kj::str(attachment.helperKey()),
                         keyFor(entry, kj::mv(own)), entry)
                        .fork();
  }
  co_await KJ_ASSERT_NONNULL(entry.opening).addBranch();

  // Entries are never erased, so `entry` still stands.
  KJ_IF_MAYBE (problem, entry.failure) {
    co_return problem->clone();
  }
  KJ_IF_MAYBE (link, entry.link) {
    co_return kj::addRef(**link);
  }
  co_return Problem(ErrorCode::UNREACHABLE, kj::str("the helper was lost while it was reached"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

// What is durable opens the helper from then on, also when its confirmation is lost. Entries are
// never erased.
KeepToken HelperLinks::keeperOf(kj::String name, Entry& entry) {
  return [this, name = kj::mv(name), &entry](const HelperInfo& helper, const Credential& token,
                                             uint64_t rotation) {
    auto words = KJ_MAP(each, helper.capabilities) { return kj::str(each); };
    HelperKey next{token.clone(), rotation, kj::heapArray<kj::byte>(helper.serverId)};
    return services.helpers
        .keepToken(kj::str(name), kj::heapArray<kj::byte>(helper.serverId), kj::str(helper.build),
                   kj::mv(words), token.clone(), rotation)
        .then([&entry, next = kj::mv(next)](Outcome&& outcome) mutable {
          if (outcome == nullptr) entry.key = kj::mv(next);
          return kj::mv(outcome);
        });
  };
}

kj::Promise<void> HelperLinks::open(kj::Own<StreamDialer> dialer, kj::String name, HelperKey key,
                                    Entry& entry) {
  KJ_DEFER(entry.busy = false);
  auto opened = co_await AgentLink::open(services.timer, kj::mv(dialer), kj::mv(key),
                                         keeperOf(kj::mv(name), entry), services.limits.deadlines);
  if (opened.is<Problem>()) {
    entry.failure = kj::mv(opened.get<Problem>());
    co_return;
  }
  auto link = kj::mv(opened.get<kj::Own<AgentLink>>());
  entry.key = link->key();
  entry.link = kj::mv(link);
}

kj::Promise<Result<kj::Own<AgentLink>>> HelperLinks::openBeside(Attachment& attachment) {
  auto& entry = entryOf(attachment.helperKey());
  auto name = kj::str(attachment.helperKey());
  auto dialer = attachment.dialer();
  HelperKey own{attachment.credential(), attachment.rotation(), attachment.serverId()};
  while (entry.busy)
    co_await KJ_ASSERT_NONNULL(entry.opening).addBranch();
  entry.busy = true;
  auto opening = kj::refcounted<Opening>();
  entry.opening =
      openSecond(kj::mv(dialer), kj::mv(name), kj::mv(own), entry, kj::addRef(*opening)).fork();
  co_await KJ_ASSERT_NONNULL(entry.opening).addBranch();
  co_return kj::mv(KJ_ASSERT_NONNULL(opening->result));
}

// Ends also when its caller has gone: a rotation is not left half done.
kj::Promise<void> HelperLinks::openSecond(kj::Own<StreamDialer> dialer, kj::String name,
                                          HelperKey own, Entry& entry, kj::Own<Opening> opening) {
  KJ_DEFER(entry.busy = false);
  auto& deadlines = services.limits.deadlines;
  auto key = keyFor(entry, kj::mv(own));
  auto durable = key.rotation;
  kj::Maybe<HelperKey> present;
  KJ_IF_MAYBE (link, entry.link) {
    if (!(*link)->isLost()) present = (*link)->key();
  }
  auto keep = keeperOf(kj::mv(name), entry);
  KJ_IF_MAYBE (held, present) {
    // One that was kept and never confirmed stands in the store: it must go on to be good.
    auto next = kj::max(durable, held->rotation + 1);
    opening->result = co_await AgentLink::openBeside(services.timer, kj::mv(dialer), kj::mv(*held),
                                                     next, kj::mv(keep), deadlines);
  } else {
    opening->result = co_await AgentLink::open(services.timer, kj::mv(dialer), kj::mv(key),
                                               kj::mv(keep), deadlines);
  }
}

void HelperLinks::install(kj::StringPtr helperKey, kj::Own<AgentLink> link) {
  entryOf(helperKey).link = kj::mv(link);
}

kj::Vector<kj::Own<AgentLink>> HelperLinks::live() {
  kj::Vector<kj::Own<AgentLink>> result;
  for (auto& each: entries) {
    KJ_IF_MAYBE (link, each.value->link) {
      if (!(*link)->isLost()) result.add(kj::addRef(**link));
    }
  }
  return result;
}

}  // namespace capstan
