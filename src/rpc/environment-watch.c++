#include "rpc/environment-watch.h"

#include "rpc/convert.h"

namespace capstan {

namespace {

constexpr size_t IDS_AT_ONCE = 100;

class OneEnvironment final: public EnvironmentWatchSource, private ChangeListener {
public:
  explicit OneEnvironment(kj::Own<EnvironmentActor> environment): environment(kj::mv(environment)) {
    this->environment->changes().add(*this);
  }
  ~OneEnvironment() noexcept(false) { environment->changes().remove(*this); }

  uint64_t seq() override { return environment->changes().seq(); }
  kj::Vector<kj::String> idsAfter(kj::StringPtr after) override {
    kj::Vector<kj::String> ids;
    if (after.size() == 0) ids.add(kj::str(environment->id()));
    return ids;
  }
  bool write(kj::StringPtr, rpc::Watcher<rpc::EnvironmentStatus>::Change::Builder change) override {
    if (environment->isGone()) return false;
    capstan::write(change.initUpsert(), environment->status());
    return true;
  }
  kj::Maybe<Problem> end() override {
    if (!environment->isGone()) return nullptr;
    return Problem(ErrorCode::NOT_FOUND,
                   kj::str("the environment '", environment->id(), "' was removed"));
  }

private:
  kj::Own<EnvironmentActor> environment;

  void changed(kj::StringPtr id) override { queue().add(id); }
};

class AllEnvironments final: public EnvironmentWatchSource, private ChangeListener {
public:
  AllEnvironments(Supervisor& supervisor, kj::String owner)
      : supervisor(supervisor),
        owner(kj::mv(owner)),
        changes(kj::addRef(supervisor.changesOf(this->owner))) {
    changes->add(*this);
  }
  ~AllEnvironments() noexcept(false) { changes->remove(*this); }

  uint64_t seq() override { return changes->seq(); }
  kj::Vector<kj::String> idsAfter(kj::StringPtr after) override {
    kj::Vector<kj::String> ids;
    for (auto& environment: supervisor.list(owner, after, IDS_AT_ONCE))
      ids.add(kj::str(environment->id()));
    return ids;
  }
  bool write(kj::StringPtr id,
             rpc::Watcher<rpc::EnvironmentStatus>::Change::Builder change) override {
    auto found = supervisor.findById(id);
    if (found.is<Problem>()) return false;
    auto& environment = *found.get<kj::Own<EnvironmentActor>>();
    if (environment.isGone() || environment.owner() != owner) return false;
    capstan::write(change.initUpsert(), environment.status());
    return true;
  }
  kj::Maybe<Problem> end() override { return nullptr; }

private:
  Supervisor& supervisor;
  kj::String owner;
  kj::Own<ChangeHub> changes;

  void changed(kj::StringPtr id) override { queue().add(id); }
};

}  // namespace

kj::Own<EnvironmentWatchSource> watchOne(kj::Own<EnvironmentActor> environment) {
  return kj::heap<OneEnvironment>(kj::mv(environment));
}

kj::Own<EnvironmentWatchSource> watchAll(Supervisor& supervisor, kj::String owner) {
  return kj::heap<AllEnvironments>(supervisor, kj::mv(owner));
}

}  // namespace capstan
