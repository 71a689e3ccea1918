@0xbaa1dc3f083fde73;
# The helper's interface: what capstand says to agentctl over whatever byte stream reaches it.
# Not for clients. Frozen copies of released versions stand in tests/compat.
#
# Connections: one control connection, and one further connection per bulk stream (attached
# output, copy, dial), so that bulk never delays control. Every connection begins with the mutual
# handshake of `Agentctl`.

using Cxx = import "/capnp/c++.capnp";
using Error = import "error.capnp".Error;
using Stream = import "stream.capnp";
$Cxx.namespace("capstan::agentctl");
$Cxx.allowCancellation;

enum CredentialKind {
  nonce @0;              # Given to agentctl by whoever started it; ends when a token is confirmed.
  token @1;              # 32 octets made by agentctl.
}

interface Agentctl {
  # The bootstrap object. No secret is sent in either direction: both sides prove that they know
  # the credential K by HMAC-SHA256(K, role || kind || serverId || clientChallenge ||
  # serverChallenge), role being the 16 octets "capstan-agentctl" or "capstan-daemon--" and kind
  # one octet. The server proves first; a client that sees a wrong proof sends nothing further.

  begin @0 (kind :CredentialKind, challenge :Data, rotationId :UInt64) -> (serverId :Data,
            challenge :Data, proof :Data, attempt :Attempt, error :Error);
  # challenge: 32 random octets of the client. The answer is the same for a credential that does
  # not exist: its proof is made with a key nobody knows.
  # rotationId: which token, for while a rotation leaves two of them valid; 0 = the confirmed one,
  # else the only one. Meaningless for a nonce.
}

interface Attempt {      # One handshake of one connection; good for one proof.
  control @0 (proof :Data) -> (control :Control, error :Error);
  bulk @1 (proof :Data) -> (bulk :Bulk, error :Error);
}

struct ServerInfo {
  serverId @0 :Data;               # 16 random octets made at start: the helper's identity.
  build @1 :Text;
  capabilities @2 :List(Text);     # "agent-survival.v1", "reaper", "pty", "dial", ...
  pid @3 :Int32;
  startTicks @4 :UInt64;           # Field 22 of /proc/PID/stat; with bootId it names the process.
  bootId @5 :Text;
  platform @6 :Text;               # "linux/amd64"
  startedAt @7 :Stream.TimeUnixMs;
  draining @8 :Bool;
}

interface Control {
  # Dropping it (or losing the connection) ends nothing but *ephemeral* instances, 10 s later.

  info @0 () -> (info :ServerInfo);

  rotateCredential @1 (rotationId :UInt64) -> (token :Data, error :Error);
  confirmCredential @2 (rotationId :UInt64) -> (error :Error);
  # Two phases: the new token works beside the old credential until it is confirmed, which ends
  # the old one and every connection made with it but this; who has confirmed a token counts as made
  # with that. Rotation ids strictly increase; an old id does nothing, an unknown one is refused.
  # Never more than two credentials are valid.

  create @3 (spec :InstanceSpec) -> (instance :Instance, error :Error);
  # Reserves the id and the session directory; no process yet. The same id again: alreadyExists.
  list @4 () -> (instances :List(InstanceInfo));
  instance @5 (id :Text) -> (instance :Instance, error :Error);
  acknowledge @6 (id :Text) -> (error :Error);
  # The caller has made the instance's outcome durable: it may be forgotten, its log is kept until
  # `remove`. Unknown ids are accepted.
  remove @7 (id :Text) -> (error :Error);          # Ended instances only; deletes its log.

  drain @8 () -> (error :Error);                   # No new instances; ends after the last one.
  shutdown @9 (graceMs :UInt64) -> (error :Error); # Ends all instances, then the helper.
}

