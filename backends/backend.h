#pragma once
// What a runtime must do, and no more: make the place, put agentctl there, reach it with a byte
// stream, remove it. Everything that is the same everywhere is served by agentctl and used by core
// without knowing the runtime.

#include "base/credential.h"
#include "base/problem.h"
#include "base/stream-dialer.h"
#include "domain/environment.h"
#include "domain/launch-rules.h"
#include "domain/records.h"

#include <kj/async.h>
#include <kj/refcount.h>

namespace capstan {

class RemoteStatusProvider;
class RemoteSessionResumer;
class RemoteInstanceRefresher;
class PortDialer;
class ReverseListener;
class ConnectionTester;
class InteractiveRunner;

// What is true of every environment of a runtime.
struct Traits {
  bool requiresCloneUrl = false;       // Work is cloned there; a local directory cannot be used.
  bool appliesPreferredShell = false;  // The user's preferred shell stands for the profile's.
  bool alwaysResumable = false;        // Resumable without a token of the agent's.
  bool terminal = true;
  bool isolates = false;  // From the daemon's own user.
};

// The answer of a health check: "not reachable" is an answer, not an exception.
struct Health {
  bool healthy = false;
  kj::String version;
  kj::Maybe<Problem> reason;  // Null when healthy.
};

// Where steps of long work are reported. Never waits for anybody.
class ProgressSink {
public:
  virtual ~ProgressSink() noexcept(false) = default;
  virtual void report(const PrepareStep& step, uint16_t index, uint16_t total) = 0;
};

// Where a backend writes down what it makes for one environment. Every promise resolves when the
// note is durable, so that a crash at any step leaves an item from which the thing can be found and
// finished or removed. A Problem (the store takes no writes) means: do not go on, and take nothing
// back that could not be forgotten either. The log outlives
// the promise of the call it was given to. Dropping a promise leaves the note to be written.
class InventoryLog {
public:
  virtual ~InventoryLog() noexcept(false) = default;

  // Before a thing is made: state INTENDED, with an identity if that can be chosen beforehand. Or
  // MADE for one that was found. `item` says step, kind, name and details; the rest is filled in.
  // Returns the item's number.
  virtual kj::Promise<Result<uint64_t>> intend(InventoryItem item) = 0;
  // It exists and `identity` is exact. `details` replace the old ones.
  virtual kj::Promise<Outcome> confirm(uint64_t seq, kj::String identity,
                                       kj::Array<Label> details) = 0;
  // It is confirmed to be gone, or was never made.
  virtual kj::Promise<Outcome> forget(uint64_t seq) = 0;
};

// An environment as its runtime knows it.
struct PlaceRecord {
  kj::String environmentId;
  kj::String taskId;
  kj::Array<Label> executorConfig;
  kj::Array<Label> profileConfig;
  kj::Maybe<kj::String> directory;      // The user's workspace; null = one of ours.
  kj::Vector<InventoryItem> inventory;  // What was made so far, oldest first.
};

// What a backend makes an environment from.
struct CreateRequest {
  PlaceRecord place;
  kj::String taskTitle;
  bool reuseRequired = false;  // workspaceLost rather than making a new workspace.
};

// The proof that an environment's place exists, and the way to its helper.
class Attachment {
public:
  virtual ~Attachment() noexcept(false) = default;

  // Names the helper: attachments with equal keys reach the same one, over one link.
  virtual kj::StringPtr helperKey() const = 0;
  // Tells the compute from what stood in its place before, as RuntimeObserver's. Not empty.
  virtual kj::StringPtr generation() const = 0;
  // A way to the helper, also after a loss. The result may outlive the attachment.
  virtual kj::Own<StreamDialer> dialer() = 0;
  // What opens the helper: what it was started with, or the token of `rotation()`. Good for the
  // first link of this daemon only.
  virtual Credential credential() const = 0;
  virtual uint64_t rotation() const { return 0; }
  // Whose identity it must prove; empty = whoever holds the credential.
  virtual kj::Array<kj::byte> serverId() const { return nullptr; }
  // Absolute, inside the environment.
  virtual kj::StringPtr workspace() const = 0;
  // Where the helper keeps what belongs to run `runId`; absolute, inside the environment.
  virtual kj::String runDirectory(kj::StringPtr runId) const = 0;
  // What a process there starts from, before Capstan's and the launch's variables.
  virtual kj::Array<ProcessVariable> inheritedVariables() const = 0;
};

// A helper that serves many environments and outlives the daemon, as it is written down.
struct HelperEntry {
  kj::String name;      // Ours; the helperKey() of its attachments.
  kj::String endpoint;  // Where it listens.
  int64_t pid = 0;      // 0 = not known yet.
  uint64_t startTicks = 0;
  kj::String bootId;
  kj::Array<kj::byte> serverId;  // Empty until it was linked once.
  // Null when it cannot be read; `locked` says why.
  kj::Maybe<Credential> credential;
  uint64_t rotation = 0;  // 0 = the credential is what it was started with.
  kj::String logPath;
  // Its upstreamCode is credential_unavailable.
  kj::Maybe<Problem> locked;
};

// Where a backend writes down such a helper. Promises resolve when the note is durable.
class HelperBook {
public:
  virtual ~HelperBook() noexcept(false) = default;

