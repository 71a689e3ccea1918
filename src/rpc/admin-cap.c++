#include "rpc/admin-cap.h"

#include "rpc/catalog-tables.h"
#include "rpc/convert.h"
#include "rpc/environment-cap.h"

namespace capstan {

namespace {

class AdminCap final: public rpc::Admin::Server {
public:
  AdminCap(Frontend& frontend, Guard guard)
      : frontend(frontend),
        catalog(frontend.catalog),
        vault(frontend.secrets),
        guard(kj::mv(guard)) {}

protected:
  kj::Promise<void> executors(ExecutorsContext context) override {
    if (guard.refuses(ruleOf("Admin.executors"), context)) co_return;
    context.getResults().setTable(newExecutorTable(catalog, guard.clone()));
  }

  kj::Promise<void> profiles(ProfilesContext context) override {
    if (guard.refuses(ruleOf("Admin.profiles"), context)) co_return;
    context.getResults().setTable(newProfileTable(catalog, guard.clone()));
  }

  kj::Promise<void> environment(EnvironmentContext context) override {
    if (guard.refuses(ruleOf("Admin.environment"), context)) co_return;
    auto found = frontend.supervisor.findById(context.getParams().getId());
    if (found.is<Problem>()) {
      fail(context.getResults(), found.get<Problem>());
      co_return;
    }
    context.getResults().setEnvironment(newEnvironmentCap(
        frontend.supervisor, kj::mv(found.get<kj::Own<EnvironmentActor>>()), guard.clone()));
  }

  kj::Promise<void> setDefaultExecutor(SetDefaultExecutorContext context) override {
    if (guard.refuses(ruleOf("Admin.setDefaultExecutor"), context)) co_return;
    auto params = context.getParams();
    auto id = copy(params.getExecutorId());
    if (id.size() > 0) {
      auto found = catalog.rows().findExecutor(id);
      if (found.is<Problem>()) {
        fail(context.getResults(), found.get<Problem>());
        co_return;
      }
      id = kj::str(found.get<const ExecutorRecord*>()->id);
    }
    answer(context, co_await catalog.setDefaultExecutor(copy(params.getTenantId()), kj::mv(id)));
  }

  kj::Promise<void> defaultExecutors(DefaultExecutorsContext context) override {
    if (guard.refuses(ruleOf("Admin.defaultExecutors"), context)) co_return;
    auto& defaults = catalog.rows().defaults();
    auto out = context.getResults().initDefaults(defaults.size());
    uint32_t i = 0;
    for (auto& entry: defaults) {
      out[i].setTenantId(entry.key);
      out[i++].setExecutorId(entry.value);
    }
  }

  kj::Promise<void> setSecret(SetSecretContext context) override {
    if (guard.refuses(ruleOf("Admin.setSecret"), context)) co_return;
    auto name = copy(context.getParams().getName());
    SecretBytes value(kj::heapArray<kj::byte>(context.getParams().getValue()));
    context.releaseParams();
    auto done = co_await vault.set(kj::mv(name), kj::mv(value));
    if (done.is<Problem>()) {
      fail(context.getResults(), done.get<Problem>());
      co_return;
    }
    context.getResults().setMade(done.get<SecretVault::Set>() == SecretVault::Set::MADE);
  }

  kj::Promise<void> secrets(SecretsContext context) override {
    if (guard.refuses(ruleOf("Admin.secrets"), context)) co_return;
    auto params = context.getParams();
    auto listed = co_await vault.list(copy(params.getAfter()), pageLimit(params.getLimit()));
    if (listed.is<Problem>()) {
      fail(context.getResults(), listed.get<Problem>());
      co_return;
    }
    auto& page = listed.get<SecretVault::Page>();
    auto results = context.getResults();
    auto out = results.initSecrets(page.secrets.size());
    for (auto i: kj::indices(page.secrets)) {
      auto& secret = page.secrets[i];
      out[i].setName(secret.record.name);
      out[i].setCreatedAt(secret.record.createdAt);
      out[i].setUpdatedAt(secret.record.updatedAt);
      writeTexts(out[i].initEnvironmentIds(secret.environmentIds.size()), secret.environmentIds);
      writeTexts(out[i].initProfileIds(secret.profileIds.size()), secret.profileIds);
    }
    if (page.more) results.setNext(page.secrets.back().record.name);
  }

  kj::Promise<void> removeSecret(RemoveSecretContext context) override {
    if (guard.refuses(ruleOf("Admin.removeSecret"), context)) co_return;
    answer(context, co_await vault.remove(copy(context.getParams().getName())));
  }

  kj::Promise<void> allowSecret(AllowSecretContext context) override {
    if (guard.refuses(ruleOf("Admin.allowSecret"), context)) co_return;
    auto params = context.getParams();
    answer(context, co_await vault.allow(copy(params.getName()), bindingOf(params)));
  }

  kj::Promise<void> disallowSecret(DisallowSecretContext context) override {
    if (guard.refuses(ruleOf("Admin.disallowSecret"), context)) co_return;
    auto params = context.getParams();
    answer(context, co_await vault.disallow(copy(params.getName()), bindingOf(params)));
  }

  kj::Promise<void> rotateSecretKey(RotateSecretKeyContext context) override {
    if (guard.refuses(ruleOf("Admin.rotateSecretKey"), context)) co_return;
    auto done = co_await vault.rotate();
    if (done.is<Problem>()) {
      fail(context.getResults(), done.get<Problem>());
      co_return;
    }
    context.getResults().setResealed(done.get<uint64_t>());
  }

  kj::Promise<void> shutdown(ShutdownContext context) override {
    if (guard.refuses(ruleOf("Admin.shutdown"), context)) co_return;
    frontend.shutdown();
  }

private:
  Frontend& frontend;
  Catalog& catalog;
  SecretVault& vault;
  Guard guard;

  template <typename Context>
  static void answer(Context& context, Outcome outcome) {
    KJ_IF_MAYBE (problem, outcome) {
      fail(context.getResults(), *problem);
    }
  }

  template <typename Params>
  static SecretVault::Binding bindingOf(Params params) {
    return {copy(params.getEnvironmentId()), copy(params.getProfileId())};
  }

  static void writeTexts(capnp::List<capnp::Text>::Builder out,
                         kj::ArrayPtr<const kj::String> texts) {
    for (auto i: kj::indices(texts))
      out.set(i, texts[i]);
  }
};

}  // namespace

rpc::Admin::Client newAdminCap(Frontend& frontend, Guard guard) {
  return kj::heap<AdminCap>(frontend, kj::mv(guard));
}

}  // namespace capstan
