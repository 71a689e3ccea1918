#pragma once
// libuv as a guest of kj's event loop, in the same thread.

#include <kj/async-unix.h>
#include <kj/async.h>
#include <kj/function.h>
#include <kj/time.h>

struct uv_loop_s;

namespace capstan {

// Runs a uv_loop_t inside kj's UnixEventPort, which stays the loop: libuv's backend descriptor is
// watched, its timeout becomes a kj timer, and it is pumped without ever waiting. Idle costs
// nothing. libuv alone owns SIGCHLD: kj's onChildExit() must not be used in the same process.
// `port` must outlive it, and everything made with it (Child, Offload) must be destroyed before it.
class UvLoop final {
public:
  explicit UvLoop(kj::UnixEventPort& port);
  // Waits for work that already runs on the pool, and up to 100 ms for killed children.
  ~UvLoop() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(UvLoop);

  // For the files of transport/ that call libuv. After every call that starts, changes or closes
  // something, made outside a libuv callback, call poke(): libuv tells the kernel only when pumped.
  uv_loop_s* raw();
  void poke();

  kj::Timer& timer() { return port.getTimer(); }

  // How often it was pumped; a still loop does not grow it.
  uint64_t pumpCount() const { return pumps; }

  // `observer` is told how long each pump took: time in which the loop could do nothing else.
  void setPumpObserver(kj::Function<void(kj::Duration)> observer) {
    pumpObserver = kj::mv(observer);
  }

  // Rejects if the pump ever fails (never seen; the process should end then). To be called once.
  kj::Promise<void> onFailure() { return kj::mv(pumping); }

private:
  struct State;
  kj::UnixEventPort& port;
  kj::Own<State> state;
  kj::Function<void(kj::Duration)> pumpObserver = [](kj::Duration) {};
  kj::Own<kj::UnixEventPort::FdObserver> observer;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> kick;
  bool poked = false;
  uint64_t pumps = 0;
  kj::ForkedPromise<void> running;  // after all it touches
  kj::Promise<void> pumping = nullptr;

  kj::Promise<void> pump();
};

}  // namespace capstan
