#pragma once
// The helper itself: who is connected, which instances there are, and when it ends.

#include "agentctl/build-info.h"
#include "agentctl/credentials.h"
#include "agentctl/instance.h"
#include "wire/rpc-connection.h"

#include <kj/async-io.h>
#include <kj/map.h>

namespace capstan {

struct HelperOptions {
  kj::Duration ephemeralGrace = 10 * kj::SECONDS;  // From the owner's going to their end.
  kj::Duration unownedPeriod = 0 * kj::SECONDS;    // Without an owner this long: end. 0 = never.
  // Without an owner, and without any instance, an ended one included, this long: end. 0 = never.
  kj::Duration idlePeriod = 0 * kj::SECONDS;
  kj::Duration handshakeLimit = 10 * kj::SECONDS;
  SubreaperSupport subreaper = SubreaperSupport::AVAILABLE;
};

// One connection, as its capabilities see it.
class HelperPeer final: public kj::Refcounted {
public:
  explicit HelperPeer(CallMeter& meter): meter(meter) {}

  CallMeter& meter;  // Lives as long as the connection, as every capability does.
  kj::Maybe<kj::Own<StreamBudget>> budget;
  bool begun = false;              // One handshake a connection.
  kj::Maybe<uint64_t> generation;  // Of the credential that was proved.

  // Notes that the peer has proved to know the credential of `generation`.
  void prove(uint64_t generation);
  // Ends the connection.
  void close();
  kj::Promise<void> proved();  // Each to be called once.
  kj::Promise<void> closed();

private:
  kj::PromiseFulfillerPair<void> proof = kj::newPromiseAndFulfiller<void>();
  kj::PromiseFulfillerPair<void> end = kj::newPromiseAndFulfiller<void>();
};

// Everything given by reference must outlive it. Destroying it cuts all connections and lets the
// reapers end what still runs.
class HelperServer final: private kj::TaskSet::ErrorHandler {
public:
  static constexpr size_t MAX_INSTANCES = 4096;  // Ended ones that were not removed included.
  static constexpr size_t MAX_CONNECTIONS = 1024;
  static constexpr size_t MAX_STRANGERS = 64;  // Connections that have proved nothing yet.

  HelperServer(InstanceHost& host, kj::LowLevelAsyncIoProvider& network, Credentials& credentials,
               HelperOptions options);
  ~HelperServer() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(HelperServer);

  // Accepts connections until the helper is to end: after shutdown(), drain() or an unowned period.
  kj::Promise<void> run(kj::Own<kj::ConnectionReceiver> receiver);

  // ---- for the capabilities
  InstanceHost& host;
  kj::LowLevelAsyncIoProvider& network;
  Credentials& credentials;
  const kj::Array<kj::byte> serverId;

  Result<kj::Own<HelperInstance>> find(kj::StringPtr id);  // Problems: notFound.
  Result<kj::Own<HelperInstance>> create(agentctl::InstanceSpec::Reader spec);
  kj::Vector<kj::Own<HelperInstance>> all();
  void acknowledge(kj::StringPtr id);
  Outcome remove(kj::StringPtr id);

  // Ends connections whose credential is valid no longer, but `keep`.
  void endStaleConnections(const HelperPeer& keep);
  // A control capability came into being, or went.
  void ownerCame();
  void ownerWent();

  void drain();
  bool isDraining() const { return draining; }
  // Ends all instances; resolves with the number of processes that are left. The helper ends soon
  // after. graceMs 0 = each instance's own. Dropping the promise does not stop it.
  kj::Promise<uint32_t> shutdown(uint64_t graceMs);

  void writeInfo(agentctl::ServerInfo::Builder builder) const;

private:
  HelperOptions options;
  int64_t startedAtMs;
  uint64_t startTicks;
  kj::String bootId;
  bool draining = false;
  size_t owners = 0;
  size_t strangers = 0;
  kj::HashMap<kj::String, kj::Own<HelperInstance>> instances;
  kj::Vector<HelperPeer*> peers;
  kj::Own<kj::PromiseFulfiller<void>> finisher;
  kj::Promise<void> finished = nullptr;
  kj::Promise<void> unowned = nullptr;  // These count while there is no owner.
  kj::Promise<void> idle = nullptr;
  kj::TaskSet tasks;  // last

  kj::Promise<void> acceptAll(kj::Own<kj::ConnectionReceiver> receiver);
  kj::Promise<void> serve(kj::Own<kj::AsyncIoStream> stream);
  kj::Promise<void> limitHandshake(kj::Own<HelperPeer> peer);
  kj::Promise<void> watchInstance(kj::Own<HelperInstance> instance);
  kj::Promise<void> countUnowned();
  kj::Promise<void> countIdle();
  void ownerIsAbsent();
  void endUnowned(kj::StringPtr why);
  kj::Promise<void> endEphemeral(kj::Own<HelperInstance> instance);
  kj::Promise<void> runShutdown(uint64_t graceMs, kj::Own<kj::PromiseFulfiller<uint32_t>> done);
  void finishIfDrained();
  void taskFailed(kj::Exception&& exception) override;
};

// The object every connection begins with.
agentctl::Agentctl::Client newAgentctlCap(HelperServer& server, kj::Own<HelperPeer> peer);

}  // namespace capstan
