#pragma once
// Durable values: what the daemon still knows after a restart. Times are wall clock, 0 = not yet.
// `version` counts the writes of a row from 1; a write says which version it saw, 0 = a new row.

#include "base/problem.h"
#include "domain/environment.h"

#include <kj/array.h>
#include <kj/string.h>

namespace capstan {

// 16 octets chosen by a client, which make its call idempotent. Null = none.
using RequestId = kj::Array<kj::byte>;

struct SettingRecord {
  kj::String key;
  kj::String value;
  uint64_t version = 0;
};

enum class ExecutorStatus { ACTIVE, DISABLED };

// A named place where work runs.
struct ExecutorRecord {
  kj::String id;
  kj::String name;  // Unique among those not deleted.
  kj::String type;
  ExecutorStatus status = ExecutorStatus::ACTIVE;
  bool isSystem = false;
  bool resumable = true;
  kj::Array<Label> config;
  UnixMs createdAt = 0;
  UnixMs updatedAt = 0;
  UnixMs deletedAt = 0;
  uint64_t version = 0;
};

// Settings that vary on one executor.
struct ProfileRecord {
  kj::String id;
  kj::String executorId;
  kj::String name;  // Unique on its executor.
  kj::String mcpPolicy;
  kj::Array<Label> config;
  kj::String prepareScript;
  kj::String cleanupScript;
  kj::Array<Variable> variables;
  UnixMs createdAt = 0;
  UnixMs updatedAt = 0;
  uint64_t version = 0;
};

// An environment as asked for and as it was made: one for each (owner, task id).
struct EnvironmentRecord {
  kj::String id;
  kj::String owner;
  EnvironmentSpec spec;  // The snapshot; spec.taskId is the record's task.
  kj::String executorId;
  kj::String executorType;
  kj::String runtime;
  kj::String profileId;
  EnvironmentState state = EnvironmentState::PREPARING;
  kj::String workspace;  // Empty before it is known.
  RequestId requestId;
  kj::Maybe<Problem> lastError;  // Code and message only.
  UnixMs createdAt = 0;
  UnixMs changedAt = 0;
  kj::Vector<PrepareStep> steps;  // Of the latest bring-up that ended.
  bool prepared = false;          // Repositories and prepare script are done with.
  kj::String generation;          // Of its compute, when that was reached last; empty = never.
  kj::String cleanupScope;        // How far a clean-up that has begun is to go; empty = none has.
  uint64_t version = 0;
};

struct SessionRecord {
  kj::String id;
  kj::String environmentId;
  SessionState state = SessionState::STARTING;
  kj::String conversationState;  // Only the client sets it.
  kj::String modelOverride;
  UnixMs createdAt = 0;
  UnixMs changedAt = 0;
  uint64_t version = 0;
};

enum class RunState { STARTING, RUNNING, ENDED };

// How a run ended. It is applied once and never changed.
struct RunOutcome {
  enum class Kind {
    EXITED,     // The process ended by itself; `exit` tells how.
    STOPPED,    // On request.
    FAILED,     // It never ran, or the place failed; `error` tells why.
    LOST,       // It ended and nobody saw how.
    CANCELLED,  // The launch was withdrawn.
  };
  Kind kind = Kind::LOST;
  kj::Maybe<ExitStatus> exit;
  kj::Maybe<Problem> error;  // Code and message only.
  UnixMs at = 0;
};

// One start of a session's agent. A session has at most one that has not ended.
struct RunRecord {
  kj::String id;
  kj::String sessionId;
  RunState state = RunState::STARTING;
  LaunchSpec spec;  // Secrets by name; `wait`, `start` and `deadline` are of the call, not stored.
  RequestId requestId;
  UnixMs createdAt = 0;
  UnixMs runningAt = 0;
  kj::Maybe<RunOutcome> outcome;  // Null until ENDED.
};

enum class RunningStatus { STARTING, RUNNING, READY, FAILED, STOPPED, COMPLETED, PREPARED };

// Where a session's agent runs: one record a session. The fields up to `containerId` and the
// metadata are the lifecycle's; resume token, last message and context are the conversation's and
// only written by compare-and-set on the run id.
struct RunningRecord {
  kj::String id;
  kj::String sessionId;
  kj::String taskId;
  kj::String executionProfileId;
  kj::String executorId;
  kj::String runtime;
  RunningStatus status = RunningStatus::STARTING;
  bool resumable = false;
  kj::String agentExecutionId;  // The run's id.
  kj::String containerId;
  kj::String agentctlUrl;
  uint16_t agentctlPort = 0;
  int64_t pid = 0;       // Of the process on another machine.
  int64_t localPid = 0;  // Of the process on this machine.
  kj::String worktreeId;
  kj::String worktreePath;
  kj::String worktreeBranch;
  kj::String errorMessage;
  kj::String metadata;  // A JSON object; empty = none.
  UnixMs lastSeenAt = 0;

  kj::String resumeToken;
  kj::String lastMessageUuid;
  kj::String context;  // JSON; empty = none.

  uint64_t version = 0;
};

// What whoever converses with a session's agent wants to find again.
struct SavedProgress {
  kj::String runId;          // Of which it is said.
  kj::String resumeToken;    // A secret; empty = none.
  kj::String lastMessageId;  // Empty = none.
  kj::String context;        // JSON; empty = none.
};

// One thing that was, or is about to be, made for an environment.
struct InventoryItem {
  enum class State {
    INTENDED,  // Written before the step: it may exist.
    MADE,      // It exists and `identity` is exact.
  };
  kj::String environmentId;
  uint64_t seq = 0;  // The order of the steps, from 1; given by the store.
  kj::String runtime;
  kj::String step;      // The fault point's name: inv.<backend>.<step>.
  kj::String kind;      // directory, volume, ...
  kj::String name;      // What it is called there; known before it is made.
  kj::String identity;  // What tells it from a namesake; may be empty while INTENDED.
  State state = State::INTENDED;
  kj::Array<Label> details;
  UnixMs createdAt = 0;
  UnixMs changedAt = 0;

  InventoryItem clone() const;
};

// A helper that serves local environments. One is current; older ones drain.
struct ControlServerRecord {
  enum class State { CURRENT, DRAINING };
  kj::String id;  // Our name of it.
  kj::String endpoint;
  kj::String secretId;  // Its credential's row among the secrets.
  State state = State::CURRENT;
  kj::Array<kj::String> capabilities;
  kj::String build;
  kj::String logPath;
  int64_t pid = 0;  // 0 = not known yet.
  UnixMs createdAt = 0;
  uint64_t startTicks = 0;  // With `bootId` and `pid` it names the process.
  kj::String bootId;
  kj::String serverId;    // The identity it proves, in hexadecimal; empty until it was linked once.
  uint64_t rotation = 0;  // Of the token among the secrets; 0 = it is the nonce.
};

// What may be shown of a secret. Its value is only in the sealed column.
struct SecretRecord {
  enum class Kind { USER, NONCE, TOKEN };
  kj::String id;
  Kind kind = Kind::USER;
  kj::String name;  // Of a USER secret, unique; else empty.
  UnixMs createdAt = 0;
  UnixMs updatedAt = 0;
  uint64_t version = 0;
};

}  // namespace capstan
