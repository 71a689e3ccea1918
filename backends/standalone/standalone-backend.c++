#include "backends/standalone/standalone-backend.h"

#include "backends/standalone/place.h"
#include "base/encoding.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr uint16_t STEPS = 2;

class UnixDialer final: public StreamDialer {
public:
  UnixDialer(kj::Network& network, kj::String path): network(network), path(kj::mv(path)) {}

  kj::Promise<kj::Own<kj::AsyncIoStream>> dial() override {
    auto address = co_await network.parseAddress(kj::str("unix:", path));
    co_return co_await address->connect();
  }

private:
  kj::Network& network;
  kj::String path;
};

// Reports one step of the bring-up as it goes.
class Step {
public:
  Step(ProgressSink& sink, uint16_t index, kj::StringPtr name): sink(sink), index(index) {
    step.name = kj::str(name);
    step.status = PrepareStep::Status::RUNNING;
    step.startedAt = now();
    sink.report(step, index, STEPS);
  }
  void done() { finish(PrepareStep::Status::COMPLETED); }
  void failed(const Problem& problem) {
    step.error = kj::str(problem);
    finish(PrepareStep::Status::FAILED);
  }

private:
  ProgressSink& sink;
  uint16_t index;
  PrepareStep step;

  static UnixMs now() {
    return (kj::systemPreciseCalendarClock().now() - kj::UNIX_EPOCH) / kj::MILLISECONDS;
  }
  void finish(PrepareStep::Status status) {
    step.status = status;
    step.endedAt = now();
    sink.report(step, index, STEPS);
  }
};

}  // namespace

class StandaloneBackend::LocalAttachment final: public Attachment {
public:
  LocalAttachment(StandaloneBackend& backend, const HelperEntry& helper, kj::String environment,
                  kj::String workspace)
      : backend(backend),
        name(kj::str(helper.name)),
        socket(kj::str(helper.endpoint)),
        key(KJ_ASSERT_NONNULL(helper.credential).clone()),
        keyRotation(helper.rotation),
        identity(kj::heapArray<kj::byte>(helper.serverId)),
        environment(kj::mv(environment)),
        place(kj::mv(workspace)) {}

  kj::StringPtr helperKey() const override { return name; }
  kj::StringPtr generation() const override { return name; }
  kj::Own<StreamDialer> dialer() override {
    return kj::heap<UnixDialer>(backend.io.provider->getNetwork(), kj::str(socket));
  }
  Credential credential() const override { return key.clone(); }
  uint64_t rotation() const override { return keyRotation; }
  kj::Array<kj::byte> serverId() const override { return kj::heapArray<kj::byte>(identity); }
  kj::StringPtr workspace() const override { return place; }
  kj::String runDirectory(kj::StringPtr runId) const override {
    return kj::str(environment, "/runs/", runId);
  }
  kj::Array<ProcessVariable> inheritedVariables() const override {
    return KJ_MAP(each, backend.options.variables) {
      return ProcessVariable{kj::str(each.key), kj::str(each.value)};
    };
  }

private:
  StandaloneBackend& backend;
  kj::String name;
  kj::String socket;
  Credential key;
  uint64_t keyRotation;
  kj::Array<kj::byte> identity;
  kj::String environment;
  kj::String place;
};

bool StandaloneBackend::Helper::running() const {
  KJ_IF_MAYBE (own, child) {
    return (*own)->running();
  }
  KJ_IF_MAYBE (other, process) {
    return (*other)->running();
  }
  return false;
}

StandaloneBackend::StandaloneBackend(kj::AsyncIoContext& io, UvLoop& uv, Offload& offload,
                                     HelperFiles& files, Entropy& entropy, HelperBook& book,
                                     StandaloneOptions options)
    : io(io),
      uv(uv),
      offload(offload),
      files(files),
      entropy(entropy),
      book(book),
      options(kj::mv(options)),
      placeWork(offload) {}

StandaloneBackend::~StandaloneBackend() noexcept(false) {}

kj::String StandaloneBackend::environmentDirectory(kj::StringPtr environmentId) const {
  return kj::str(options.stateDirectory, "/environments/", environmentId);
}

kj::Promise<Health> StandaloneBackend::healthCheck() {
  Health health;
  auto found = files.find(HelperFiles::ownPlatform());
  if (found.is<Problem>()) {
    health.reason = kj::mv(found.get<Problem>());
    return kj::mv(health);
  }
  health.version = kj::mv(found.get<HelperFile>().note.build);
  if (access(options.stateDirectory.cStr(), W_OK | X_OK) < 0) {
    health.reason = Problem(ErrorCode::DENIED, kj::str("the state folder ", options.stateDirectory,
                                                       " cannot be written"))
                        .because(kj::str(strerror(errno)))
                        .retryable(RetryHint::AFTER_USER_ACTION);
    return kj::mv(health);
  }
  health.healthy = true;
  return kj::mv(health);
}

