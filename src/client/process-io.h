#pragma once
// A remote process's streams joined with streams of the client.

#include "stream.capnp.h"

#include <kj/async-io.h>
#include <kj/refcount.h>

namespace capstan {

// Where a process's output goes on the client's side, and how far it has come. Counted: the
// capability that serves it and the client share it.
class OutputTarget final: public kj::Refcounted {
public:
  // Owns the streams and drops them when the output has ended or its delivery is cut. Null = the
  // octets are dropped.
  OutputTarget(kj::Maybe<kj::Own<kj::AsyncOutputStream>> stdoutStream,
               kj::Maybe<kj::Own<kj::AsyncOutputStream>> stderrStream);

  // The sink to hand to the daemon. Each call makes another that feeds the same streams.
  rpc::OutputSink::Client sink();

  // The offset after the last octet that was written: where a later delivery has to begin.
  uint64_t position() const { return next; }
  // Octets that the daemon no longer had.
  uint64_t lost() const { return missing; }
  // Whether a stream of ours has refused octets: its reader is gone.
  bool readerGone() const { return refused; }
  // Resolves when the output has ended and all of it was written. Rejects when the client's own
  // stream fails, and as disconnected when the last sink was dropped before the end (the daemon or
  // the way to it is gone). May be waited for once.
  kj::Promise<void> onEnd() { return kj::mv(ended); }

private:
  class Sink;
  kj::Maybe<kj::Own<kj::AsyncOutputStream>> out;
  kj::Maybe<kj::Own<kj::AsyncOutputStream>> err;
  bool refused = false;
  bool over = false;     // The streams go once nothing is written into them.
  uint32_t writing = 0;  // Writes under way.
  uint32_t sinks = 0;
  uint64_t next = 0;
  uint64_t missing = 0;
  kj::Promise<void> ended;
  kj::Own<kj::PromiseFulfiller<void>> end;

  void fail(kj::Exception reason);
  void release();
  void written();
};

// Copies `from` into a process's stdin until its end, then ends that. Resolves early when the
// process takes no more. `from` must outlive the promise.
kj::Promise<void> feedStdin(kj::AsyncInputStream& from, rpc::ByteStream::Client stdinStream);

}  // namespace capstan
