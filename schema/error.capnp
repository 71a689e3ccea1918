@0xa5c9cfe242fa9dae;
# The one error list of Capstan. Codes are stable: add at the end, never renumber, never reuse.
# docs/errors.md tells each code's cause and cure.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("capstan::rpc");
$Cxx.allowCancellation;

enum ErrorCode {
  none @0;
  invalidArgument @1;
  notFound @2;
  alreadyExists @3;
  denied @4;
  revoked @5;
  unauthenticated @6;
  wrongState @7;
  unsupported @8;
  runtimeUnavailable @9;
  executorMismatch @10;
  environmentPreparing @11;
  recovering @12;
  ownershipMismatch @13;
  ambiguousInventory @14;
  workspaceLost @15;
  instanceLost @16;
  hostKeyUnknown @17;
  hostKeyChanged @18;
  hostKeyRevoked @19;
  hostKeyTypeUnknown @20;
  authFailed @21;
  unreachable @22;
  unsupportedPlatform @23;
  prepareFailed @24;
  imagePullFailed @25;
  unschedulable @26;
  quotaExceeded @27;
  podEvicted @28;
  outOfMemory @29;
  forbiddenByCluster @30;
  resourceExhausted @31;
  variableConflict @32;
  portInUse @33;
  timeout @34;
  cancelled @35;
  shuttingDown @36;
  stateLocked @37;
  storeCorrupt @38;
  protocolError @39;
  internal @40;
}

enum RetryHint {
  never @0;              # The same request fails again.
  sameRequestLater @1;   # Wait (retryAfterMs) and repeat.
  afterUserAction @2;    # Somebody must change something first; `hint` says what.
  afterRefresh @3;       # Fetch the object again, then decide.
}

struct Error {
  # A foreseen failure. It rides in results; exceptions stand for bugs, overload, lost links and
  # old peers only. Holds no capability and no secret.

  code @0 :ErrorCode;
  message @1 :Text;        # For people: what failed. No full stop, lower-case start.
  cause @2 :Text;          # Why, when known.
  hint @3 :Text;           # The next step, often a command.
  field @4 :Text;          # Path of the value at fault, e.g. "config.workspace.mode".
  source @5 :Text;         # "docker", "kubernetes", "ssh", "agentctl", "system" (an errno); empty = Capstan.
  upstreamCode @6 :Text;   # That source's own code, verbatim.
  retry @7 :RetryHint;
  retryAfterMs @8 :UInt64; # 0 = no advice.
}
