#include "conformance/backend/memory-book.h"

#include <kj/debug.h>

namespace capstan::test {

namespace {

HelperEntry cloneEntry(const HelperEntry& entry) {
  return HelperEntry{kj::str(entry.name),
                     kj::str(entry.endpoint),
                     entry.pid,
                     entry.startTicks,
                     kj::str(entry.bootId),
                     kj::heapArray<kj::byte>(entry.serverId),
                     entry.credential.map([](const Credential& each) { return each.clone(); }),
                     entry.rotation,
                     kj::str(entry.logPath),
                     nullptr};
}

}  // namespace

// What is written is written at once, and told a turn later.
kj::Promise<Result<kj::Maybe<HelperEntry>>> MemoryBook::current() {
  co_await kj::evalLater([]() {});
  if (written.size() == 0) co_return kj::Maybe<HelperEntry>(nullptr);
  auto entry = cloneEntry(written.back());
  if (isLocked) {
    entry.credential = nullptr;
    entry.locked = Problem(ErrorCode::DENIED, kj::str("the secret cannot be opened"))
                       .from("agentctl", kj::str("credential_unavailable"));
  }
  co_return kj::Maybe<HelperEntry>(kj::mv(entry));
}

kj::Promise<Result<kj::Vector<HelperEntry>>> MemoryBook::draining() {
  co_await kj::evalLater([]() {});
  kj::Vector<HelperEntry> result;
  for (size_t i = 0; i + 1 < written.size(); ++i) {
    result.add(cloneEntry(written[i]));
    result.back().credential = nullptr;
  }
  co_return kj::mv(result);
}

kj::Promise<Outcome> MemoryBook::add(HelperEntry entry) {
  KJ_REQUIRE(entry.name.size() > 0 && entry.endpoint.size() > 0 && entry.pid == 0 &&
             entry.credential != nullptr);
  written.add(kj::mv(entry));
  co_await kj::evalLater([]() {});
  co_return nullptr;
}

kj::Promise<Outcome> MemoryBook::started(kj::String name, int64_t pid, uint64_t startTicks,
                                         kj::String bootId) {
  bool found = false;
  for (auto& each: written) {
    if (each.name != name) continue;
    found = true;
    each.pid = pid;
    each.startTicks = startTicks;
    each.bootId = kj::mv(bootId);
    break;
  }
  co_await kj::evalLater([]() {});
  if (!found) co_return Problem(ErrorCode::NOT_FOUND, kj::str("no helper ", name));
  co_return nullptr;
}

kj::Promise<Outcome> MemoryBook::remove(kj::String name) {
  kj::Vector<HelperEntry> left;
  for (auto& each: written) {
    if (each.name != name) left.add(kj::mv(each));
  }
  written = kj::mv(left);
  co_await kj::evalLater([]() {});
  co_return nullptr;
}

size_t MemoryBook::dropUnknown() {
  kj::Vector<HelperEntry> left;
  for (auto& each: written) {
    if (each.pid != 0) left.add(kj::mv(each));
  }
  auto dropped = written.size() - left.size();
  written = kj::mv(left);
  return dropped;
}

}  // namespace capstan::test
