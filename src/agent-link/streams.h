#pragma once
// Bulk streams of one instance: its output log and its stdin, each on a connection of its own.

#include "agentctl.capnp.h"
#include "base/problem.h"
#include "domain/process.h"
#include "wire/rpc-connection.h"

#include <kj/async.h>

namespace capstan {

// From where and how an output log is read.
struct OutputRequest {
  uint64_t offset = 0;
  bool follow = false;  // Until the process's output ends, instead of to its present end.
  bool hold = false;    // The process waits for this reader rather than lose output.
};

enum class TakeOver { NO, YES };

// Takes an output log in order. A call's promise is the back-pressure: the next octets come when
// the helper's window has room. A rejection ends the delivery.
class OutputReceiver {
public:
  virtual ~OutputReceiver() noexcept(false) = default;
  // `bytes` is valid until the promise ends.
  virtual kj::Promise<void> write(uint64_t offset, OutputStream stream,
                                  kj::ArrayPtr<const kj::byte> bytes) = 0;
  // Octets [from, to) are no longer kept.
  virtual kj::Promise<void> gap(uint64_t from, uint64_t to) = 0;
  // Nothing follows.
  virtual kj::Promise<void> end(uint64_t offset) = 0;
};

// An authenticated bulk connection. Closed when dropped.
struct BulkConnection {
  kj::Own<RpcConnection> connection;
  agentctl::Bulk::Client bulk;
};

// A delivery in progress. Dropping it stops it.
class OutputReading {
public:
  OutputReading(kj::Own<BulkConnection> connection, rpc::Subscription::Client subscription)
      : connection(kj::mv(connection)), subscription(kj::mv(subscription)) {}
  // Resolves when the connection under it is gone; the receiver's end() tells of an orderly end.
  kj::Promise<void> onLost() { return connection->connection->onDisconnect(); }

private:
  kj::Own<BulkConnection> connection;
  rpc::Subscription::Client subscription;
};

// The writer of an instance's stdin. Dropped without end(): stdin stays open for the next writer.
class StdinWriter {
public:
  StdinWriter(kj::Own<BulkConnection> connection, rpc::ByteStream::Client stream)
      : connection(kj::mv(connection)), stream(kj::mv(stream)) {}
  // At most 64 KiB. Resolves when the next write may follow (the flow window has room).
  kj::Promise<void> write(kj::ArrayPtr<const kj::byte> bytes);
  // Closes the process's stdin; resolves when all that was written lies in its buffer.
  kj::Promise<void> end();

private:
  kj::Own<BulkConnection> connection;
  rpc::ByteStream::Client stream;
};

// Serves OutputSink to the helper and hands everything to `receiver`.
rpc::OutputSink::Client makeOutputSink(kj::Own<OutputReceiver> receiver);

}  // namespace capstan
