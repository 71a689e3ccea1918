#pragma once
// A process under Capstan as local streams: to speak a protocol with it, or to collect what it
// says.

#include "client/launch.h"
#include "client/process-io.h"
#include "client/tail-buffer.h"
#include "wire/byte-stream.h"

namespace capstan {

// The client's side of a process with pipes. Holds the process's stdin (one writer at a time) and
// follows its output from the beginning. Dropping it leaves the process as it is: its stdin is not
// ended, its output goes on into its log.
class AttachedProcess final {
public:
  // A Problem when the daemon refuses, e.g. wrongState while another client holds the stdin or
  // when the process has ended.
  static kj::Promise<Result<kj::Own<AttachedProcess>>> attach(rpc::Instance::Client instance);
  // From parts that belong together: `from` yields what `target` gets as stdout, and `tail` keeps
  // its stderr. The subscription keeps the delivery going.
  AttachedProcess(rpc::Instance::Client instance, rpc::ByteStream::Client stdinStream,
                  kj::Own<OutputTarget> target, kj::Own<TailBuffer> tail,
                  kj::Own<kj::AsyncInputStream> from, rpc::Subscription::Client subscription);
  KJ_DISALLOW_COPY_AND_MOVE(AttachedProcess);

  // The process's stdin. A write is resolved when it has been sent; the process's own pace holds
  // later ones. Rejects as disconnected when the process takes no more.
  kj::AsyncOutputStream& input() { return to; }
  // Ends the stdin; resolves when the process's side has taken everything. Nothing may be written
  // after it.
  kj::Promise<void> endInput() { return to.end(); }

  // The process's stdout, to be read to keep all output coming: stderr waits behind it. Ends with
  // the process's output; rejects as disconnected when the daemon is gone before.
  kj::AsyncInputStream& output() { return *from; }
  // The newest 64 KiB of its stderr so far.
  kj::String errors() const { return tail->text(); }
  // Octets of the output that the daemon no longer had: not 0 only for a process that is not
  // paused when its log is full, and a slow reader.
  uint64_t lost() const { return target->lost(); }

  // The process's exit, whether or not its output was read.
  kj::Promise<Result<ProcessExit>> exit() { return exitOf(instance); }

private:
  rpc::Instance::Client instance;
  ByteStreamOutput to;
  kj::Own<OutputTarget> target;
  kj::Own<TailBuffer> tail;
  kj::Own<kj::AsyncInputStream> from;
  rpc::Subscription::Client subscription;
};

// What a process left behind.
struct Collected {
  ProcessExit exit;
  kj::String out, err;   // The newest octets of each stream.
  uint64_t dropped = 0;  // Octets that are not among them.
};

// Waits for a process's end and keeps at most `most` octets of each of its streams, from the run's
// beginning on. Its stdin is left alone. Rejects as disconnected when the daemon is gone.
kj::Promise<Result<Collected>> collect(rpc::Instance::Client instance, size_t most = 1u << 20);

}  // namespace capstan
