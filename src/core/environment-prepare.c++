// What an environment's profile brings: variables, secrets and scripts.
#include "core/catalog.h"
#include "core/environment-actor.h"
#include "core/secrets.h"
#include "core/workspace-preparer.h"
#include "domain/scripts.h"
#include "domain/variables-assembly.h"

#include <kj/debug.h>

namespace capstan {

kj::Maybe<const ProfileRecord&> EnvironmentActor::profile() const {
  if (row.profileId.size() == 0) return nullptr;
  return services.catalog.rows().profile(row.profileId);
}

// The profile's definitions and the launch's, over what the place offers, with the secrets that
// this environment may use.
kj::Promise<Result<Resolution>> EnvironmentActor::resolve(kj::ArrayPtr<const Variable> launch,
                                                          Assembly assembly) {
  kj::Vector<Variable> definitions;
  KJ_IF_MAYBE (present, profile()) {
    auto found = backend();
    bool shell = found.is<Backend*>() && found.get<Backend*>()->traits().appliesPreferredShell;
    auto own = executorProfileDefinitions(present->variables, assembly.path,
                                          shell ? PreferredShell::APPLIES : PreferredShell::NONE);
    for (auto& each: own)
      definitions.add(kj::mv(each));
  }
  for (auto& each: launch)
    definitions.add(each.clone());
  auto inherited = KJ_ASSERT_NONNULL(attachment)->inheritedVariables();
  auto revealed = co_await services.secrets.revealFor(kj::str(row.id), kj::str(row.profileId),
                                                      definitions.asPtr());
  if (revealed.is<Problem>()) co_return kj::mv(revealed.get<Problem>());
  auto reveal = revealed.get<RevealedSecrets>().revealer();
  ProcessIdentity identity{row.spec.taskId, row.id, assembly.sessionId, assembly.processId,
                           nullptr};
  KJ_IF_MAYBE (token, assembly.resumeToken) {
    identity.resumeToken = token->asPtr();
  }
  co_return assembleVariables(inherited, identity, definitions, reveal);
}

kj::Promise<Result<PreparePlan>> EnvironmentActor::planPreparation() {
  auto resolved = co_await resolve(
      nullptr, Assembly{kj::String(), kj::String(), AssemblyPath::PRIMARY, nullptr});
  if (resolved.is<Problem>()) co_return kj::mv(resolved.get<Problem>());
  PreparePlan plan;
  plan.environmentId = kj::str(row.id);
  plan.taskId = kj::str(row.spec.taskId);
  plan.title = kj::str(row.spec.title);
  plan.workspace = row.spec.workspace.clone();
  plan.path = kj::str(row.workspace);
  plan.caller = Caller::ADMINISTRATOR;  // Everybody who can ask is one so far (D28).
  plan.variables = kj::mv(resolved.get<Resolution>().variables);
  KJ_IF_MAYBE (present, profile()) {
    plan.config = cloneAll(present->config);
    plan.prepareScript = kj::str(present->prepareScript);
    plan.cleanupScript = kj::str(present->cleanupScript);
  }
  plan.prepared = row.prepared;
  plan.firstStep = progress.steps().size();
  co_return kj::mv(plan);
}

PreparerTools EnvironmentActor::preparerTools() {
  return PreparerTools{services.timer,  services.clock,           services.entropy,
                       services.limits, *KJ_ASSERT_NONNULL(link), making};
}

kj::Promise<Outcome> EnvironmentActor::prepare() {
  auto plan = co_await planPreparation();
  if (plan.is<Problem>()) co_return kj::mv(plan.get<Problem>());
  if (stops != flightStops) {
    co_return Problem(ErrorCode::CANCELLED, kj::str("the environment was stopped meanwhile"));
  }
  auto stopped = kj::newPromiseAndFulfiller<void>();
  interruptPreparing = kj::mv(stopped.fulfiller);
  auto outcome = co_await prepareWorkspace(preparerTools(), kj::mv(plan.get<PreparePlan>()),
                                           progress, kj::mv(stopped.promise));
  interruptPreparing = nullptr;
  if (outcome != nullptr || row.prepared) co_return kj::mv(outcome);
  EnvironmentLedger::Change change;
  change.prepared = true;
  KJ_IF_MAYBE (problem, co_await ledger->change(kj::mv(change))) {
    co_return kj::mv(*problem);
  }
  row.prepared = true;
  co_return nullptr;
}

// Its failure keeps nothing from going: it is told, and the clean-up goes on.
kj::Promise<Outcome> EnvironmentActor::runCleanup() {
  KJ_IF_MAYBE (present, profile()) {
    if (isEmptyScript(present->cleanupScript) || !row.prepared) co_return nullptr;
  } else {
    co_return nullptr;
  }
  bool linked = false;
  KJ_IF_MAYBE (present, link) {
    linked = attachment != nullptr && !(*present)->isLost();
  }
  if (!linked) {
    KJ_IF_MAYBE (problem, co_await attach(services.limits.deadlines.cleanup)) {
      co_return kj::mv(*problem);
    }
  }
  auto plan = co_await planPreparation();
  if (plan.is<Problem>()) co_return kj::mv(plan.get<Problem>());
  auto stopped = kj::newPromiseAndFulfiller<void>();
  interruptPreparing = kj::mv(stopped.fulfiller);
  auto outcome = co_await runCleanupScript(preparerTools(), kj::mv(plan.get<PreparePlan>()),
                                           progress, kj::mv(stopped.promise));
  interruptPreparing = nullptr;
  co_return kj::mv(outcome);
}

}  // namespace capstan
