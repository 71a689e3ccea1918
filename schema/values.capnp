@0xcf3d4fb3a6f6cb88;
# Values of the client interface. Null and empty text mean "not given" unless said otherwise.

using Cxx = import "/capnp/c++.capnp";
using Error = import "error.capnp".Error;
using Stream = import "stream.capnp";
using TimeUnixMs = Stream.TimeUnixMs;
using KeyValue = Stream.KeyValue;
$Cxx.namespace("capstan::rpc");
$Cxx.allowCancellation;

using Id = Text;               # env-, s-, r-, g-, x-, p- + 16 base32 characters. Names, never secrets.
using RequestId = Data;        # 16 octets chosen by the client: makes the call idempotent for 24 h.

enum Origin {                  # Where a variable's definition comes from. `unset` is refused.
  unset @0; managedRuntime @1; managedCredentials @2; executorProfile @3; repository @4;
  agentProfile @5; managedAgentDefaults @6; other @7;
}

struct Variable {              # One definition of an environment variable.
  key @0 :Text;
  union {
    literal @1 :Text;
    secret @2 :Text;           # The secret's name, never its value.
  }
  origin @3 :Origin;
  otherOrigin @4 :Text;        # For `other`: the origin's words.
  repository @5 :Text;         # For `repository`: its name.
  tenantId @6 :Text;
}
struct VariableDecision {      # Which definition won; a secret is shown as its name only.
  key @0 :Text;
  winners @1 :List(Origin);
  tier @2 :UInt8;              # 1 authoritative, 2 profile default, 3 agent runtime default
  losers @3 :List(Origin);
  union { literal @4 :Text; secret @5 :Text; }
}

struct Rights {                # Attenuation can only clear bits.
  observe @0 :Bool; attach @1 :Bool; launch @2 :Bool; exec @3 :Bool;
  forward @4 :Bool; stop @5 :Bool; cleanup @6 :Bool; delegate @7 :Bool;
}

enum EnvironmentState {
  preparing @0; ready @1; stopping @2; stopped @3; recovering @4; reconnecting @5; failed @6;
  lost @7; cleaning @8;
}
enum SessionState {
  starting @0; running @1; exited @2; stopped @3; failed @4; lost @5; recovering @6;
  reconnecting @7;
}

struct EnvironmentStatus {
  id @0 :Id;
  taskId @1 :Text;
  title @2 :Text;
  tenantId @3 :Text;
  state @4 :EnvironmentState;
  executorId @5 :Id;
  executorType @6 :Text;
  runtime @7 :Text;
  profileId @8 :Id;
  createdAt @9 :TimeUnixMs;
  changedAt @10 :TimeUnixMs;
  sessions @11 :List(SessionInfo);
  health @12 :Health;
  remote @13 :RemoteStatus;
  episodes @14 :List(Episode);
  lastSteps @15 :List(PrepareStep);
  lastError @16 :Error;
  labels @17 :List(KeyValue);
  seq @18 :UInt64;             # Position in this environment's events.
  workspace @19 :Text;         # Path inside the environment.
}
struct Health {                # Three axes that say nothing of one another; "cannot tell" is a state of its own.
  executor @0 :Axis;           # available, unavailable, unknown: whether its helper can be asked.
  workspace @1 :Axis;          # retained, unavailable, unknown: whether it was seen since the last loss.
  conversation @2 :Conversation;
  # The worst of the sessions' latest runs. restored: the same process goes on after it was out of
  # sight; fresh: it began without a token; unavailable: it was lost; unknown: it was given a token,
  # or nothing is known.
  enum Axis { unknown @0; available @1; retained @2; unavailable @3; }
  enum Conversation { unknown @0; restored @1; fresh @2; unavailable @3; }
}
struct Episode {               # The compute was lost, or could not be told to be there.
  id @0 :Id;
  generation @1 :Text;         # Of the compute it is about; empty = none was ever known.
  outcome @2 :Text;            # healthy (nothing was lost), terminated, missing, restarted, unknown.
  cause @3 :Error;             # The first that explains the outcome.
  blockers @4 :List(Error);    # What else went wrong while it lasted, at most 8.
  startedAt @5 :TimeUnixMs;
  endedAt @6 :TimeUnixMs;      # 0 = it goes on.
  affected @7 :List(Id);       # Sessions whose run was lost by it.
}
struct RemoteStatus {
  runtimeName @0 :Text;
  remoteName @1 :Text;
  state @2 :Text;
  createdAt @3 :TimeUnixMs;
  lastCheckedAt @4 :TimeUnixMs;
  errorMessage @5 :Text;
  details @6 :Text;            # A JSON object
}
struct PrepareStep {
  name @0 :Text;
  command @1 :Text;
  status @2 :Text;             # pending, running, completed, failed, skipped
  output @3 :Text;             # At most 10 KiB, the tail.
  error @4 :Text;
  warning @5 :Text;
  warningDetail @6 :Text;
  startedAt @7 :TimeUnixMs;
  endedAt @8 :TimeUnixMs;
}
struct SessionInfo {
  id @0 :Id;
  state @1 :SessionState;
  conversationState @2 :Text;
  runId @3 :Id;
  agent @4 :Text;              # The command's first word.
  startedAt @5 :TimeUnixMs;
  exit @6 :Stream.ExitStatus;  # Null while it runs.
  descendants @7 :UInt32;      # Processes left by the agent after its exit.
  lastError @8 :Error;
  command @9 :List(Text);
  pid @10 :Int32;              # Inside the environment; 0 = none.
  outputBegin @11 :UInt64;     # Octets [outputBegin, outputEnd) of the run's output are kept.
  outputEnd @12 :UInt64;
}

