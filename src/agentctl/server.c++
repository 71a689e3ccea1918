#include "agentctl/server.h"

#include "agentctl/process-tree.h"

#include <kj/debug.h>

#include <algorithm>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

namespace capstan {

namespace {

// From the answer to shutdown() to the end, so that the answer is still written.
constexpr auto LAST_WORDS = 200 * kj::MILLISECONDS;
// Descriptors come back without any event of ours.
constexpr auto ACCEPT_AGAIN = 100 * kj::MILLISECONDS;

kj::String readBootId() {
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  kj::AutoCloseFd owned(fd);
  char text[64];
  ssize_t n = read(fd, text, sizeof(text));
  while (n > 0 && text[n - 1] == '\n') {
    --n;
  }
  return n > 0 ? kj::heapString(text, static_cast<size_t>(n)) : kj::String();
}

}  // namespace

void HelperPeer::prove(uint64_t proved) {
  generation = proved;
  // One wait a run and one report a status, for every instance there can be. Strangers keep the
  // small bound; octets stay bounded for all.
  meter.allow(2 * HelperServer::MAX_INSTANCES, 8 * HelperServer::MAX_INSTANCES);
  proof.fulfiller->fulfill();
}

void HelperPeer::close() { end.fulfiller->fulfill(); }

kj::Promise<void> HelperPeer::proved() { return kj::mv(proof.promise); }

kj::Promise<void> HelperPeer::closed() { return kj::mv(end.promise); }

HelperServer::HelperServer(InstanceHost& host, kj::LowLevelAsyncIoProvider& network,
                           Credentials& credentials, HelperOptions options)
    : host(host),
      network(network),
      credentials(credentials),
      serverId(randomBytes(SERVER_ID_BYTES)),
      options(options),
      startTicks(startTicksOf(getpid())),
      bootId(readBootId()),
      tasks(*this) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  startedAtMs = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  auto paf = kj::newPromiseAndFulfiller<void>();
  finisher = kj::mv(paf.fulfiller);
  finished = kj::mv(paf.promise);
}

HelperServer::~HelperServer() noexcept(false) {}

void HelperServer::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "a task of the helper failed", exception);
}

kj::Promise<void> HelperServer::run(kj::Own<kj::ConnectionReceiver> receiver) {
  ownerIsAbsent();
  tasks.add(acceptAll(kj::mv(receiver)));
  co_await finished;
}

kj::Promise<void> HelperServer::acceptAll(kj::Own<kj::ConnectionReceiver> receiver) {
  bool failing = false;
  for (;;) {
    kj::Maybe<kj::Own<kj::AsyncIoStream>> next;
    try {
      next = co_await receiver->accept();
    } catch (const kj::Exception& exception) {
      // Out of descriptors, as a rule: processes that end give theirs back.
      if (!failing) KJ_LOG(ERROR, "cannot accept a connection, trying on", exception);
    }
    failing = next == nullptr;
    if (failing) {
      co_await host.timer.afterDelay(ACCEPT_AGAIN);
      continue;
    }
    auto stream = kj::mv(KJ_ASSERT_NONNULL(next));
    if (peers.size() >= MAX_CONNECTIONS || strangers >= MAX_STRANGERS) continue;  // Closes it.
    tasks.add(serve(kj::mv(stream)));
  }
}

kj::Promise<void> HelperServer::serve(kj::Own<kj::AsyncIoStream> stream) {
  kj::Own<HelperPeer> peer;
  auto connection = RpcConnection::serve(host.timer, kj::mv(stream), [&](CallMeter& meter) {
    peer = kj::refcounted<HelperPeer>(meter);
    return capnp::Capability::Client(newAgentctlCap(*this, kj::addRef(*peer)));
  });
  peer->budget = kj::addRef(connection->streamBudget());
  auto address = peer.get();
  peers.add(address);
  KJ_DEFER({
    auto it = std::find(peers.begin(), peers.end(), address);
    *it = peers.back();
    peers.removeLast();
  });
  co_await connection->onDisconnect()
      .exclusiveJoin(peer->closed())
      .exclusiveJoin(limitHandshake(kj::addRef(*peer)));
}

