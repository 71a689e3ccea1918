#include "rpc/watch.h"

namespace capstan {

namespace {

// Ids that may wait for one watcher: about 64 KiB.
constexpr size_t MOST_WAITING = 1000;

}  // namespace

void WatchQueue::add(kj::StringPtr id) {
  if (anew || waiting.find(id) != nullptr) {
    ++merged;
    return;
  }
  if (waiting.size() == MOST_WAITING) {
    merged += waiting.size() + 1;
    waiting.clear();
    anew = true;
  } else {
    waiting.insert(kj::str(id));
  }
  wakeUp();
}

kj::Maybe<kj::String> WatchQueue::take() {
  if (waiting.size() == 0) return nullptr;
  const kj::String* next = nullptr;
  auto behind = waiting.range(kj::str(last), kj::str("\xff"));
  for (auto& id: behind) {
    if (id == last) continue;
    next = &id;
    break;
  }
  last = kj::str(next == nullptr ? *waiting.begin() : *next);
  waiting.eraseMatch(last);
  return kj::str(last);
}

bool WatchQueue::takeAnew() {
  bool was = anew;
  anew = false;
  return was;
}

kj::Promise<void> WatchQueue::onMore() {
  if (anew || waiting.size() > 0) return kj::READY_NOW;
  auto pair = kj::newPromiseAndFulfiller<void>();
  wake = kj::mv(pair.fulfiller);
  return kj::mv(pair.promise);
}

void WatchQueue::wakeUp() {
  KJ_IF_MAYBE (fulfiller, wake) {
    (*fulfiller)->fulfill();
    wake = nullptr;
  }
}

}  // namespace capstan
