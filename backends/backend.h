#pragma once
// What a runtime must do, and no more: make the place, put agentctl there, reach it with a byte
// stream, remove it. Everything that is the same everywhere is served by agentctl and used by core
// without knowing the runtime.

#include "base/credential.h"
#include "base/problem.h"
#include "base/stream-dialer.h"
#include "domain/environment.h"
#include "domain/launch-rules.h"

#include <kj/async.h>
#include <kj/refcount.h>

namespace capstan {

// What is true of every environment of a runtime.
struct Traits {
  bool requiresCloneUrl = false;  // Work is cloned there; a local directory cannot be used.
  bool alwaysResumable = false;   // Resumable without a token of the agent's.
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

// What a backend makes an environment from.
struct CreateRequest {
  kj::String environmentId;
  kj::String taskId;
  kj::Maybe<kj::String> directory;  // The user's workspace; null = make one.
};

// The proof that an environment's place exists, and the way to its helper.
class Attachment {
public:
  virtual ~Attachment() noexcept(false) = default;

  // Names the helper: attachments with equal keys reach the same one, over one link.
  virtual kj::StringPtr helperKey() const = 0;
  // A way to the helper, also after a loss. The result may outlive the attachment.
  virtual kj::Own<StreamDialer> dialer() = 0;
  // What the helper was started with; good for the first link only.
  virtual Credential credential() const = 0;
  // Absolute, inside the environment.
  virtual kj::StringPtr workspace() const = 0;
  // Where the helper keeps what belongs to run `runId`; absolute, inside the environment.
  virtual kj::String runDirectory(kj::StringPtr runId) const = 0;
  // What a process there starts from, before Capstan's and the launch's variables.
  virtual kj::Array<ProcessVariable> inheritedVariables() const = 0;
};

enum class CleanupScope {
  COMPUTE,             // Files stay.
  ALL,                 // Everything we made goes.
  ALL_KEEP_WORKSPACE,  // Everything but the workspace.
};

// What a clean-up did not remove.
struct CleanupReport {
  kj::Vector<kj::String> leftInPlace;  // On purpose: the user's. One a line.
  kj::Vector<kj::String> leftovers;    // Ours, not removed: each with its reason. Worth a retry.
};

// One runtime. Owned by whoever registered it; outlives every promise and attachment it gave.
class Backend {
public:
  virtual ~Backend() noexcept(false) = default;

  // "standalone", "docker", ...
  virtual kj::StringPtr name() const = 0;
  virtual Traits traits() const = 0;

  // A real check with its own deadline. Reads only.
  virtual kj::Promise<Health> healthCheck() = 0;

  // Makes the place and its helper, or finds what an earlier call for the same environment made.
  // A failure leaves nothing that cleanUp() would not find. Dropping the promise is a failure.
  virtual kj::Promise<Result<kj::Own<Attachment>>> createInstance(CreateRequest request,
                                                                  ProgressSink& progress) = 0;

  // Removes what createInstance made for the environment, by exact identity, as far as `scope`
  // goes: never an exception for one of many. A directory that the user gave is never removed.
  // Absent things count as removed.
  virtual kj::Promise<CleanupReport> cleanUp(CreateRequest made, CleanupScope scope) = 0;

  // Ends what the backend itself keeps running, at an orderly end of the daemon.
  virtual kj::Promise<void> close() = 0;
};

}  // namespace capstan
