#include "transport/offload.h"

#include "transport/uv-handle.h"

#include <memory>

namespace capstan {

struct Offload::Counter final: public kj::Refcounted {
  uint32_t jobs = 0;
};

// A request belongs to libuv until its after-callback. Both it and its Withdraw live in the loop's
// thread and know of each other's end.
class Offload::Request final {
public:
  Request(kj::Own<OffloadJob> job, kj::Own<Counter> counter)
      : job(kj::mv(job)),
        counter(kj::mv(counter)),
        initThread(kj::getExceptionCallback().getThreadInitializer()) {
    request.data = this;
    ++this->counter->jobs;
  }
  ~Request() noexcept(false) {
    --counter->jobs;
    if (back != nullptr) *back = nullptr;
  }
  KJ_DISALLOW_COPY_AND_MOVE(Request);

  static void work(uv_work_t* request) {
    auto& self = *static_cast<Request*>(request->data);
    // The worker logs as the loop's thread does.
    self.initThread([&self]() { self.job->work(); });
  }

  static void after(uv_work_t* request, int status) {
    auto self = static_cast<Request*>(request->data);
    // No exception may cross libuv.
    KJ_IF_MAYBE (exception, kj::runCatchingExceptions([&]() {
                   self->job->finish(status == UV_ECANCELED);
                   delete self;
                 })) {
      KJ_LOG(ERROR, "the end of a job on the pool failed, ignoring", *exception);
    }
  }

  uv_work_t request;
  Request** back = nullptr;  // where its Withdraw points to it

private:
  kj::Own<OffloadJob> job;
  kj::Own<Counter> counter;
  kj::Function<void(kj::Function<void()>)> initThread;
};

// Attached to the promise: takes the job back if it has not begun.
class Offload::Withdraw final {
public:
  Withdraw(UvLoop& uv, Request& request): uv(uv), request(&request) {
    request.back = &this->request;
  }
  ~Withdraw() noexcept(false) {
    if (request == nullptr) return;
    request->back = nullptr;
    uv_cancel(reinterpret_cast<uv_req_t*>(&request->request));  // refused once it runs: detached
    uv.poke();
  }
  KJ_DISALLOW_COPY_AND_MOVE(Withdraw);

private:
  UvLoop& uv;
  Request* request;  // null = done
};

Offload::Offload(UvLoop& uv, uint32_t limit)
    : uv(uv), limit(limit), counter(kj::refcounted<Counter>()) {}

Offload::~Offload() noexcept(false) {}

uint32_t Offload::inProgress() const { return counter->jobs; }

kj::Own<void> Offload::submit(kj::Own<OffloadJob> job) {
  if (counter->jobs >= limit) {
    kj::throwFatalException(
        KJ_EXCEPTION(OVERLOADED, "too many jobs wait for the worker pool, retry later", limit));
  }
  // Belongs to libuv once queued; its after-callback deletes it.
  auto request = std::make_unique<Request>(kj::mv(job), kj::addRef(*counter));
  checkUv(uv_queue_work(uv.raw(), &request->request, &Request::work, &Request::after),
          "uv_queue_work"_kj);
  auto& queued = *request.release();
  uv.poke();
  return kj::heap<Withdraw>(uv, queued);
}

}  // namespace capstan