kj::Promise<void> HelperServer::limitHandshake(kj::Own<HelperPeer> peer) {
  ++strangers;
  {
    KJ_DEFER(--strangers);
    auto deadline = host.timer.now() + options.handshakeLimit;
    auto proved = peer->proved();
    co_await proved.exclusiveJoin(host.timer.atTime(deadline));
  }
  if (peer->generation != nullptr) co_await kj::Promise<void>(kj::NEVER_DONE);
}

// ---- instances

Result<kj::Own<HelperInstance>> HelperServer::find(kj::StringPtr id) {
  KJ_IF_MAYBE (instance, instances.find(id)) {
    return kj::addRef(**instance);
  }
  return Problem(ErrorCode::NOT_FOUND, kj::str("there is no instance '", id, "'"));
}

Result<kj::Own<HelperInstance>> HelperServer::create(agentctl::InstanceSpec::Reader spec) {
  if (draining) {
    return Problem(ErrorCode::SHUTTING_DOWN, kj::str("this helper takes no new instances"));
  }
  if (instances.find(spec.getId()) != nullptr) {
    return Problem(ErrorCode::ALREADY_EXISTS,
                   kj::str("there is an instance '", spec.getId(), "' already"));
  }
  if (instances.size() >= MAX_INSTANCES) {
    return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("too many instances"))
        .advise(kj::str("remove ended ones"));
  }
  auto made = HelperInstance::create(host, spec);
  KJ_IF_MAYBE (problem, made.tryGet<Problem>()) {
    return kj::mv(*problem);
  }
  auto instance = kj::mv(made.get<kj::Own<HelperInstance>>());
  instances.insert(kj::heapString(instance->id()), kj::addRef(*instance));
  tasks.add(watchInstance(kj::addRef(*instance)));
  return kj::mv(instance);
}

kj::Vector<kj::Own<HelperInstance>> HelperServer::all() {
  kj::Vector<kj::Own<HelperInstance>> result(instances.size());
  for (auto& entry: instances) {
    result.add(kj::addRef(*entry.value));
  }
  return result;
}

kj::Promise<void> HelperServer::watchInstance(kj::Own<HelperInstance> instance) {
  co_await instance->whenIdle();
  if (owners == 0 && instance->isEphemeral()) remove(instance->id());
  finishIfDrained();
}

void HelperServer::acknowledge(kj::StringPtr id) {
  KJ_IF_MAYBE (instance, instances.find(id)) {
    (*instance)->acknowledge();
  }
  finishIfDrained();
}

Outcome HelperServer::remove(kj::StringPtr id) {
  KJ_IF_MAYBE (found, instances.find(id)) {
    auto instance = kj::addRef(**found);
    if (!instance->hasEnded() || instance->isLive()) {
      return Problem(ErrorCode::WRONG_STATE, kj::str("the instance has not ended"))
          .advise(kj::str("stop it first"));
    }
    instance->removeFiles();
    instances.erase(instance->id());
    finishIfDrained();
    return nullptr;
  }
  return Problem(ErrorCode::NOT_FOUND, kj::str("there is no instance '", id, "'"));
}

// ---- owners

void HelperServer::endStaleConnections(const HelperPeer& keep) {
  for (auto peer: peers) {
    KJ_IF_MAYBE (generation, peer->generation) {
      if (peer != &keep && !credentials.isValid(*generation)) peer->close();
    }
  }
}

void HelperServer::ownerCame() {
  ++owners;
  unowned = nullptr;
  idle = nullptr;
}

void HelperServer::ownerWent() {
  if (--owners == 0) ownerIsAbsent();
}

void HelperServer::ownerIsAbsent() {
  auto failed = [](kj::Exception&& e) { KJ_LOG(ERROR, "the count of an absence failed", e); };
  unowned = countUnowned().eagerlyEvaluate(failed);
  idle = countIdle().eagerlyEvaluate(failed);
}