// ---- the place

namespace {

constexpr kj::StringPtr DIRECTORY_STEP = "inv.standalone.directory"_kj;
constexpr kj::StringPtr DIRECTORY = "directory"_kj;
constexpr kj::StringPtr HELPER = "helper"_kj;  // The detail that names the one of the place.
constexpr size_t MARK_BYTES = 10;

const InventoryItem* findDirectory(kj::ArrayPtr<const InventoryItem> inventory) {
  for (auto& item: inventory) {
    if (item.kind == DIRECTORY) return &item;
  }
  return nullptr;
}

// Empty: none was ever assigned.
kj::StringPtr helperOf(const InventoryItem& item) {
  for (auto& detail: item.details) {
    if (detail.key == HELPER) return detail.value;
  }
  return ""_kj;
}

PlaceFolder folderOf(const InventoryItem& item) {
  return PlaceFolder{kj::str(item.name), kj::str(item.identity)};
}

}  // namespace

// The folder with its mark: noted before it is made, so nobody else's is ever taken for it.
kj::Promise<Result<InventoryItem>> StandaloneBackend::ensurePlace(CreateRequest request,
                                                                  InventoryLog& log) {
  KJ_IF_MAYBE (directory, request.place.directory) {
    auto checked = co_await offload.run<Outcome>(
        [path = kj::str(*directory)]() mutable { return checkGivenWorkspace(kj::mv(path)); });
    KJ_IF_MAYBE (problem, checked) {
      co_return kj::mv(*problem);
    }
  }
  auto* known = findDirectory(request.place.inventory);
  if (known != nullptr) {
    auto folder = folderOf(*known);
    // Its maker may have been interrupted; once it was made, nothing makes up for its loss.
    bool finish = known->state == InventoryItem::State::INTENDED;
    bool ownWorkspace = request.place.directory == nullptr;
    auto look = [folder = folder.clone(), finish, ownWorkspace]() mutable {
      if (!finish) {
        KJ_IF_MAYBE (problem, checkKept(folder.clone(), ownWorkspace)) {
          return Outcome(kj::mv(*problem));
        }
      }
      return makePlace(kj::mv(folder));
    };
    auto outcome = co_await placeWork.run<Outcome>(kj::str(folder.path), kj::mv(look));
    if (outcome == nullptr && finish) {
      outcome = co_await log.confirm(known->seq, kj::str(folder.mark), kj::Array<Label>());
    }
    KJ_IF_MAYBE (problem, outcome) {
      co_return kj::mv(*problem);
    }
    co_return known->clone();
  }
  if (request.reuseRequired && request.place.directory == nullptr) {
    co_return Problem(ErrorCode::WORKSPACE_LOST, kj::str("the environment has no workspace yet"))
        .because(kj::str("the request asks for one that is there"))
        .at(kj::str("spec.workspace.reuseRequired"));
  }
  kj::FixedArray<kj::byte, MARK_BYTES> random;
  entropy.fill(random);
  PlaceFolder folder{environmentDirectory(request.place.environmentId), encodeHex(random)};
  InventoryItem item;
  item.step = kj::str(DIRECTORY_STEP);
  item.kind = kj::str(DIRECTORY);
  item.name = kj::str(folder.path);
  item.identity = kj::str(folder.mark);
  item.state = InventoryItem::State::INTENDED;
  auto noted = co_await log.intend(item.clone());
  if (noted.is<Problem>()) co_return kj::mv(noted.get<Problem>());
  auto made = co_await placeWork.run<Outcome>(
      kj::str(folder.path),
      [folder = folder.clone()]() mutable { return makePlace(kj::mv(folder)); });
  if (made == nullptr) {
    item.seq = noted.get<uint64_t>();
    KJ_IF_MAYBE (problem,
                 co_await log.confirm(item.seq, kj::str(folder.mark), kj::Array<Label>())) {
      co_return kj::mv(*problem);
    }
    co_return kj::mv(item);
  }
  // Take back what there may be of it; what cannot be taken back stays noted.
  auto left = co_await placeWork.run<kj::Vector<kj::String>>(
      kj::str(folder.path),
      [folder = folder.clone()]() mutable { return takeBackPlace(kj::mv(folder)); });
  if (left.size() == 0) {
    KJ_IF_MAYBE (problem, co_await log.forget(noted.get<uint64_t>())) {
      KJ_LOG(WARNING, "could not note that a folder is gone, a clean-up will", folder.path,
             *problem);
    }
  }
  co_return kj::mv(KJ_ASSERT_NONNULL(made));
}

