#include "core/change-hub.h"

namespace capstan {

ChangeHub::ChangeHub() { arm(); }
ChangeHub::~ChangeHub() noexcept(false) {}

void ChangeHub::arm() {
  auto pair = kj::newPromiseAndFulfiller<void>();
  wake = kj::mv(pair.fulfiller);
  woken = pair.promise.fork();
}

void ChangeHub::changed() {
  ++count;
  auto waiting = kj::mv(wake);
  arm();
  waiting->fulfill();
}

kj::Promise<void> ChangeHub::onChangeAfter(uint64_t seen) {
  if (count > seen) return kj::READY_NOW;
  return woken.addBranch();
}

}  // namespace capstan