kj::Promise<void> HelperServer::countUnowned() {
  bool bounded = options.unownedPeriod > 0 * kj::SECONDS;
  auto since = host.timer.now();
  if (!bounded || options.ephemeralGrace < options.unownedPeriod) {
    co_await host.timer.atTime(since + options.ephemeralGrace);
    for (auto& instance: all()) {
      // In the task set: an owner that comes back now does not undo an end that has begun.
      if (instance->isEphemeral()) tasks.add(endEphemeral(kj::mv(instance)));
    }
  }
  if (!bounded) co_return;
  co_await host.timer.atTime(since + options.unownedPeriod);
  endUnowned("nobody owned this helper for the whole period");
}

kj::Promise<void> HelperServer::countIdle() {
  if (options.idlePeriod == 0 * kj::SECONDS) co_return;
  constexpr kj::Duration LOOK = 30 * kj::SECONDS;
  auto since = host.timer.now();
  while (host.timer.now() - since < options.idlePeriod) {
    co_await host.timer.afterDelay(kj::min(LOOK, options.idlePeriod));
    if (all().size() > 0) since = host.timer.now();
  }
  endUnowned("nobody owned this helper, and it held nothing");
}

void HelperServer::endUnowned(kj::StringPtr why) {
  KJ_LOG(WARNING, "the helper ends", why);
  auto done = kj::newPromiseAndFulfiller<uint32_t>();
  tasks.add(runShutdown(0, kj::mv(done.fulfiller)));
}

kj::Promise<void> HelperServer::endEphemeral(kj::Own<HelperInstance> instance) {
  co_await instance->stop(0, false);
  if (!instance->isLive() && instance->hasEnded()) remove(instance->id());
}

// ---- the end

void HelperServer::drain() {
  draining = true;
  finishIfDrained();
}

void HelperServer::finishIfDrained() {
  if (!draining) return;
  for (auto& entry: instances) {
    auto& instance = *entry.value;
    // An outcome that nobody has taken yet is kept for the owner.
    bool taken = instance.isAcknowledged() || instance.isEphemeral();
    if (!instance.hasEnded() || instance.isLive() || !taken) return;
  }
  tasks.add(host.timer.afterDelay(LAST_WORDS).then([this]() { finisher->fulfill(); }));
}

kj::Promise<uint32_t> HelperServer::shutdown(uint64_t graceMs) {
  auto paf = kj::newPromiseAndFulfiller<uint32_t>();
  tasks.add(runShutdown(graceMs, kj::mv(paf.fulfiller)));
  return kj::mv(paf.promise);
}

kj::Promise<void> HelperServer::runShutdown(uint64_t graceMs,
                                            kj::Own<kj::PromiseFulfiller<uint32_t>> done) {
  draining = true;
  auto everything = all();
  kj::Vector<kj::Promise<uint32_t>> stops;
  for (auto& instance: everything) {
    stops.add(instance->stop(graceMs, false));
  }
  uint32_t survivors = 0;
  for (auto& stop: stops) {
    survivors += co_await stop;
  }
  if (survivors > 0) KJ_LOG(WARNING, "processes are left that could not be ended", survivors);
  done->fulfill(kj::cp(survivors));
  co_await host.timer.afterDelay(LAST_WORDS);
  finisher->fulfill();
}

void HelperServer::writeInfo(agentctl::ServerInfo::Builder builder) const {
  builder.setServerId(serverId);
  builder.setBuild(helperBuild());
  auto words = helperCapabilities(options.subreaper);
  auto list = builder.initCapabilities(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    list.set(i, words[i]);
  }
  builder.setPid(getpid());
  builder.setStartTicks(startTicks);
  builder.setBootId(bootId);
  builder.setPlatform(helperPlatform());
  builder.setStartedAt(startedAtMs);
  builder.setDraining(draining);
}

}  // namespace capstan