kj::Maybe<Problem> StandaloneBackend::heldByAnother(const InventoryItem& item) const {
  // Nothing ever ran in a place that was not complete.
  if (item.state == InventoryItem::State::INTENDED) return nullptr;
  auto name = helperOf(item);
  for (auto& other: otherHelpers) {
    // One without a note may be of a version that made none.
    if (name.size() == 0 || other.key == name) return other.value.clone();
  }
  return nullptr;
}

kj::Promise<Outcome> StandaloneBackend::assignHelper(InventoryItem item, InventoryLog& log) {
  if (heldByAnother(item) != nullptr) {
    // Unless it has ended meanwhile.
    KJ_IF_MAYBE (problem, co_await refreshHelpers()) {
      co_return kj::mv(*problem);
    }
    KJ_IF_MAYBE (problem, heldByAnother(item)) {
      co_return kj::mv(*problem);
    }
  }
  kj::String name;
  KJ_IF_MAYBE (present, helper) {
    name = kj::str(present->entry.name);
  }
  if (name.size() > 0 && helperOf(item) != name) {
    auto details = kj::arr(Label{kj::str(HELPER), kj::str(name)});
    KJ_IF_MAYBE (problem, co_await log.confirm(item.seq, kj::mv(item.identity), kj::mv(details))) {
      co_return kj::mv(*problem);
    }
  }
  KJ_IF_MAYBE (present, helper) {
    if (present->entry.name == name) co_return nullptr;
  }
  // It ended, and another caller has begun to start the next one, before our turn came.
  co_return Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("the helper ended at once"))
      .from("agentctl", kj::String())
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

kj::Promise<Result<kj::Own<Attachment>>> StandaloneBackend::createInstance(CreateRequest request,
                                                                           ProgressSink& progress,
                                                                           InventoryLog& log) {
  auto path = environmentDirectory(request.place.environmentId);
  auto* known = findDirectory(request.place.inventory);
  if (known != nullptr) path = kj::str(known->name);
  auto workspace = kj::str(path, "/workspace");
  KJ_IF_MAYBE (directory, request.place.directory) {
    workspace = kj::str(*directory);
  }
  Step placing(progress, 0, "Create workspace");
  auto placed = co_await ensurePlace(kj::mv(request), log);
  KJ_IF_MAYBE (problem, placed.tryGet<Problem>()) {
    placing.failed(*problem);
    co_return kj::mv(*problem);
  }
  placing.done();

  Step helping(progress, 1, "Start helper");
  auto outcome = co_await ensureHelper();
  if (outcome == nullptr) {
    outcome = co_await assignHelper(kj::mv(placed.get<InventoryItem>()), log);
  }
  KJ_IF_MAYBE (problem, outcome) {
    helping.failed(*problem);
    co_return kj::mv(*problem);
  }
  helping.done();
  co_return attach(kj::mv(path), kj::mv(workspace));
}

// ---- the end

// The helper serves all environments, so there is no compute of one to end.
kj::Promise<StopReport> StandaloneBackend::stopInstance(PlaceRecord, StopRequest) {
  StopReport report;
  report.stopped = true;
  return kj::mv(report);
}

kj::Promise<CleanupReport> StandaloneBackend::cleanUp(PlaceRecord place, CleanupScope scope,
                                                      ProgressSink&, InventoryLog& log) {
  CleanupReport report;
  bool keepsWorkspace = scope == CleanupScope::ALL_KEEP_WORKSPACE && place.directory == nullptr;
  KJ_IF_MAYBE (directory, place.directory) {
    report.leftInPlace.add(kj::str(*directory));
  }
  if (scope == CleanupScope::COMPUTE) co_return report;
  for (size_t i = place.inventory.size(); i-- > 0;) {
    auto& item = place.inventory[i];
    if (item.kind != DIRECTORY) {
      report.leftovers.add(
          kj::str(item.name, ": of the kind '", item.kind, "', which this version cannot remove"));
      continue;
    }
    auto left = co_await placeWork.run<kj::Vector<kj::String>>(
        kj::str(item.name), [folder = folderOf(item), keepsWorkspace]() mutable {
          return removePlace(kj::mv(folder), keepsWorkspace);
        });
    bool removed = left.size() == 0;
    for (auto& line: left)
      report.leftovers.add(kj::mv(line));
    if (!removed) continue;
    if (keepsWorkspace) report.leftInPlace.add(kj::str(item.name, "/workspace"));
    KJ_IF_MAYBE (problem, co_await log.forget(item.seq)) {
      report.leftovers.add(
          kj::str(item.name, ": it is gone, which could not be noted: ", *problem));
      continue;
    }
    if (!keepsWorkspace) continue;
    // Last: with the note, the mark is what a clean-up that is taken up goes by.
    auto released = co_await placeWork.run<Outcome>(
        kj::str(item.name),
        [folder = folderOf(item)]() mutable { return releasePlace(kj::mv(folder)); });
    KJ_IF_MAYBE (problem, released) {
      report.warnings.add(kj::str(*problem));
    }
  }
  co_return report;
}