struct Repository {
  path @0 :Text;               # Below the workspace; empty = its root.
  url @1 :Text;
  ref @2 :Text;
}
struct WorkspaceSpec {
  union {
    default @0 :Void;          # A directory of ours.
    directory @1 :Text;        # The user's; never deleted.
    repositories @2 :List(Repository);
  }
  sourceRoots @3 :List(Text);
  reuseRequired @4 :Bool;      # Attach to what is there or fail; never provision.
}

struct LaunchSpec {
  requestId @0 :RequestId;
  command @1 :List(Text);
  resumeCommand @2 :List(Text);  # In the command's place when the session is resumed; empty = it.
  variables @3 :List(Variable);
  approvedSecretKeys @4 :List(Text);
  workingDirectory @5 :Text;   # Empty = the workspace's root.
  terminal @6 :Stream.Terminal;  # Null = pipes.
  agent @7 :AgentSpec;
  pauseWhenFull @8 :Bool;      # Pause the process rather than lose unread output.
  deadlineMs @9 :UInt64;       # Of the launch, not of the process.
  wait @10 :Bool = true;       # false: environmentPreparing instead of waiting for the bring-up.
  start @11 :Bool = true;      # false: stop before the last of create, configure, start.
}

struct AgentSpec {
  # The agent half of the founding create request; docs/create-request.md maps every field of it.
  # Passed through byte-exact unless said otherwise.

  protocol @0 :Text;
  agentProfileId @1 :Id;
  officeAgentProfileId @2 :Id;
  promptTurnId @3 :Text;
  configJson @4 :Data;
  mcpServersJson @5 :Data;
  mcpProfileJson @6 :Data;
  mcpMode @7 :McpMode;         # Interpreted
  mcpProviders @8 :List(Text);
  autoApprove @9 :Bool;
  autoApproveOverride @10 :Tristate;   # Interpreted: unset keeps the default, no differs from it.
  managedRuntimeVersion @11 :Text;     # Interpreted: an exact version.
  providerGatewayAuthSecret @12 :Text; # A secret's name
  startupConfigJson @13 :Data;
  metadataJson @14 :Data;      # Also remote_contributions, contribution_destinations and
                               # comparison_targets.
  enum McpMode { task @0; taskTitlePending @1; config @2; office @3; automation @4; }
  enum Tristate { unset @0; no @1; yes @2; }
}

struct RuntimeStatus {
  runtime @0 :Text;
  builtIn @1 :Bool;
  configured @2 :Bool;
  available @3 :Bool;          # Built in and configured.
  healthy @4 :Bool;            # The last check's answer.
  reason @5 :Error;            # Why not, null when healthy.
  version @6 :Text;
  checkedAt @7 :TimeUnixMs;
}

# Of an executor or a profile in Table.put, id, isSystem, resumable, version and times are not read:
# they are Capstan's.

struct Executor {
  id @0 :Id;
  name @1 :Text;
  type @2 :Text;               # local_pc, local_docker, remote_docker, ssh, k8s, sprites
  status @3 :Text;             # active, disabled
  isSystem @4 :Bool;
  resumable @5 :Bool;
  config @6 :List(KeyValue);   # Ordered by key; an entry with an empty value is none.
  version @7 :UInt64;
  createdAt @8 :TimeUnixMs;
  updatedAt @9 :TimeUnixMs;
}
struct Profile {
  id @0 :Id;
  executorId @1 :Id;
  name @2 :Text;
  mcpPolicy @3 :Text;
  config @4 :List(KeyValue);
  prepareScript @5 :Text;
  cleanupScript @6 :Text;
  variables @7 :List(Variable);
  version @8 :UInt64;
  createdAt @9 :TimeUnixMs;
  updatedAt @10 :TimeUnixMs;
}
struct DefaultExecutor {
  tenantId @0 :Text;           # Empty = for everybody without one of their own.
  executorId @1 :Id;
}
struct SecretInfo {            # What may be shown of a secret.
  name @0 :Text;
  createdAt @1 :TimeUnixMs;
  updatedAt @2 :TimeUnixMs;    # Of the value.
  environmentIds @3 :List(Id); # Who may use it, beside the profiles whose variables name it.
  profileIds @4 :List(Id);
}
struct Grant {
  id @0 :Id;
  parentId @1 :Id;
  principalId @2 :Id;
  kind @3 :Kind;
  environmentId @4 :Id;
  rights @5 :Rights;
  executorIds @6 :List(Id);
  label @7 :Text;
  createdAt @8 :TimeUnixMs;
  expiresAt @9 :TimeUnixMs;
  revokedAt @10 :TimeUnixMs;
  lastUsedAt @11 :TimeUnixMs;
  enum Kind { environment @0; create @1; admin @2; }
}
