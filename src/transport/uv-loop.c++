#include "transport/uv-loop.h"

#include "transport/uv-handle.h"

#include <kj/timer.h>

#include <poll.h>

namespace capstan {

struct UvLoop::State {
  uv_loop_t loop;
  uv_async_t keepAlive;

  bool backendReady() {
    struct pollfd fd = {uv_backend_fd(&loop), POLLIN, 0};
    return ::poll(&fd, 1, 0) > 0;
  }

  bool hasProcesses() {
    bool found = false;
    uv_walk(
        &loop,
        [](uv_handle_t* handle, void* result) {
          if (handle->type == UV_PROCESS && uv_is_active(handle)) {
            *static_cast<bool*>(result) = true;
          }
        },
        &found);
    return found;
  }
};

UvLoop::UvLoop(kj::UnixEventPort& port): port(port), state(kj::heap<State>()), running(nullptr) {
  checkUv(uv_loop_init(&state->loop), "uv_loop_init"_kj);
  // One handle that is always active: without any, uv_backend_timeout() is 0 and the pump spins.
  checkUv(uv_async_init(&state->loop, &state->keepAlive, [](uv_async_t*) {}), "uv_async_init"_kj);
  state->keepAlive.data = nullptr;
  observer = kj::heap<kj::UnixEventPort::FdObserver>(port, uv_backend_fd(&state->loop),
                                                     kj::UnixEventPort::FdObserver::OBSERVE_READ);
  running = pump()
                .catch_([](kj::Exception&& failure) {
                  KJ_LOG(FATAL, "libuv is no longer pumped", failure);
                  kj::throwFatalException(kj::mv(failure));
                })
                .fork();
  pumping = running.addBranch();
}

UvLoop::~UvLoop() noexcept(false) {
  pumping = nullptr;
  running = nullptr;
  observer = nullptr;
  // Children that were killed by their owner's drop are gone in a moment: leave no zombies.
  for (int i = 0; i < 50 && state->hasProcesses(); ++i) {
    ::poll(nullptr, 0, 2);
    uv_run(&state->loop, UV_RUN_NOWAIT);
  }
  uv_walk(
      &state->loop,
      [](uv_handle_t* handle, void*) {
        if (!uv_is_closing(handle)) uv_close(handle, &UvHandle::freeClosed);
      },
      nullptr);
  while (uv_run(&state->loop, UV_RUN_DEFAULT) != 0) {
  }
  int rc = uv_loop_close(&state->loop);
  if (rc != 0) KJ_LOG(ERROR, "libuv's loop did not close, ignoring", uv_err_name(rc));
}

uv_loop_s* UvLoop::raw() { return &state->loop; }

void UvLoop::poke() {
  poked = true;
  KJ_IF_MAYBE (fulfiller, kick) {
    (*fulfiller)->fulfill();
    kick = nullptr;
  }
}

kj::Promise<void> UvLoop::pump() {
  auto& clock = kj::systemPreciseMonotonicClock();
  for (;;) {
    // Armed before pumping: kj's observer is edge-triggered, edges without a waiter are lost.
    auto readable = observer->whenBecomesReadable();
    poked = false;
    ++pumps;
    auto start = clock.now();
    uv_run(&state->loop, UV_RUN_NOWAIT);
    pumpObserver(clock.now() - start);

    int timeout = uv_backend_timeout(&state->loop);
    if (timeout == 0 || poked || state->backendReady()) {
      // More to do at once; sockets and kj timers get their turn first.
      co_await port.getTimer().afterDelay(0 * kj::NANOSECONDS);
      continue;
    }
    auto paf = kj::newPromiseAndFulfiller<void>();
    kick = kj::mv(paf.fulfiller);
    auto wake = readable.exclusiveJoin(kj::mv(paf.promise));
    if (timeout > 0) {
      wake = wake.exclusiveJoin(port.getTimer().afterDelay(timeout * kj::MILLISECONDS));
    }
    co_await wake;
    kick = nullptr;
  }
}

}  // namespace capstan
