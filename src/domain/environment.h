#pragma once
// Values about environments and sessions: what was asked for and how things stand.

#include "base/problem.h"
#include "domain/episode.h"
#include "domain/process.h"
#include "domain/workspace.h"

#include <kj/array.h>
#include <kj/string.h>
#include <kj/time.h>
#include <kj/vector.h>

namespace capstan {

enum class EnvironmentState {
  PREPARING,
  READY,
  STOPPING,
  STOPPED,
  RECOVERING,
  RECONNECTING,
  FAILED,
  LOST,
  CLEANING,
};

enum class SessionState {
  STARTING,
  RUNNING,
  EXITED,
  STOPPED,
  FAILED,
  LOST,
  RECOVERING,
  RECONNECTING,
};

// Where a variable's definition comes from; order and names as in the schema.
enum class Origin {
  UNSET,
  MANAGED_RUNTIME,
  MANAGED_CREDENTIALS,
  EXECUTOR_PROFILE,
  REPOSITORY,
  AGENT_PROFILE,
  MANAGED_AGENT_DEFAULTS,
  OTHER,
};

// One definition of an environment variable.
struct Variable {
  kj::String key;
  kj::String literal;
  kj::String secret;  // Name of a secret; empty = the literal counts.
  Origin origin = Origin::UNSET;
  kj::String otherOrigin;
  kj::String repository;
  kj::String tenantId;

  Variable clone() const;
};

struct Label {
  kj::String key;
  kj::String value;

  Label clone() const { return Label{kj::str(key), kj::str(value)}; }
};
kj::Array<Label> cloneAll(kj::ArrayPtr<const Label> labels);

inline constexpr size_t REQUEST_ID_BYTES = 16;

// What one start of a process shall be. Empty and null mean "not given".
struct LaunchSpec {
  kj::Array<kj::byte> requestId;  // The client's; empty = every call is a new one.
  kj::Array<kj::String> command;
  kj::Array<kj::String> resumeCommand;  // In the command's place when resumed; empty = the command.
  kj::Array<Variable> variables;
  kj::String workingDirectory;   // Empty = the workspace's root; relative = below it.
  kj::Maybe<Terminal> terminal;  // Null = pipes.
  bool pauseWhenFull = false;
  bool wait = true;   // false: environmentPreparing instead of waiting for a bring-up.
  bool start = true;  // false: stop before the last of create, configure, start.
  kj::Maybe<kj::Duration> deadline;

  LaunchSpec clone() const;
};

// What a task asks of its environment.
struct EnvironmentSpec {
  kj::Array<kj::byte> requestId;  // The client's; empty = none. Of the call, not of the place.
  kj::String taskId;
  kj::String title;
  kj::String tenantId;
  kj::String executor;  // Id, name or unique prefix; empty = by precedence.
  kj::String profile;
  WorkspaceSpec workspace;
  kj::Vector<Label> labels;

  EnvironmentSpec clone() const;
};

// One step of long work, as shown to people.
struct PrepareStep {
  enum class Status { PENDING, RUNNING, COMPLETED, FAILED, SKIPPED };
  kj::String name;
  kj::String command;
  Status status = Status::PENDING;
  kj::String output;  // The tail, at most 10 KiB.
  kj::String error;
  kj::String warning;  // The step went wrong in a way that does not matter enough to stop.
  kj::String warningDetail;
  UnixMs startedAt = 0;
  UnixMs endedAt = 0;

  PrepareStep clone() const;
};

// Most octets of a step's output that are kept.
inline constexpr size_t STEP_OUTPUT_BYTES = 10 * 1024;

// How a session stands.
struct SessionStatus {
  kj::String id;
  SessionState state = SessionState::STARTING;
  kj::String runId;
  kj::Array<kj::String> command;
  UnixMs startedAt = 0;
  kj::Maybe<ExitStatus> exit;  // Null while it runs.
  uint32_t descendants = 0;
  int pid = 0;
  uint64_t outputBegin = 0;
  uint64_t outputEnd = 0;
  kj::Maybe<Problem> lastError;
};

// Whether something is there; order as in the schema.
enum class HealthAxis {
  UNKNOWN,      // It cannot be told, or nobody has looked since it could be.
  AVAILABLE,    // Of an executor: it answers.
  RETAINED,     // Of a workspace: it was seen there, whatever else was lost.
  UNAVAILABLE,  // It is confirmed not to be there.
};
// What has become of an agent's conversation; order as in the schema.
enum class ConversationHealth {
  UNKNOWN,      // Its agent was given what was saved, or nothing is known of its process.
  RESTORED,     // The same process goes on after it was out of sight.
  FRESH,        // Its process began without anything saved.
  UNAVAILABLE,  // Its process was lost.
};
// How an environment stands, on axes that say nothing of one another.
struct EnvironmentHealth {
  HealthAxis executor = HealthAxis::UNKNOWN;
  HealthAxis workspace = HealthAxis::UNKNOWN;
  ConversationHealth conversation = ConversationHealth::UNKNOWN;  // The worst of its sessions'.
};

// How an environment stands.
struct EnvironmentStatus {
  kj::String id;
  kj::String taskId;
  kj::String title;
  kj::String tenantId;
  EnvironmentState state = EnvironmentState::PREPARING;
  kj::String executorId;
  kj::String executorType;
  kj::String runtime;
  kj::String profileId;
  kj::String workspace;  // Path inside the environment; empty before it is known.
  UnixMs createdAt = 0;
  UnixMs changedAt = 0;
  kj::Vector<SessionStatus> sessions;
  kj::Vector<PrepareStep> lastSteps;
  kj::Maybe<Problem> lastError;
  kj::Vector<Label> labels;
  EnvironmentHealth health;
  kj::Vector<EpisodeRecord> episodes;  // Oldest first.
  uint64_t seq = 0;
};

// How a runtime itself sees an environment. Texts may be empty, except `runtime`.
struct RemoteStatus {
  kj::String runtime;
  kj::String remoteName;
  kj::String state;
  UnixMs createdAt = 0;
  UnixMs lastCheckedAt = 0;  // Always given.
  kj::String errorMessage;
  kj::String details;  // A JSON object.
};

// How a runtime stands.
struct RuntimeStatus {
  kj::String runtime;
  bool builtIn = false;
  bool configured = false;
  bool healthy = false;
  kj::Maybe<Problem> reason;  // Why not; null when healthy.
  kj::String version;
  UnixMs checkedAt = 0;
};

}  // namespace capstan
