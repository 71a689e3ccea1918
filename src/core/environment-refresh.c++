// How the way to an environment's helper is replaced while it serves.
#include "backends/capabilities.h"
#include "core/environment-actor.h"

#include <kj/debug.h>

namespace capstan {

namespace {

Problem tookTooLong(kj::StringPtr what, kj::Duration limit) {
  return Problem(ErrorCode::TIMEOUT, kj::str(what, " took longer than ", limit / kj::SECONDS, " s"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

// An exception of the backend is a failure like any other.
kj::Promise<Result<kj::Own<StagedRefresh>>> stage(RemoteInstanceRefresher& refresher,
                                                  PlaceRecord place) {
  return kj::evalNow([&]() { return refresher.stage(kj::mv(place)); })
      .catch_([](kj::Exception&& e) -> Result<kj::Own<StagedRefresh>> { return asProblem(e); });
}
kj::Promise<Outcome> commit(StagedRefresh& staged,
                            kj::Function<void(kj::Own<Attachment>)> publish) {
  return kj::evalNow([&]() { return staged.commit(kj::mv(publish)); })
      .catch_([](kj::Exception&& e) -> Outcome { return asProblem(e); });
}

}  // namespace

kj::Promise<Outcome> EnvironmentActor::refresh() {
  auto self = kj::addRef(*this);
  co_await onSettled();
  co_return co_await toItsEnd(refreshWhenFree());
}

// In `tasks`: holds no reference to this.
kj::Promise<Outcome> EnvironmentActor::refreshWhenFree() {
  Outcome outcome;
  co_await ending.with(
      [&]() { return refreshInTurn().then([&](Outcome&& result) { outcome = kj::mv(result); }); });
  co_return kj::mv(outcome);
}

Outcome EnvironmentActor::refuseRefresh(const AgentLink* before) {
  KJ_IF_MAYBE (refusal, refuseNew()) {
    return kj::mv(*refusal);
  }
  KJ_IF_MAYBE (present, link) {
    bool same = before == nullptr || before == present->get();
    if (current == EnvironmentState::READY && same && !(*present)->isLost()) return nullptr;
  }
  auto why = before == nullptr ? "the environment is not up"_kj
                               : "the environment's helper was lost or replaced meanwhile"_kj;
  return Problem(ErrorCode::WRONG_STATE, kj::str(why)).retryable(RetryHint::SAME_REQUEST_LATER);
}

kj::Promise<Outcome> EnvironmentActor::refreshInTurn() {
  auto found = backend();
  if (found.is<Problem>()) co_return kj::mv(found.get<Problem>());
  auto refresher = found.get<Backend*>()->refresher();
  if (refresher == nullptr) {
    co_return Problem(ErrorCode::UNSUPPORTED,
                      kj::str("the runtime ", row.runtime, " cannot replace a connection"));
  }
  KJ_IF_MAYBE (refusal, refuseRefresh(nullptr)) {
    co_return kj::mv(*refusal);
  }
  auto before = kj::addRef(*KJ_ASSERT_NONNULL(link));
  kj::Maybe<Result<kj::Own<StagedRefresh>>> answer;
  auto limit = services.limits.deadlines.helperStart;
  auto staging = stage(KJ_ASSERT_NONNULL(refresher), place()).then([&answer](auto&& result) {
    answer = kj::mv(result);
  });
  co_await within(services.timer, limit, kj::mv(staging));
  if (answer == nullptr) co_return tookTooLong("staging a connection", limit);
  auto& made = KJ_ASSERT_NONNULL(answer);
  if (made.is<Problem>()) co_return kj::mv(made.get<Problem>());
  auto staged = kj::mv(made.get<kj::Own<StagedRefresh>>());

  bool installed = false;
  auto outcome =
      co_await commitRefresh(*staged, *before, installed).catch_([](kj::Exception&& e) -> Outcome {
        return asProblem(e);
      });
  if (outcome == nullptr) co_return nullptr;
  if (installed) {
    askForRecovery();
  } else {
    co_await within(services.timer, services.limits.deadlines.control,
                    staged->abort().catch_([this](kj::Exception&& e) {
                      KJ_LOG(WARNING, "a staged connection could not be closed", row.id, e);
                    }));
  }
  co_return kj::mv(outcome);
}

kj::Promise<Outcome> EnvironmentActor::commitRefresh(StagedRefresh& staged, const AgentLink& before,
                                                     bool& installed) {
  auto opened = co_await links.openBeside(staged.attachment());  // Its token is durable then.
  if (opened.is<Problem>()) co_return kj::mv(opened.get<Problem>());
  auto fresh = kj::mv(opened.get<kj::Own<AgentLink>>());

  auto changed = staged.changedItems();
  auto unchanged = kj::heapArrayBuilder<InventoryItem>(changed.size());
  for (auto& item: changed) {
    for (auto& present: ledger->inventory()) {
      if (present.seq == item.seq) unchanged.add(present.clone());
    }
  }
  auto outcome = co_await noteItems(kj::mv(changed));
  if (outcome == nullptr) outcome = refuseRefresh(&before);
  if (outcome == nullptr) {
    auto limit = services.limits.deadlines.control;
    auto publish = [&](kj::Own<Attachment> reached) {
      installed = true;
      links.install(reached->helperKey(), kj::addRef(*fresh));
      row.workspace = kj::str(reached->workspace());
      attachment = kj::mv(reached);
      use(kj::addRef(*fresh));
      // The processes are asked for over the new link, in this very turn of the lock.
      if (!isUnsettled()) losesSight();
      noteGeneration(*KJ_ASSERT_NONNULL(attachment), *fresh);
    };
    auto waited = co_await within(
        services.timer, limit, commit(staged, kj::mv(publish)).then([&outcome](Outcome&& result) {
          outcome = kj::mv(result);
        }));
    if (waited == Waited::TOO_LATE && !installed) outcome = tookTooLong("its commit", limit);
  }
  if (!installed) {
    KJ_IF_MAYBE (problem, co_await noteItems(unchanged.finish())) {
      KJ_LOG(WARNING, "the inventory names a connection that was not installed", row.id, *problem);
    }
    co_return kj::mv(outcome);
  }
  // Ends the old connection and what opened it.
  KJ_IF_MAYBE (problem, co_await fresh->confirm()) {
    co_return kj::mv(*problem);
  }
  auto listed = co_await fresh->list();
  if (listed.is<Problem>()) co_return kj::mv(listed.get<Problem>());
  kj::Vector<InstanceReport> reports;
  for (auto& report: listed.get<kj::Array<InstanceReport>>()) {
    if (report.environmentId == row.id) reports.add(kj::mv(report));
  }
  co_await settleInstances(reports.releaseAsArray(), outcome);
  co_return kj::mv(outcome);
}

// As they are given, up to the first that is refused.
kj::Promise<Outcome> EnvironmentActor::noteItems(kj::Array<InventoryItem> items) {
  for (auto& item: items) {
    KJ_IF_MAYBE (problem,
                 co_await ledger->confirm(item.seq, kj::mv(item.identity), kj::mv(item.details))) {
      co_return kj::mv(*problem);
    }
  }
  co_return nullptr;
}

}  // namespace capstan
