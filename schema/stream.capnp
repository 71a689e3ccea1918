@0xf8396c3bdfbfc9bb;
# Byte streams and process streams. Both the client interface and agentctl's use these, so that
# output passes from a process to a client with its positions unchanged.
#
# An interface with a `-> stream` method carries no control methods: a held streamed write blocks
# every later call on the same object (Cap'n Proto delivers calls on one object in order).

using Cxx = import "/capnp/c++.capnp";
using Error = import "error.capnp".Error;
$Cxx.namespace("capstan::rpc");
$Cxx.allowCancellation;

using TimeUnixMs = Int64;      # Wall clock since 1970-01-01T00:00Z. 0 = unknown.
using DurationMs = UInt64;     # 0 = the server's default.

const maxChunkBytes :UInt32 = 65536;   # Most octets of one ByteStream or OutputSink write.

interface Handle {}            # Alive until dropped.

interface ByteStream {
  # A push stream in one direction. Boundaries between writes mean nothing.

  write @0 (bytes :Data) -> stream;   # At most maxChunkBytes; more is refused.
  end @1 ();                          # Clean end. Dropped without it = aborted.
}

enum OutputStream {
  stdout @0;             # Also everything a terminal shows.
  stderr @1;
}

interface OutputSink {
  # Receives the output log of one run. `offset` counts the octets of all streams since the run's
  # start, so order across stdout and stderr is kept and a reader that comes back asks for
  # `offset + bytes.size()` of what it saw last.

  write @0 (offset :UInt64, stream :OutputStream, bytes :Data) -> stream;
  gap @1 (from :UInt64, to :UInt64) -> stream;   # Octets [from, to) are no longer kept.
  end @2 (offset :UInt64);                       # All output has been delivered; nothing follows.
}

interface Subscription extends(Handle) {
  stats @0 () -> (delivered :UInt64, coalesced :UInt64);
}

struct Terminal {
  columns @0 :UInt16;    # 0 = 80
  rows @1 :UInt16;       # 0 = 24
  term @2 :Text;         # TERM; empty = xterm-256color
}

struct ExitStatus {
  union {
    code @0 :Int32;      # 0 to 255
    signal @1 :Text;     # Name without SIG: "KILL", "TERM"
    unknown @2 :Void;    # It ended, nobody saw how.
  }
  at @3 :TimeUnixMs;
}

struct Target {          # A listening place inside an environment.
  union {
    port @0 :UInt16;     # On 127.0.0.1, else ::1
    unixPath @1 :Text;   # Absolute
    hostPort :group { host @2 :Text; port2 @3 :UInt16; }   # A literal address
  }
}

struct KeyValue { key @0 :Text; value @1 :Text; }