  // The one that takes new work; null = none.
  virtual kj::Promise<Result<kj::Maybe<HelperEntry>>> current() = 0;
  // Those that did before, and are not removed. Without their credentials.
  virtual kj::Promise<Result<kj::Vector<HelperEntry>>> draining() = 0;
  // Before it is started, with its credential. It is the current one from then on.
  virtual kj::Promise<Outcome> add(HelperEntry entry) = 0;
  virtual kj::Promise<Outcome> started(kj::String name, int64_t pid, uint64_t startTicks,
                                       kj::String bootId) = 0;
  // It is confirmed not to run, or never did. An unknown one is fine.
  virtual kj::Promise<Outcome> remove(kj::String name) = 0;
};

struct StopRequest {
  StopMode mode = StopMode::GRACEFUL;
  kj::String reason;             // For people and logs; may be empty.
  bool agentStopFailed = false;  // Some process did not end on request: escalate.
  kj::Duration deadline = 2 * kj::MINUTES;
};

// What a stop of a place came to. Nothing is removed by it, whatever it says.
struct StopReport {
  bool stopped = false;        // Also when there was nothing to stop.
  kj::Maybe<Problem> problem;  // Why not; worth a retry.
};

// What became of one environment while no daemon looked after it.
struct Recovered {
  enum class Kind {
    ATTACHED,  // Its helper is there: `attachment`.
    GONE,      // Its helper is confirmed not to run any more.
    UNKNOWN,   // It cannot be told: nothing may be replaced. `why` says the reason.
  };
  kj::String environmentId;
  Kind kind = Kind::UNKNOWN;
  kj::Maybe<kj::Own<Attachment>> attachment;
  kj::Maybe<Problem> why;
  // RETAINED or UNAVAILABLE only when it was looked for; a record of it proves neither.
  HealthAxis workspace = HealthAxis::UNKNOWN;
};

enum class CleanupScope {
  COMPUTE,             // Files stay.
  ALL,                 // Everything we made goes.
  ALL_KEEP_WORKSPACE,  // Everything but the workspace, which is the user's from then on: reported
                       // as left in place, and forgotten.
};

// What a clean-up did not remove.
struct CleanupReport {
  kj::Vector<kj::String> leftInPlace;  // On purpose: the user's. One a line.
  kj::Vector<kj::String> leftovers;    // Ours, not removed: each with its reason. Worth a retry.
  kj::Vector<kj::String> warnings;     // What went wrong on the way, and is done with.
};

// Told of what happens to environments without anybody's request.
class RuntimeObserver {
public:
  virtual ~RuntimeObserver() noexcept(false) = default;

  enum class Change {
    AVAILABLE,  // It can be reached.
    DEGRADED,   // It is there and something is wrong: no process of it is called lost.
    LOST,       // Its compute is confirmed to be gone; the files may be there.
  };
  // `generation` tells the compute from what stood in its place before; `cause` may be null for
  // AVAILABLE only. May repeat what was said before.
  virtual void changed(kj::StringPtr environmentId, kj::StringPtr generation, Change change,
                       kj::Maybe<const Problem&> cause) = 0;
};

// One runtime. Owned by whoever registered it; outlives every promise and attachment it gave. What
// is passed by reference to a method outlives the promise of that call.
class Backend {
public:
  virtual ~Backend() noexcept(false) = default;

  // "standalone", "docker", ...
  virtual kj::StringPtr name() const = 0;
  virtual Traits traits() const = 0;

  // A real check with its own deadline. Reads only.
  virtual kj::Promise<Health> healthCheck() = 0;

  // Makes the place and its helper, or finds what an earlier call for the same environment made, by
  // the inventory's exact identities; something else that stands in its way is ownershipMismatch.
  // Each thing is noted in `log` before it is made. A failure takes back what this call made, or
  // leaves it in the inventory. Dropping the promise is a failure without the taking back.
  virtual kj::Promise<Result<kj::Own<Attachment>>> createInstance(CreateRequest request,
                                                                  ProgressSink& progress,
                                                                  InventoryLog& log) = 0;

  // Ends the place's compute as far as the runtime has any of its own, once the processes in it
  // have been asked to end. Removes nothing (D7). An absent place counts as stopped.
  virtual kj::Promise<StopReport> stopInstance(PlaceRecord place, StopRequest request) = 0;

  // After a start of the daemon: one answer a record, in their order. Starts, changes and removes
  // nothing. An exception means that the runtime could not be asked at all: nothing is known.
  virtual kj::Promise<kj::Vector<Recovered>> recoverInstances(kj::Array<PlaceRecord> places) = 0;

  // Removes what is in the inventory, newest first, as far as `scope` goes, and forgets each item
  // in `log` once it is confirmed to be gone; never an exception for one of many. What does not
  // have the recorded identity is left alone and reported. A directory that the user gave is never
  // removed. Absent things count as removed.
  virtual kj::Promise<CleanupReport> cleanUp(PlaceRecord place, CleanupScope scope,
                                             ProgressSink& progress, InventoryLog& log) = 0;

  // Reports changes until the promise is dropped; never resolves by itself, and reconnects by
  // itself.
  virtual kj::Promise<void> watch(RuntimeObserver& observer) = 0;

  // Ends what the backend itself keeps running, at an orderly end of the daemon.
  virtual kj::Promise<void> close() = 0;

  // What only some runtimes can do; null = this one cannot. Asked for, never assumed. The objects
  // belong to the backend.
  virtual kj::Maybe<RemoteStatusProvider&> remoteStatus() { return nullptr; }
  virtual kj::Maybe<RemoteSessionResumer&> resumer() { return nullptr; }
  virtual kj::Maybe<RemoteInstanceRefresher&> refresher() { return nullptr; }
  virtual kj::Maybe<PortDialer&> portDialer() { return nullptr; }
  virtual kj::Maybe<ReverseListener&> reverseListener() { return nullptr; }
  virtual kj::Maybe<ConnectionTester&> tester() { return nullptr; }
  virtual kj::Maybe<InteractiveRunner&> interactiveRunner() { return nullptr; }
};

}  // namespace capstan
