#include "core/helper-links.h"

namespace capstan {

kj::Promise<Result<kj::Own<AgentLink>>> HelperLinks::get(Attachment& attachment) {
  auto& entry = *entries.findOrCreate(attachment.helperKey(), [&]() {
    return decltype(entries)::Entry{kj::str(attachment.helperKey()), kj::heap<Entry>()};
  });
  KJ_IF_MAYBE (link, entry.link) {
    if (!(*link)->isLost()) co_return kj::addRef(**link);
    entry.link = nullptr;
  }
  if (!entry.busy) {
    auto credential = attachment.credential();
    KJ_IF_MAYBE (token, entry.token) {
      credential = token->clone();
    }
    entry.failure = nullptr;
    entry.busy = true;
    entry.opening = open(attachment.dialer(), kj::mv(credential), entry).fork();
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

kj::Promise<void> HelperLinks::open(kj::Own<StreamDialer> dialer, Credential credential,
                                    Entry& entry) {
  KJ_DEFER(entry.busy = false);
  auto opened = co_await AgentLink::open(services.timer, kj::mv(dialer), kj::mv(credential),
                                         services.limits.deadlines);
  if (opened.is<Problem>()) {
    entry.failure = kj::mv(opened.get<Problem>());
    co_return;
  }
  auto link = kj::mv(opened.get<kj::Own<AgentLink>>());
  entry.token = link->credential();
  entry.link = kj::mv(link);
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
