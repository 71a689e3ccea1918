#pragma once
// The helper of a fake place: whatever the test runs as one.

#include "base/credential.h"
#include "base/problem.h"

#include <kj/async-io.h>
#include <kj/refcount.h>
#include <kj/vector.h>

namespace capstan {

// A running helper. Counted by the places that it serves; dropping the last reference ends it.
class FakeHelper: public kj::Refcounted {
public:
  virtual ~FakeHelper() noexcept(false) = default;
  // Equal for equal helpers only.
  virtual kj::StringPtr key() const = 0;
  virtual Credential credential() const = 0;
  // It is no part of a place: its connections stay when one of its places goes, and are not cut
  // with it. As with runtimes whose one helper serves all their places.
  virtual bool servesMany() const { return false; }
  // One new connection; disconnected when it has ended.
  virtual kj::Promise<kj::Own<kj::AsyncIoStream>> dial() = 0;
};

// Starts helpers. Must outlive the backends that use it.
class FakeHelperLauncher {
public:
  virtual ~FakeHelperLauncher() noexcept(false) = default;
  // One for the place `name`; may be one that serves others too. Dropping the promise ends a start
  // that nobody else waits for.
  virtual kj::Promise<Result<kj::Own<FakeHelper>>> launch(kj::String name) = 0;
};

// Helpers that are no process: every dial makes a pipe in memory and keeps its other end. For tests
// that only look at connections, without I/O.
class PipeHelperLauncher final: public FakeHelperLauncher {
public:
  kj::Promise<Result<kj::Own<FakeHelper>>> launch(kj::String name) override;

  size_t launched = 0;
  // The helper's ends of all connections, in the order of the dials.
  kj::Vector<kj::Own<kj::AsyncIoStream>> accepted;
};

// A connection that can be cut from outside: both ends then see it broken.
class CuttableStream final: public kj::AsyncIoStream {
public:
  // What cuts a stream, also after the stream itself is gone.
  class Switch final: public kj::Refcounted {
  public:
    void cut();
    bool isCut() const { return done; }

  private:
    friend class CuttableStream;
    bool done = false;
    CuttableStream* stream = nullptr;  // Null before and after its life.
  };

  CuttableStream(kj::Own<kj::AsyncIoStream> inner, kj::Own<Switch> control);
  ~CuttableStream() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(CuttableStream);

  kj::Promise<size_t> tryRead(void* buffer, size_t minBytes, size_t maxBytes) override;
  kj::Promise<void> write(const void* buffer, size_t size) override;
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override;
  kj::Promise<void> whenWriteDisconnected() override;
  void shutdownWrite() override;
  void abortRead() override;

private:
  kj::Maybe<kj::Own<kj::AsyncIoStream>> inner;  // Null once cut.
  kj::Own<Switch> control;
  kj::Own<kj::PromiseFulfiller<void>> cutNow;
  kj::ForkedPromise<void> whenCut;
  kj::Canceler canceler;  // last

  void cut();
};

}  // namespace capstan
