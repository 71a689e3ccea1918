#include "backends/fake/fake-helper.h"

#include <kj/debug.h>

#include <cstring>

namespace capstan {

namespace {

kj::Exception broken() { return KJ_EXCEPTION(DISCONNECTED, "the connection was cut"); }

class PipeHelper final: public FakeHelper {
public:
  PipeHelper(PipeHelperLauncher& launcher, kj::String name)
      : launcher(launcher), name(kj::mv(name)) {}

  kj::StringPtr key() const override { return name; }
  Credential credential() const override {
    auto nonce = kj::heapArray<kj::byte>(32);
    memset(nonce.begin(), 'n', nonce.size());
    return Credential(Credential::Kind::NONCE, kj::mv(nonce));
  }
  kj::Promise<kj::Own<kj::AsyncIoStream>> dial() override {
    auto pipe = kj::newTwoWayPipe();
    launcher.accepted.add(kj::mv(pipe.ends[1]));
    return kj::mv(pipe.ends[0]);
  }

private:
  PipeHelperLauncher& launcher;
  kj::String name;
};

}  // namespace

kj::Promise<Result<kj::Own<FakeHelper>>> PipeHelperLauncher::launch(kj::String name) {
  auto number = ++launched;
  co_await kj::evalLater([]() {});
  co_return kj::Own<FakeHelper>(kj::refcounted<PipeHelper>(*this, kj::str(name, '#', number)));
}

void CuttableStream::Switch::cut() {
  done = true;
  if (stream != nullptr) stream->cut();
}

CuttableStream::CuttableStream(kj::Own<kj::AsyncIoStream> innerParam, kj::Own<Switch> controlParam)
    : inner(kj::mv(innerParam)), control(kj::mv(controlParam)), whenCut(nullptr) {
  auto pair = kj::newPromiseAndFulfiller<void>();
  cutNow = kj::mv(pair.fulfiller);
  whenCut = pair.promise.fork();
  control->stream = this;
  if (control->done) cut();
}

CuttableStream::~CuttableStream() noexcept(false) { control->stream = nullptr; }

void CuttableStream::cut() {
  canceler.cancel(broken());
  inner = nullptr;
  cutNow->fulfill();
}

kj::Promise<size_t> CuttableStream::tryRead(void* buffer, size_t minBytes, size_t maxBytes) {
  KJ_IF_MAYBE (stream, inner) {
    return canceler.wrap((*stream)->tryRead(buffer, minBytes, maxBytes));
  }
  return broken();
}

kj::Promise<void> CuttableStream::write(const void* buffer, size_t size) {
  KJ_IF_MAYBE (stream, inner) {
    return canceler.wrap((*stream)->write(buffer, size));
  }
  return broken();
}

kj::Promise<void> CuttableStream::write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) {
  KJ_IF_MAYBE (stream, inner) {
    return canceler.wrap((*stream)->write(pieces));
  }
  return broken();
}

kj::Promise<void> CuttableStream::whenWriteDisconnected() {
  KJ_IF_MAYBE (stream, inner) {
    // Not in the canceler: a cut resolves it and does not reject it.
    return (*stream)->whenWriteDisconnected().exclusiveJoin(whenCut.addBranch());
  }
  return kj::READY_NOW;
}

void CuttableStream::shutdownWrite() {
  KJ_IF_MAYBE (stream, inner) {
    (*stream)->shutdownWrite();
  }
}

void CuttableStream::abortRead() {
  KJ_IF_MAYBE (stream, inner) {
    (*stream)->abortRead();
  }
}

}  // namespace capstan
