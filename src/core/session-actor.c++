#include "core/session-actor.h"

namespace capstan {

SessionActor::SessionActor(kj::String id, kj::Vector<kj::Own<RunActor>> runsParam)
    : name(kj::mv(id)), runs(kj::mv(runsParam)) {
  KJ_REQUIRE(runs.size() > 0, "a session has a run");
}

SessionActor::SessionActor(kj::String id, kj::Own<RunActor> run): name(kj::mv(id)) {
  runs.add(kj::mv(run));
}

kj::Maybe<kj::Own<RunActor>> SessionActor::findRun(kj::StringPtr runId) {
  for (auto& each: runs) {
    if (each->id() == runId) return kj::addRef(*each);
  }
  return nullptr;
}

kj::Maybe<kj::Own<RunActor>> SessionActor::findRequest(kj::ArrayPtr<const kj::byte> requestId,
                                                       UnixMs notBefore) {
  if (requestId.size() == 0) return nullptr;
  for (auto& each: runs) {
    if (each->request() == requestId && each->requestedAt() >= notBefore) return kj::addRef(*each);
  }
  return nullptr;
}

void SessionActor::follow(kj::Own<RunActor> next) { runs.add(kj::mv(next)); }

void SessionActor::forgetRun(const RunActor& run) {
  KJ_REQUIRE(runs.back().get() != &run, "the latest run stays");
  kj::Vector<kj::Own<RunActor>> rest(runs.size());
  for (auto& each: runs) {
    if (each.get() != &run) rest.add(kj::mv(each));
  }
  runs = kj::mv(rest);
}

kj::Promise<Outcome> SessionActor::stop(kj::Duration grace, StopMode mode) {
  ++stopped;
  return run().stop(grace, mode);
}

kj::Promise<void> SessionActor::expireLogs(UnixMs before) {
  auto self = kj::addRef(*this);
  for (size_t i = 0; i < runs.size(); ++i)  // More may be added meanwhile.
    co_await kj::addRef(*runs[i])->expireLog(before);
}

kj::Promise<Outcome> SessionActor::discard() {
  auto self = kj::addRef(*this);
  Outcome first;
  for (size_t i = 0; i < runs.size(); ++i) {
    auto outcome = co_await kj::addRef(*runs[i])->discard();
    // A helper that is gone has nothing left of its runs: worth less than any other Problem.
    bool minor = true;
    KJ_IF_MAYBE (problem, first) {
      minor = problem->code == ErrorCode::UNREACHABLE;
    }
    if (minor && outcome != nullptr) first = kj::mv(outcome);
  }
  co_return kj::mv(first);
}

}  // namespace capstan