kj::Promise<kj::Vector<Recovered>> StandaloneBackend::recoverInstances(
    kj::Array<PlaceRecord> places) {
  auto unknown = co_await refreshHelpers();
  auto workspaces = co_await lookAtWorkspaces(places);
  kj::Vector<Recovered> result(places.size());
  for (auto i: kj::indices(places)) {
    auto& place = places[i];
    Recovered each;
    each.environmentId = kj::str(place.environmentId);
    each.workspace = workspaces[i];
    auto* folder = findDirectory(place.inventory);
    KJ_IF_MAYBE (problem, unknown) {
      each.kind = Recovered::Kind::UNKNOWN;
      each.why = problem->clone();
    } else if (folder == nullptr) {
      // Nothing can run where no folder was ever noted.
      each.kind = Recovered::Kind::GONE;
    } else {
      answer(place, *folder, each);
    }
    result.add(kj::mv(each));
  }
  co_return kj::mv(result);
}

kj::Promise<kj::Array<HealthAxis>> StandaloneBackend::lookAtWorkspaces(
    kj::ArrayPtr<const PlaceRecord> places) {
  struct Look {
    kj::Maybe<PlaceFolder> folder;  // Null = none was ever complete.
    kj::Maybe<kj::String> directory;
  };
  auto looks = KJ_MAP(place, places) {
    Look look;
    auto* folder = findDirectory(place.inventory);
    if (folder != nullptr && folder->state == InventoryItem::State::MADE) {
      look.folder = folderOf(*folder);
    }
    look.directory = place.directory.map([](const kj::String& path) { return kj::str(path); });
    return look;
  };
  return offload.run<kj::Array<HealthAxis>>([looks = kj::mv(looks)]() mutable {
    return KJ_MAP(look, looks) {
      auto seen = HealthAxis::UNKNOWN;
      auto note = [&seen](Outcome&& outcome) {
        KJ_IF_MAYBE (problem, outcome) {
          bool lost = problem->code == ErrorCode::WORKSPACE_LOST;
          seen = lost ? HealthAxis::UNAVAILABLE : HealthAxis::UNKNOWN;
          return;
        }
        seen = HealthAxis::RETAINED;
      };
      KJ_IF_MAYBE (directory, look.directory) {
        note(checkGivenWorkspace(kj::mv(*directory)));
      } else KJ_IF_MAYBE (folder, look.folder) {
        note(checkKept(kj::mv(*folder), true));
      }
      return seen;
    };
  });
}

void StandaloneBackend::answer(const PlaceRecord& place, const InventoryItem& folder,
                               Recovered& result) {
  KJ_IF_MAYBE (problem, heldByAnother(folder)) {
    result.kind = Recovered::Kind::UNKNOWN;
    result.why = kj::mv(*problem);
    return;
  }
  result.kind = Recovered::Kind::GONE;
  KJ_IF_MAYBE (present, helper) {
    auto name = helperOf(folder);
    if (name.size() > 0 && name != present->entry.name) return;
    auto path = kj::str(folder.name);
    auto workspace = kj::str(path, "/workspace");
    KJ_IF_MAYBE (directory, place.directory) {
      workspace = kj::str(*directory);
    }
    result.kind = Recovered::Kind::ATTACHED;
    result.attachment = attach(kj::mv(path), kj::mv(workspace));
  }
}

kj::Own<Attachment> StandaloneBackend::attach(kj::String environment, kj::String workspace) {
  return kj::heap<LocalAttachment>(*this, KJ_ASSERT_NONNULL(helper).entry, kj::mv(environment),
                                   kj::mv(workspace));
}

// The helper outlives the daemon, with whatever runs under it and the logs of what did.
kj::Promise<void> StandaloneBackend::close() { return kj::READY_NOW; }

}  // namespace capstan
