#include "backends/fake/fake-network.h"

#include <kj/debug.h>

#include <deque>

namespace capstan {

class FakeNetwork::Receiver final: public kj::ConnectionReceiver {
public:
  Receiver(FakeNetwork& network, kj::String key, uint16_t port)
      : network(network), key(kj::mv(key)), number(port) {
    network.receivers.insert(kj::str(this->key), this);
  }
  ~Receiver() noexcept(false) {
    KJ_IF_MAYBE (present, owner()) {
      present->receivers.erase(key);
    }
  }

  void push(kj::Own<kj::AsyncIoStream> stream) {
    waiting.push_back(kj::mv(stream));
    KJ_IF_MAYBE (fulfiller, wake) {
      (*fulfiller)->fulfill();
    }
    wake = nullptr;
  }
  void networkEnded() { ended = true; }

  kj::Promise<kj::Own<kj::AsyncIoStream>> accept() override {
    while (waiting.empty()) {
      auto pair = kj::newPromiseAndFulfiller<void>();
      wake = kj::mv(pair.fulfiller);
      co_await pair.promise;
    }
    auto stream = kj::mv(waiting.front());
    waiting.pop_front();
    co_return kj::mv(stream);
  }
  kj::Promise<kj::AuthenticatedStream> acceptAuthenticated() override {
    auto stream = co_await accept();
    co_return kj::AuthenticatedStream{kj::mv(stream), kj::UnknownPeerIdentity::newInstance()};
  }
  kj::uint getPort() override { return number; }

private:
  FakeNetwork& network;
  kj::String key;
  uint16_t number;
  bool ended = false;
  std::deque<kj::Own<kj::AsyncIoStream>> waiting;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> wake;

  kj::Maybe<FakeNetwork&> owner() {
    if (ended) return nullptr;
    return network;
  }
};

FakeNetwork::~FakeNetwork() noexcept(false) {
  for (auto& each: receivers)
    each.value->networkEnded();
}

void FakeNetwork::servePort(kj::StringPtr environmentId, uint16_t port, Serve serve) {
  served.upsert(keyOf(environmentId, port), kj::mv(serve));
}

void FakeNetwork::endPort(kj::StringPtr environmentId, uint16_t port) {
  served.erase(keyOf(environmentId, port));
}

kj::Maybe<kj::Own<kj::AsyncIoStream>> FakeNetwork::connect(kj::StringPtr environmentId,
                                                           uint16_t port) {
  KJ_IF_MAYBE (receiver, receivers.find(keyOf(environmentId, port))) {
    auto pipe = kj::newTwoWayPipe();
    (*receiver)->push(kj::mv(pipe.ends[1]));
    return kj::mv(pipe.ends[0]);
  }
  return nullptr;
}

Result<kj::Own<kj::AsyncIoStream>> FakeNetwork::dial(kj::StringPtr environmentId, uint16_t port) {
  KJ_IF_MAYBE (serve, served.find(keyOf(environmentId, port))) {
    auto pipe = kj::newTwoWayPipe();
    (*serve)(kj::mv(pipe.ends[1]));
    return kj::mv(pipe.ends[0]);
  }
  return Problem(ErrorCode::UNREACHABLE, kj::str("nothing listens on port ", port))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

Result<kj::Own<kj::ConnectionReceiver>> FakeNetwork::listen(kj::StringPtr environmentId,
                                                            uint16_t port) {
  constexpr uint16_t FIRST_FREE = 32768;
  bool any = port == 0;
  if (any) port = FIRST_FREE;
  while (receivers.find(keyOf(environmentId, port)) != nullptr) {
    if (!any || port == UINT16_MAX) {
      return Problem(ErrorCode::PORT_IN_USE, kj::str("port ", port, " is in use"));
    }
    ++port;
  }
  return kj::Own<kj::ConnectionReceiver>(
      kj::heap<Receiver>(*this, keyOf(environmentId, port), port));
}

}  // namespace capstan
