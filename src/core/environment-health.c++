// How an environment stands, what is noticed of its compute, and a look at it that only reads.
#include "base/encoding.h"
#include "core/environment-actor.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// The worst first.
int rankOf(ConversationHealth health) {
  switch (health) {
    case ConversationHealth::UNAVAILABLE:
      return 0;
    case ConversationHealth::UNKNOWN:
      return 1;
    case ConversationHealth::FRESH:
      return 2;
    case ConversationHealth::RESTORED:
      break;
  }
  return 3;
}

constexpr size_t SHOWN_ID_BYTES = 8;

}  // namespace

EnvironmentHealth EnvironmentActor::health() const {
  EnvironmentHealth health;
  health.workspace = workspaceHealth;
  bool linked = false;
  KJ_IF_MAYBE (present, link) {
    linked = !(*present)->isLost();
  }
  bool untold =
      isUnsettled() || current == EnvironmentState::PREPARING || current == EnvironmentState::READY;
  if (linked && !isUnsettled()) {
    health.executor = HealthAxis::AVAILABLE;
  } else if (!untold) {
    health.executor = HealthAxis::UNAVAILABLE;
  }
  bool first = true;
  for (auto& entry: sessions) {
    auto each = entry.value->run().conversation();
    if (first || rankOf(each) < rankOf(health.conversation)) health.conversation = each;
    first = false;
  }
  return health;
}

// The compute, and the helper in it: a new helper in the same compute is another one too.
void EnvironmentActor::noteGeneration(const Attachment& reached, const AgentLink& opened) {
  kj::ArrayPtr<const kj::byte> id = opened.info().serverId;
  row.generation = kj::str(reached.generation(), "/",
                           encodeHex(id.slice(0, kj::min(id.size(), SHOWN_ID_BYTES))));
}

kj::Promise<void> EnvironmentActor::saw(EpisodeOutcome outcome, Problem cause,
                                        kj::Vector<kj::String> affected,
                                        kj::Maybe<kj::StringPtr> generation) {
  Observation seen;
  seen.outcome = outcome;
  seen.generation = kj::str(generation.orDefault(row.generation));
  seen.cause = kj::mv(cause);
  seen.affected = kj::mv(affected);
  seen.at = services.now();
  return episodes->saw(kj::mv(seen));
}

kj::Promise<void> EnvironmentActor::sawWorkspace(const Outcome& fault) {
  KJ_IF_MAYBE (problem, fault) {
    if (problem->code == ErrorCode::WORKSPACE_LOST) {
      workspaceHealth = HealthAxis::UNAVAILABLE;
      return saw(EpisodeOutcome::MISSING, problem->clone());
    }
    // What else went wrong is told of an episode only, which it may keep from ending.
    if (episodes->present() == nullptr) return kj::READY_NOW;
    return saw(EpisodeOutcome::UNKNOWN, problem->clone());
  }
  sawWorkspace(HealthAxis::RETAINED);
  return kj::READY_NOW;
}

void EnvironmentActor::sawWorkspace(HealthAxis seen) {
  if (workspaceHealth == seen) return;
  workspaceHealth = seen;
  hub->changed();
}

// Being out of reach for a moment is no episode.
kj::Promise<void> EnvironmentActor::watchLoss(uint32_t loss) {
  co_await services.timer.afterDelay(services.limits.deadlines.lossGrace);
  if (loss != losses || !isUnsettled()) co_return;
  auto cause = Problem(ErrorCode::UNREACHABLE, kj::str("the environment cannot be reached"));
  KJ_IF_MAYBE (why, lastError) {
    cause = why->clone();
  }
  co_await saw(EpisodeOutcome::UNKNOWN, kj::mv(cause));
}

kj::Vector<kj::String> EnvironmentActor::unsettledSessions() const {
  kj::Vector<kj::String> result;
  for (auto& entry: sessions) {
    if (entry.value->isUnsettled()) result.add(kj::str(entry.key));
  }
  return result;
}

kj::Promise<Outcome> EnvironmentActor::recheck() {
  auto self = kj::addRef(*this);
  auto found = backend();
  if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
  // What is being made or ended tells of itself.
  bool atWork = current == EnvironmentState::PREPARING || current == EnvironmentState::STOPPING ||
                current == EnvironmentState::CLEANING || gone || closing;
  if (atWork) co_return nullptr;
  co_await rechecking.run([&]() { return lookOnce(*found.get<Backend*>()); });
  co_return nullptr;
}

// In `rechecking`: holds no reference to this.
kj::Promise<void> EnvironmentActor::lookOnce(Backend& backend) {
  Deadline deadline = Deadline::after(services.timer, services.limits.deadlines.inspection);
  kj::Maybe<Recovered> answer;
  kj::Maybe<Problem> fault;
  auto records = kj::heapArrayBuilder<PlaceRecord>(1);
  records.add(place());
  auto asked = kj::evalNow([&]() { return backend.recoverInstances(records.finish()); })
                   .then([this, &answer](kj::Vector<Recovered>&& all) {
                     if (all.size() == 1 && all[0].environmentId == row.id) answer = kj::mv(all[0]);
                   })
                   .catch_([&fault](kj::Exception&& e) { fault = asProblem(e); });
  if (co_await until(services.timer, deadline, kj::mv(asked)) == Waited::TOO_LATE) {
    fault = Problem(ErrorCode::TIMEOUT, kj::str("the runtime did not tell in time"));
  }
  KJ_IF_MAYBE (told, answer) {
    sawWorkspace(told->workspace);
    if (told->kind == Recovered::Kind::UNKNOWN) {
      fault = Problem(ErrorCode::UNREACHABLE, kj::str("the runtime cannot tell"));
      KJ_IF_MAYBE (why, told->why) {
        fault = kj::mv(*why);
      }
    }
  } else {
    sawWorkspace(HealthAxis::UNKNOWN);
    if (fault == nullptr)
      fault = Problem(ErrorCode::INTERNAL, kj::str("the runtime gave no answer"));
  }
  // The recovery that is in progress judges what it finds.
  if (isUnsettled()) {
    KJ_IF_MAYBE (problem, fault) {
      if (episodes->present() != nullptr) co_await saw(EpisodeOutcome::UNKNOWN, kj::mv(*problem));
    }
    co_return;
  }
  if (workspaceHealth == HealthAxis::UNAVAILABLE) {
    co_await saw(EpisodeOutcome::MISSING,
                 Problem(ErrorCode::WORKSPACE_LOST, kj::str("the workspace is gone")));
    co_return;
  }
  if (current != EnvironmentState::READY) co_return;
  if (fault == nullptr) {
    KJ_IF_MAYBE (present, link) {
      fault = co_await answers(kj::addRef(**present), deadline);
    }
  }
  if (current != EnvironmentState::READY) co_return;
  KJ_IF_MAYBE (problem, fault) {
    co_await saw(EpisodeOutcome::UNKNOWN, kj::mv(*problem));
  } else {
    co_await saw(EpisodeOutcome::HEALTHY);
  }
}

// Whether the helper does, not only its connection.
kj::Promise<Outcome> EnvironmentActor::answers(kj::Own<AgentLink> asked, Deadline deadline) {
  Outcome outcome =
      Problem(ErrorCode::TIMEOUT, kj::str("the environment's helper did not answer in time"));
  co_await until(services.timer, deadline,
                 asked->list().then([&outcome](Result<kj::Array<InstanceReport>>&& listed) {
                   outcome = nullptr;
                   if (listed.is<Problem>()) outcome = kj::mv(listed.get<Problem>());
                 }));
  co_return kj::mv(outcome);
}

}  // namespace capstan
