@0x96d1b5682607d794;
# The unit of authority: who holds a TaskEnvironment can work in that one environment, as far as
# the rights of this reference go, and has no way even to name another.
#
#  * Holding a capability is the permission. No method takes a user name or a token.
#  * Foreseen failures come back in `error` (null = success); the capability results are then
#    broken with the same text, so pipelined calls fail readably. Exceptions: failed = a bug,
#    overloaded = too many calls in flight, disconnected = link or object gone or revoked,
#    unimplemented = an older peer.
#  * The right a method needs stands behind it in brackets; src/domain/rights has the table.

using Cxx = import "/capnp/c++.capnp";
using Persistent = import "/capnp/persistent.capnp".Persistent;
using Error = import "error.capnp".Error;
using Stream = import "stream.capnp";
using Values = import "values.capnp";
using Id = Values.Id;
$Cxx.namespace("capstan::rpc");
$Cxx.allowCancellation;

struct SturdyRef { token @0 :Data; }   # 32 random octets; the server keeps only their SHA-256.
struct Owner { principalId @0 :Id; }   # Null = bearer (needs `delegate`).
interface Durable extends(Persistent(SturdyRef, Owner)) {}

interface Progress {
  # Live steps of long work. Reports that the client does not take in time are dropped.
  report @0 (step :Values.PrepareStep, index :UInt16, total :UInt16) -> stream;
}
interface Watcher(T) {
  # reset, upsert*, synced, then changes; a new reset may come at any time.
  event @0 (seq :UInt64, change :Change) -> stream;
  closed @1 (error :Error);
  struct Change {
    union { reset @0 :Void; upsert @1 :T; remove @2 :Id; synced @3 :Void; }
  }
}
interface Acceptor {           # The client's side of a reverse forward.
  accept @0 (peer :Text, down :Stream.ByteStream) -> (up :Stream.ByteStream);
}

interface TaskEnvironment {
  status @0 () -> (status :Values.EnvironmentStatus);                        # [observe]
  watch @1 (watcher :Watcher(Values.EnvironmentStatus))
        -> (subscription :Stream.Subscription);                              # [observe]

  launch @2 (spec :Values.LaunchSpec, progress :Progress)
         -> (session :Session, run :Run, error :Error);                      # [launch]
  # A new session. Joins a bring-up in progress and waits until the deadline; with wait=false:
  # environmentPreparing. Dropping the call asks to cancel: the step in progress ends, then it
  # unwinds; once the record says `running` a drop changes nothing.
  session @3 (id :Id) -> (session :Session, error :Error);                   # [observe]

  exec @4 (spec :Values.LaunchSpec, sink :Stream.OutputSink)
       -> (instance :Instance, stdin :Stream.ByteStream, error :Error);      # [exec]
  # A process that ends when `instance` is dropped. sink null = output is discarded.

  dial @5 (target :Stream.Target, down :Stream.ByteStream)
       -> (up :Stream.ByteStream, error :Error);                             # [forward]
  forward @6 (bind :LoopbackBind, target :Stream.Target)
          -> (forward :Forward, error :Error);                               # [forward]
  # A listener of the daemon on 127.0.0.1 or ::1.
  reverse @7 (listen :Stream.Target, acceptor :Acceptor)
          -> (forward :Forward, error :Error);                               # [forward]
  # A listener inside whose connections come out at `acceptor`.

  readFile @8 (path :Text, offset :UInt64, into :Stream.ByteStream)
           -> (size :UInt64, error :Error);                                  # [exec]
  writeFile @9 (path :Text, mode :UInt16)
            -> (into :Stream.ByteStream, done :Stream.Handle, error :Error); # [exec]
  # Atomic by rename at end().

  explain @10 (sessionId :Id, key :Text)
          -> (decisions :List(Values.VariableDecision), error :Error);       # [observe]
  recheck @11 () -> (status :Values.EnvironmentStatus, error :Error);        # [observe] Reads only.