struct InstanceSpec {
  id @0 :Text;                     # Run id (r-...) or exec id (x-...).
  sessionId @1 :Text;
  environmentId @2 :Text;
  taskId @3 :Text;
  ephemeral @4 :Bool;              # Ends 10 s after the owner's link is gone.
  directory @5 :Text;              # Session directory for the spool; empty = memory only.
  spoolLimitBytes @6 :UInt64;      # 0 = 64 MiB
  pauseWhenFull @7 :Bool;          # Stop reading the process rather than lose unread output.
  stopGraceMs @8 :UInt64;          # TERM to KILL when the helper dies or stops it; 0 = 10 s
}

struct InstanceConfig {
  command @0 :List(Text);          # argv; the first word is looked up in the variables' PATH.
  variables @1 :List(Stream.KeyValue);   # All of them: nothing is inherited.
  secrets @2 :List(SecretVariable);      # Set in the process only, then zeroed.
  workingDirectory @3 :Text;       # Absolute
  terminal @4 :Stream.Terminal;    # Null = pipes
  agentJson @5 :Data;              # The agent specification, stored for the process's own use.
}
struct SecretVariable { key @0 :Text; value @1 :Data; }

enum InstanceState { created @0; configured @1; running @2; exited @3; failed @4; }

struct InstanceInfo {
  id @0 :Text;
  sessionId @1 :Text;
  environmentId @2 :Text;
  taskId @3 :Text;
  state @4 :InstanceState;
  pid @5 :Int32;                   # 0 = none
  startTicks @6 :UInt64;
  startedAt @7 :Stream.TimeUnixMs;
  exit @8 :Stream.ExitStatus;      # Null while it runs.
  descendants @9 :UInt32;          # Processes left below the reaper after the agent's exit.
  outputEnd @10 :UInt64;           # Offset after the last octet.
  outputBegin @11 :UInt64;         # Offset of the oldest octet still kept.
  ephemeral @12 :Bool;
  error @13 :Error;                # Why it failed to start, or what was lost of its log.
  acknowledged @14 :Bool;
}

interface Instance {
  info @0 () -> (info :InstanceInfo);
  configure @1 (config :InstanceConfig) -> (error :Error);   # Once, before start.
  start @2 () -> (pid :Int32, error :Error);
  # Returns after execve succeeded. A failed execve: notFound (no such program) or denied, with
  # the errno's name in upstreamCode; the instance is then `failed`.
  signal @3 (name :Text) -> (error :Error);
  # To the process group of the agent. Names without SIG. After its end: wrongState.
  resize @4 (columns :UInt16, rows :UInt16) -> (error :Error);
  wait @5 () -> (exit :Stream.ExitStatus, error :Error);
  # Resolves after the agent's own exit and the end of its output (end of file of its streams, or
  # 2 s after the exit). Descendants may be left; `stop` ends them.
  stop @6 (graceMs :UInt64, force :Bool) -> (survivors :UInt32, error :Error);
  # Ends the whole tree: TERM to the agent's group, after the grace (or at once with force) every
  # descendant is frozen and killed until none is left. Bounded; survivors are those that could
  # not be signalled. Idempotent.
}

interface Bulk {
  # One bulk connection. Everything it started ends with it (the instance does not).

  output @0 (id :Text, offset :UInt64, sink :Stream.OutputSink, follow :Bool, hold :Bool)
         -> (subscription :Stream.Subscription, error :Error);
  # Delivers the log from `offset`; what is no longer kept arrives as a gap. follow=false ends at
  # the log's present end. An offset beyond the end: invalidArgument. hold: while this delivery
  # lasts, the process is paused rather than octets dropped that this reader has not got yet.
  stdin @1 (id :Text, takeOver :Bool) -> (stdin :Stream.ByteStream, error :Error);
  # One writer at a time: while another holds it, wrongState unless takeOver. A write is answered
  # once it lies in the 256 KiB buffer. end() closes the process's stdin (a terminal gets its
  # end-of-file character); dropping without it leaves stdin open for the next writer.
  dial @2 (target :Stream.Target, down :Stream.ByteStream)
       -> (up :Stream.ByteStream, error :Error);
  # Connects inside the environment. Literal addresses and localhost only.
}
