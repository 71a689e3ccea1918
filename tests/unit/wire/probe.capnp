@0x9733d46ff606709c;
# A small interface for tests of RPC connections.

using Cxx = import "/capnp/c++.capnp";
using Stream = import "/stream.capnp";
$Cxx.namespace("capstan::probe");
$Cxx.allowCancellation;

interface Process {
  wait @0 () -> (code :Int32);          # Guarded; held until kill.
  kill @1 ();                           # Not guarded.
  hold @2 (bytes :Data);                # Guarded; held until kill.
  ping @3 ();                           # Not guarded.
  big @4 (octets :UInt64) -> (bytes :Data);
  sink @5 () -> (sink :Stream.ByteStream);   # Its writes are held until kill.
  self @6 () -> (process :Process);
}
