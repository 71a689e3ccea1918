#pragma once
// Output and stdin of a process between a client and the helper.

#include "agent-link/streams.h"
#include "core/process-actor.h"
#include "environment.capnp.h"
#include "rpc/guard.h"
#include "stream.capnp.h"

namespace capstan {

// Hands an output log to a client's sink. A null sink takes everything and keeps nothing. The
// counts are shared with the subscription that stands for the delivery.
struct DeliveryCount final: public kj::Refcounted {
  uint64_t octets = 0;
};
kj::Own<OutputReceiver> newClientReceiver(kj::Maybe<rpc::OutputSink::Client> sink,
                                          kj::Own<DeliveryCount> count);

// Stands for one delivery: dropped by the client = the delivery stops.
rpc::Subscription::Client newSubscription(kj::Own<OutputReading> reading,
                                          kj::Own<DeliveryCount> count,
                                          kj::Own<ProcessActor> process, Guard guard);

// The client's end of a process's stdin.
rpc::ByteStream::Client newStdin(kj::Own<StdinWriter> writer, kj::Own<ProcessActor> process);

// The client's sink of a request, null when it gave none.
template <typename Params>
kj::Maybe<rpc::OutputSink::Client> sinkOf(Params params) {
  if (params.hasSink()) return params.getSink();
  return nullptr;
}

// Starts a delivery and fills `subscription` or the error of an output() method. Holding the
// process back changes it, so that needs the right to attach as well.
template <typename Context>
kj::Promise<void> deliver(Context context, kj::Own<ProcessActor> process, Guard guard,
                          OutputRequest what) {
  constexpr MethodRule HOLD{"output with hold", Right::ATTACH, WhenBusy::ANSWERED};
  if (what.hold && guard.refuses(HOLD, context)) co_return;
  auto count = kj::refcounted<DeliveryCount>();
  auto receiver = newClientReceiver(sinkOf(context.getParams()), kj::addRef(*count));
  auto opened = co_await process->output(what, kj::mv(receiver));
  if (opened.template is<Problem>()) {
    fail(context.getResults(), opened.template get<Problem>());
    co_return;
  }
  context.getResults().setSubscription(
      newSubscription(kj::mv(opened.template get<kj::Own<OutputReading>>()), kj::mv(count),
                      kj::mv(process), kj::mv(guard)));
}

// The client's sink of steps; null = it wants none.
template <typename Params>
kj::Maybe<rpc::Progress::Client> progressOf(Params params) {
  if (params.hasProgress()) return params.getProgress();
  return nullptr;
}

// Shows steps to a client's Progress. Reports that the client does not take in time are dropped;
// a client that is gone is not reported to.
class ClientProgress final: public ProgressSink, private kj::TaskSet::ErrorHandler {
public:
  explicit ClientProgress(kj::Maybe<rpc::Progress::Client> client);
  void report(const PrepareStep& step, uint16_t index, uint16_t total) override;

private:
  kj::Maybe<rpc::Progress::Client> client;
  uint32_t inFlight = 0;
  kj::TaskSet sends;
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan
