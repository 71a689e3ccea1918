#include "agent-link/link.h"

#include "agent-link/bounded.h"
#include "wire/handshake.h"

namespace capstan {

namespace {

agentctl::CredentialKind schemaKind(Credential::Kind kind) {
  return kind == Credential::Kind::NONCE ? agentctl::CredentialKind::NONCE
                                         : agentctl::CredentialKind::TOKEN;
}

// The first half of the handshake: the helper has proved itself and waits for our proof.
struct Proved {
  kj::Own<RpcConnection> connection;
  agentctl::Attempt::Client attempt;
  kj::Array<kj::byte> proof;
};

kj::Promise<Result<Proved>> greet(kj::Timer& timer, StreamDialer& dialer, HelperKey key) {
  auto& credential = key.credential;
  auto dialed = co_await kj::evalNow([&]() { return dialer.dial(); })
                    .then([](kj::Own<kj::AsyncIoStream>&& stream)
                              -> Result<kj::Own<kj::AsyncIoStream>> { return kj::mv(stream); },
                          [](kj::Exception&& e) -> Result<kj::Own<kj::AsyncIoStream>> {
                            return asProblem(e).from("agentctl", kj::str(takeover::NO_SERVER));
                          });
  if (dialed.is<Problem>()) co_return kj::mv(dialed.get<Problem>());
  auto stream = kj::mv(dialed.get<kj::Own<kj::AsyncIoStream>>());
  auto connection = RpcConnection::connect(timer, kj::mv(stream));
  auto helper = connection->bootstrap().castAs<agentctl::Agentctl>();

  auto challenge = randomBytes(CHALLENGE_BYTES);
  auto request = helper.beginRequest();
  request.setKind(schemaKind(credential.kind()));
  request.setChallenge(challenge);
  request.setRotationId(key.rotation);
  auto response = co_await request.send();
  KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
    co_return kj::mv(*problem);
  }

  if (key.serverId.size() > 0 && response.getServerId() != key.serverId.asPtr()) {
    co_return Problem(ErrorCode::AUTH_FAILED, kj::str("another helper answers"))
        .because(kj::str("it does not have the identity that was written down"))
        .from("agentctl", kj::str(takeover::IDENTITY_MISMATCH));
  }
  HandshakeView seen{schemaKind(credential.kind()), response.getServerId(), challenge,
                     response.getChallenge()};
  if (!isWellFormed(seen) ||
      !handshakeProofHolds(credential.key(), seen, HandshakeRole::AGENTCTL, response.getProof())) {
    co_return Problem(ErrorCode::AUTH_FAILED, kj::str("the peer is not this daemon's helper"))
        .because(kj::str("it could not prove that it knows the credential"))
        .from("agentctl", kj::str(takeover::AUTHENTICATION_FAILED));
  }
  auto proof = handshakeProof(credential.key(), seen, HandshakeRole::DAEMON);
  co_return Proved{kj::mv(connection), response.getAttempt(),
                   kj::heapArray<kj::byte>(proof.begin(), proof.size())};
}

struct Controlled {
  kj::Own<RpcConnection> connection;
  agentctl::Control::Client control;
  HelperInfo info;
  kj::Maybe<Credential> token;
  uint64_t rotation;
};

Problem rotationFailed(Problem problem) {
  return kj::mv(problem).from("agentctl", kj::str(takeover::CREDENTIAL_ROTATION_FAILED));
}

kj::Promise<Outcome> confirmToken(agentctl::Control::Client control, uint64_t rotation) {
  auto request = control.confirmCredentialRequest();
  request.setRotationId(rotation);
  auto answer = co_await request.send();
  co_return readHelperError(answer.getError());
}

// How a new token comes into force.
struct Rotation {
  uint64_t held;  // What opened the connection; 0 = a nonce.
  uint64_t next;
  bool beside;  // The one before goes on to be good, and nothing is confirmed.
};

// A token that works beside the old credential, durable, then instead of it.
kj::Promise<Result<Credential>> rotate(agentctl::Control::Client control, HelperInfo& helper,
                                       Rotation rotation, KeepToken& keep) {
  if (rotation.held > 0 && !rotation.beside) {
    // Its confirmation may have been lost: repeating it changes nothing.
    KJ_IF_MAYBE (problem, co_await confirmToken(control, rotation.held)) {
      co_return rotationFailed(kj::mv(*problem));
    }
  }
  auto request = control.rotateCredentialRequest();
  request.setRotationId(rotation.next);
  auto rotated = co_await request.send();
  KJ_IF_MAYBE (problem, readHelperError(rotated.getError())) {
    co_return rotationFailed(kj::mv(*problem));
  }
  Credential token(Credential::Kind::TOKEN, kj::heapArray<kj::byte>(rotated.getToken()));
  KJ_IF_MAYBE (problem, co_await keep(helper, token, rotation.next)) {
    co_return rotationFailed(kj::mv(*problem));
  }
  if (!rotation.beside) {
    KJ_IF_MAYBE (problem, co_await confirmToken(control, rotation.next)) {
      co_return rotationFailed(kj::mv(*problem));
    }
  }
  co_return kj::mv(token);
}

kj::Promise<Result<Controlled>> takeControl(kj::Timer& timer, StreamDialer& dialer, HelperKey key,
                                            Rotation rotation, KeepToken keep) {
  auto greeted = co_await greet(timer, dialer, kj::mv(key));
  if (greeted.is<Problem>()) co_return kj::mv(greeted.get<Problem>());
  auto proved = kj::mv(greeted.get<Proved>());

  auto request = proved.attempt.controlRequest();
  request.setProof(proved.proof);
  auto admitted = co_await request.send();
  KJ_IF_MAYBE (problem, readHelperError(admitted.getError())) {
    co_return kj::mv(*problem).from("agentctl", kj::str(takeover::AUTHENTICATION_FAILED));
  }
  auto control = admitted.getControl();

  auto info = co_await control.infoRequest().send();
  auto helper = readHelperInfo(info.getInfo());
  auto token = co_await rotate(control, helper, rotation, keep);
  if (token.is<Problem>()) co_return kj::mv(token.get<Problem>());
  co_return Controlled{kj::mv(proved.connection), kj::mv(control), kj::mv(helper),
                       kj::mv(token.get<Credential>()), rotation.next};
}

kj::Own<AgentLink> linkOf(kj::Timer& timer, kj::Own<StreamDialer> dialer, Controlled controlled,
                          Deadlines deadlines) {
  return kj::refcounted<AgentLink>(timer, kj::mv(dialer),
                                   kj::mv(KJ_ASSERT_NONNULL(controlled.token)), controlled.rotation,
                                   deadlines, kj::mv(controlled.connection),
                                   kj::mv(controlled.control), kj::mv(controlled.info));
}

kj::Promise<Result<kj::Own<BulkConnection>>> takeBulk(kj::Timer& timer, StreamDialer& dialer,
                                                      HelperKey key) {
  auto greeted = co_await greet(timer, dialer, kj::mv(key));
  if (greeted.is<Problem>()) co_return kj::mv(greeted.get<Problem>());
  auto proved = kj::mv(greeted.get<Proved>());
  auto request = proved.attempt.bulkRequest();
  request.setProof(proved.proof);
  auto admitted = co_await request.send();
  KJ_IF_MAYBE (problem, readHelperError(admitted.getError())) {
    co_return kj::mv(*problem);
  }
  co_return kj::heap<BulkConnection>(BulkConnection{kj::mv(proved.connection), admitted.getBulk()});
}

}  // namespace

kj::Promise<Result<kj::Own<AgentLink>>> AgentLink::open(kj::Timer& timer,
                                                        kj::Own<StreamDialer> dialer, HelperKey key,
                                                        KeepToken keep, Deadlines deadlines) {
  Rotation rotation{key.rotation, key.rotation + 1, false};
  auto opened = co_await bounded<Controlled>(
      timer, deadlines.connect + deadlines.handshake,
      takeControl(timer, *dialer, kj::mv(key), rotation, kj::mv(keep)));
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  co_return linkOf(timer, kj::mv(dialer), kj::mv(opened.get<Controlled>()), deadlines);
}

kj::Promise<Result<kj::Own<AgentLink>>> AgentLink::openBeside(kj::Timer& timer,
                                                              kj::Own<StreamDialer> dialer,
                                                              HelperKey key, uint64_t next,
                                                              KeepToken keep, Deadlines deadlines) {
  Rotation rotation{key.rotation, next, true};
  auto opened = co_await bounded<Controlled>(
      timer, deadlines.connect + deadlines.handshake,
      takeControl(timer, *dialer, kj::mv(key), rotation, kj::mv(keep)));
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  co_return linkOf(timer, kj::mv(dialer), kj::mv(opened.get<Controlled>()), deadlines);
}

kj::Promise<Outcome> AgentLink::confirm() {
  auto request = control.confirmCredentialRequest();
  request.setRotationId(rotation);
  return ask(timer, deadlines.control, kj::mv(request));
}

AgentLink::AgentLink(kj::Timer& timer, kj::Own<StreamDialer> dialerParam, Credential token,
                     uint64_t rotation, Deadlines deadlines, kj::Own<RpcConnection> connectionParam,
                     agentctl::Control::Client control, HelperInfo helper)
    : timer(timer),
      dialer(kj::mv(dialerParam)),
      token(kj::mv(token)),
      rotation(rotation),
      deadlines(deadlines),
      connection(kj::mv(connectionParam)),
      control(kj::mv(control)),
      helper(kj::mv(helper)),
      lostFork(connection->onDisconnect().then([this]() { lost = true; }).fork()) {}

AgentLink::~AgentLink() noexcept(false) {}

kj::Promise<void> AgentLink::onLost() { return lostFork.addBranch(); }

kj::Promise<Result<kj::Own<BulkConnection>>> AgentLink::openBulk() {
  auto self = kj::addRef(*this);
  co_return co_await bounded<kj::Own<BulkConnection>>(
      timer, deadlines.connect + deadlines.handshake, takeBulkInTurn());
}

// A burst must not look like a flood of strangers, whom the helper sends away.
kj::Promise<Result<kj::Own<BulkConnection>>> AgentLink::takeBulkInTurn() {
  kj::Maybe<Result<kj::Own<BulkConnection>>> taken;
  auto& lane = handshakes[nextHandshake++ % kj::size(handshakes)];
  co_await lane.with([&]() {
    return takeBulk(timer, *dialer, key()).then([&](Result<kj::Own<BulkConnection>>&& result) {
      taken = kj::mv(result);
    });
  });
  co_return kj::mv(KJ_ASSERT_NONNULL(taken));
}

kj::Promise<Result<kj::Own<AgentInstance>>> AgentLink::create(InstanceSpec spec) {
  auto self = kj::addRef(*this);
  auto request = control.createRequest();
  auto out = request.initSpec();
  out.setId(spec.id);
  out.setSessionId(spec.sessionId);
  out.setEnvironmentId(spec.environmentId);
  out.setTaskId(spec.taskId);
  out.setEphemeral(spec.ephemeral);
  out.setDirectory(spec.directory);
  out.setSpoolLimitBytes(spec.spoolLimitBytes);
  out.setPauseWhenFull(spec.pauseWhenFull);
  out.setStopGraceMs(spec.stopGrace / kj::MILLISECONDS);
  auto work = request.send().then([](capnp::Response<agentctl::Control::CreateResults>&& response)
                                      -> Result<agentctl::Instance::Client> {
    KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
      return kj::mv(*problem);
    }
    return response.getInstance();
  });
  auto created =
      co_await bounded<agentctl::Instance::Client>(timer, deadlines.control, kj::mv(work));
  if (created.is<Problem>()) co_return kj::mv(created.get<Problem>());
  co_return kj::refcounted<AgentInstance>(kj::mv(self), kj::mv(spec.id),
                                          kj::mv(created.get<agentctl::Instance::Client>()), timer,
                                          deadlines);
}

kj::Promise<Result<kj::Array<InstanceReport>>> AgentLink::list() {
  auto work = control.listRequest().send().then(
      [](capnp::Response<agentctl::Control::ListResults>&& response)
          -> Result<kj::Array<InstanceReport>> {
        return KJ_MAP(info, response.getInstances()) { return readReport(info); };
      });
  return bounded<kj::Array<InstanceReport>>(timer, deadlines.control, kj::mv(work));
}

kj::Promise<Result<kj::Own<AgentInstance>>> AgentLink::find(kj::String id) {
  auto self = kj::addRef(*this);
  auto request = control.instanceRequest();
  request.setId(id);
  auto work = request.send().then([](capnp::Response<agentctl::Control::InstanceResults>&& response)
                                      -> Result<agentctl::Instance::Client> {
    KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
      return kj::mv(*problem);
    }
    return response.getInstance();
  });
  auto found = co_await bounded<agentctl::Instance::Client>(timer, deadlines.control, kj::mv(work));
  if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
  co_return kj::refcounted<AgentInstance>(
      kj::mv(self), kj::mv(id), kj::mv(found.get<agentctl::Instance::Client>()), timer, deadlines);
}

kj::Promise<Outcome> AgentLink::acknowledge(kj::String id) {
  auto request = control.acknowledgeRequest();
  request.setId(id);
  return ask(timer, deadlines.control, kj::mv(request));
}

kj::Promise<Outcome> AgentLink::remove(kj::String id) {
  auto request = control.removeRequest();
  request.setId(id);
  return ask(timer, deadlines.control, kj::mv(request));
}

kj::Promise<Outcome> AgentLink::shutdown(kj::Duration grace) {
  auto request = control.shutdownRequest();
  request.setGraceMs(grace / kj::MILLISECONDS);
  return ask(timer, deadlines.control + grace, kj::mv(request));
}

kj::Promise<Result<kj::Own<OutputReading>>> AgentLink::readOutput(
    kj::String id, OutputRequest what, kj::Own<OutputReceiver> receiver) {
  auto opened = co_await openBulk();
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  auto bulk = kj::mv(opened.get<kj::Own<BulkConnection>>());
  auto request = bulk->bulk.outputRequest();
  request.setId(id);
  request.setOffset(what.offset);
  request.setFollow(what.follow);
  request.setHold(what.hold);
  request.setSink(makeOutputSink(kj::mv(receiver)));
  auto work = request.send().then([](capnp::Response<agentctl::Bulk::OutputResults>&& response)
                                      -> Result<rpc::Subscription::Client> {
    KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
      return kj::mv(*problem);
    }
    return response.getSubscription();
  });
  auto subscribed =
      co_await bounded<rpc::Subscription::Client>(timer, deadlines.control, kj::mv(work));
  if (subscribed.is<Problem>()) co_return kj::mv(subscribed.get<Problem>());
  co_return kj::heap<OutputReading>(kj::mv(bulk),
                                    kj::mv(subscribed.get<rpc::Subscription::Client>()));
}

kj::Promise<Result<kj::Own<StdinWriter>>> AgentLink::openStdin(kj::String id, TakeOver takeOver) {
  auto opened = co_await openBulk();
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  auto bulk = kj::mv(opened.get<kj::Own<BulkConnection>>());
  auto request = bulk->bulk.stdinRequest();
  request.setId(id);
  request.setTakeOver(takeOver == TakeOver::YES);
  auto work = request.send().then([](capnp::Response<agentctl::Bulk::StdinResults>&& response)
                                      -> Result<rpc::ByteStream::Client> {
    KJ_IF_MAYBE (problem, readHelperError(response.getError())) {
      return kj::mv(*problem);
    }
    return response.getStdin();
  });
  auto granted = co_await bounded<rpc::ByteStream::Client>(timer, deadlines.control, kj::mv(work));
  if (granted.is<Problem>()) co_return kj::mv(granted.get<Problem>());
  co_return kj::heap<StdinWriter>(kj::mv(bulk), kj::mv(granted.get<rpc::ByteStream::Client>()));
}

}  // namespace capstan