  stop @12 (graceMs :UInt64, force :Bool, reason :Text, progress :Progress)
       -> (error :Error);                                                    # [stop]
  # Ends runs and forwards; the place stays. Idempotent.
  cleanup @13 (scope :CleanupScope, progress :Progress)
          -> (leftovers :List(Text), error :Error);                          # [cleanup]
  # Removes what we made, by exact identity. Leftovers are named, one a line, with the reason.

  attenuate @14 (keep :Values.Rights, expiresAt :Stream.TimeUnixMs, label :Text,
                 ephemeral :Bool)
            -> (environment :TaskEnvironment, grantId :Id, revoker :Stream.Handle,
                error :Error);                                               # [delegate]
  revoke @15 (grantId :Id) -> (error :Error);                                # [delegate]
  rights @16 () -> (rights :Values.Rights, expiresAt :Stream.TimeUnixMs);    # [observe]

  enum CleanupScope { compute @0; all @1; allKeepWorkspace @2; }
}

struct LoopbackBind { port @0 :UInt16; ipv6Only @1 :Bool; }   # Port 0 = any free one >= 1024.

interface Forward extends(Stream.Handle) {
  info @0 () -> (boundPort :UInt16, openConnections :UInt32, bytesIn :UInt64, bytesOut :UInt64,
                 lastError :Error);                                          # [observe]
  close @1 (drainMs :UInt64);                                                # [forward]
}

struct Position { runId @0 :Id; offset @1 :UInt64; }   # Octets of all streams, in order.

interface Instance {           # One process under agentctl.
  output @0 (offset :UInt64, sink :Stream.OutputSink, follow :Bool, hold :Bool)
         -> (subscription :Stream.Subscription, error :Error);               # [observe]
  # Dropping the subscription stops the delivery. follow: until the process's output ends. hold:
  # while the delivery lasts, the process waits for this reader rather than lose output when the
  # log is full, as it would in a pipeline; needs [attach] too. The sink is dropped when a delivery
  # is cut short (the helper is gone), but only once the caller has released the response: keep the
  # subscription, not the response.
  stdin @1 (takeOver :Bool) -> (stdin :Stream.ByteStream, error :Error);     # [attach]
  # One writer at a time: wrongState while another holds it, unless takeOver.
  signal @2 (name :Text) -> (error :Error);                                  # [stop]
  resize @3 (columns :UInt16, rows :UInt16) -> (error :Error);               # [attach]
  wait @4 () -> (exit :Stream.ExitStatus, error :Error);                     # [observe]
}
interface Run extends(Instance) {
  id @0 () -> (runId :Id);                                                   # [observe]
}

interface Session {            # A conversation; at most one live run.
  info @0 () -> (info :Values.SessionInfo);                                  # [observe]
  run @1 () -> (run :Run, error :Error);                                     # [observe]
  start @2 () -> (run :Run, error :Error);                                   # [launch]
  # After launch(start=false).
  resume @3 (spec :Values.LaunchSpec, progress :Progress)
         -> (run :Run, error :Error);                                        # [launch]
  stop @4 (graceMs :UInt64, force :Bool, reason :Text)
       -> (exit :Stream.ExitStatus, error :Error);                           # [stop]
  saveProgress @5 (runId :Id, resumeToken :Text, lastMessageId :Text, contextJson :Data)
               -> (error :Error);                                            # [launch]
  setConversationState @6 (state :Text) -> (error :Error);                   # [launch]
  setModel @7 (model :Text) -> (error :Error);                               # [launch]
  output @8 (position :Position, sink :Stream.OutputSink, follow :Bool, hold :Bool)
         -> (subscription :Stream.Subscription, error :Error);               # [observe]
  # Of any run of the session; an empty run id = the latest.
}

interface DurableEnvironment extends(TaskEnvironment, Durable) {}
interface DurableSession extends(Session, Durable) {}
