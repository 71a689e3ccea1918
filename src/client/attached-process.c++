#include "client/attached-process.h"

namespace capstan {

namespace {

constexpr size_t ERRORS_KEPT = 64u << 10;

// The reading end of a pipe whose end of file may also mean a lost delivery.
class DeliveredStream final: public kj::AsyncInputStream {
public:
  DeliveredStream(kj::Own<kj::AsyncInputStream> inner, kj::Promise<void> ended)
      : inner(kj::mv(inner)), ended(ended.fork()) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t least, size_t most) override {
    auto n = co_await inner->tryRead(buffer, least, most);
    if (n < least) co_await ended.addBranch();
    co_return n;
  }

private:
  kj::Own<kj::AsyncInputStream> inner;
  kj::ForkedPromise<void> ended;
};

kj::Promise<Result<rpc::Subscription::Client>> follow(rpc::Instance::Client instance,
                                                      kj::Own<OutputTarget> target) {
  auto request = instance.outputRequest();
  request.setSink(target->sink());
  request.setFollow(true);
  request.setHold(true);
  auto response = co_await request.send();
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return kj::mv(*problem);
  }
  co_return response.getSubscription();
}

}  // namespace

AttachedProcess::AttachedProcess(rpc::Instance::Client instance,
                                 rpc::ByteStream::Client stdinStream, kj::Own<OutputTarget> target,
                                 kj::Own<TailBuffer> tail, kj::Own<kj::AsyncInputStream> from,
                                 rpc::Subscription::Client subscription)
    : instance(kj::mv(instance)),
      to(kj::mv(stdinStream)),
      target(kj::mv(target)),
      tail(kj::mv(tail)),
      from(kj::mv(from)),
      subscription(kj::mv(subscription)) {}

kj::Promise<Result<kj::Own<AttachedProcess>>> AttachedProcess::attach(
    rpc::Instance::Client instance) {
  auto pipe = kj::newOneWayPipe();
  auto tail = kj::refcounted<TailBuffer>(ERRORS_KEPT);
  auto target = kj::refcounted<OutputTarget>(kj::mv(pipe.out), kj::addRef(*tail));
  auto from = kj::heap<DeliveredStream>(kj::mv(pipe.in), target->onEnd());

  // Both at once: one round trip.
  auto granted = instance.stdinRequest().send();
  auto followed = co_await follow(instance, kj::addRef(*target));
  if (followed.is<Problem>()) co_return kj::mv(followed.get<Problem>());
  auto response = co_await granted;
  KJ_IF_MAYBE (problem, readProblem(response.getError())) {
    co_return kj::mv(*problem);
  }
  co_return kj::heap<AttachedProcess>(kj::mv(instance), response.getStdin(), kj::mv(target),
                                      kj::mv(tail), kj::mv(from),
                                      kj::mv(followed.get<rpc::Subscription::Client>()));
}

kj::Promise<Result<Collected>> collect(rpc::Instance::Client instance, size_t most) {
  auto out = kj::refcounted<TailBuffer>(most);
  auto err = kj::refcounted<TailBuffer>(most);
  auto target = kj::refcounted<OutputTarget>(kj::addRef(*out), kj::addRef(*err));
  auto followed = co_await follow(instance, kj::addRef(*target));
  if (followed.is<Problem>()) co_return kj::mv(followed.get<Problem>());
  co_await target->onEnd();
  auto exit = co_await exitOf(instance);
  if (exit.is<Problem>()) co_return kj::mv(exit.get<Problem>());
  co_return Collected{kj::mv(exit.get<ProcessExit>()), out->text(), err->text(),
                      out->dropped() + err->dropped() + target->lost()};
}

}  // namespace capstan
