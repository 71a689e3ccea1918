#include "core/workspace-preparer.h"

#include "base/ids.h"
#include "core/place-process.h"
#include "domain/clone-script.h"
#include "domain/scripts.h"

#include <kj/map.h>

namespace capstan {

namespace {

// One run of either kind. Lives in `making`, whoever waits for it.
class Preparation final: public kj::Refcounted {
public:
  Preparation(PreparerTools tools, PreparePlan planParam, ProgressSink& sink)
      : tools(tools),
        link(kj::addRef(tools.link)),
        sink(sink),
        plan(kj::mv(planParam)),
        deadline(Deadline::never()) {
    kj::Vector<kj::String> values;
    for (auto& variable: plan.variables) {
      if (variable.secret) values.add(kj::str(variable.value));
    }
    secrets = values.releaseAsArray();
    auto pair = kj::newPromiseAndFulfiller<void>();
    cancelling = kj::mv(pair.fulfiller);
    cancelled = pair.promise.fork();
  }
  KJ_DISALLOW_COPY_AND_MOVE(Preparation);

  kj::Promise<Outcome> prepare();
  kj::Promise<Outcome> cleanUp();
  void interrupt() { cancelling->fulfill(); }
  // Nobody waits any more.
  void abandon() {
    for (auto& step: steps)
      step->hide();
    interrupt();
  }

private:
  PreparerTools tools;
  kj::Own<AgentLink> link;
  ProgressSink& sink;
  PreparePlan plan;
  kj::Array<kj::String> secrets;
  Deadline deadline;
  ScriptOptions options;
  kj::Vector<kj::Own<ShownStep>> steps;
  kj::Own<kj::PromiseFulfiller<void>> cancelling;
  kj::ForkedPromise<void> cancelled = nullptr;

  // Makes the steps, all pending, so that people see what is to come.
  void announce(kj::ArrayPtr<const kj::String> names);
  ScriptFacts facts() const;
  // The plan's variables, with `own` in the place of those of the same name.
  kj::Array<InstanceVariable> variables(kj::Array<ProcessVariable> own) const;
  kj::Promise<Result<ExitStatus>> run(kj::String shell, kj::String input,
                                      kj::Array<ProcessVariable> own, ShownStep& step);

  kj::Promise<Outcome> cloneAll();
  kj::Promise<Outcome> cloneOne(size_t index);
  // Runs a filled script; null when it ended well.
  kj::Promise<Outcome> runScript(kj::String filled, kj::StringPtr what, ShownStep& step);
};

kj::String nameOf(const Repository& repository) {
  auto folder = repository.path.size() > 0 ? kj::str(repository.path) : folderOfUrl(repository.url);
  return folder.size() > 0 ? kj::str("Clone ", folder) : kj::str("Clone repository");
}

bool isNoProgram(const Result<ExitStatus>& result) {
  if (!result.is<Problem>()) return false;
  auto& problem = result.get<Problem>();
  return problem.field == "command" && problem.upstreamCode == "ENOENT";
}

// A run that did not come to an exit code of its own.
Problem interruptedRun(const Problem& problem, kj::StringPtr what, kj::Duration limit) {
  if (problem.code != ErrorCode::TIMEOUT || problem.source.size() > 0) return problem.clone();
  return Problem(ErrorCode::TIMEOUT, kj::str(what, " was not done when its time of ",
                                             limit / kj::SECONDS, " s was over"))
      .advise(kj::str("the step's output tells how far it came"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

void Preparation::announce(kj::ArrayPtr<const kj::String> names) {
  uint16_t total = plan.firstStep + names.size();
  for (auto i: kj::indices(names)) {
    steps.add(kj::refcounted<ShownStep>(tools.timer, tools.clock, sink, plan.firstStep + i, total,
                                        names[i], secrets));
  }
}

ScriptFacts Preparation::facts() const {
  ScriptFacts facts;
  facts.workspace = plan.path;
  facts.taskId = plan.taskId;
  facts.taskTitle = plan.title;
  facts.sessionId = plan.sessionId;
  facts.environmentId = plan.environmentId;
  if (plan.workspace.repositories.size() > 0) {
    facts.repositoryUrl = plan.workspace.repositories[0].url;
    facts.branch = plan.workspace.repositories[0].ref;
  }
  facts.gitUserName = options.gitUserName;
  facts.gitUserEmail = options.gitUserEmail;
  return facts;
}

kj::Array<InstanceVariable> Preparation::variables(kj::Array<ProcessVariable> own) const {
  kj::HashSet<kj::StringPtr> replaced;
  for (auto& variable: own)
    replaced.insert(variable.key);
  kj::Vector<InstanceVariable> all(plan.variables.size() + own.size());
  for (auto& variable: plan.variables) {
    if (replaced.contains(variable.key)) continue;
    all.add(InstanceVariable{kj::str(variable.key), kj::str(variable.value)});
  }
  for (auto& variable: own)
    all.add(InstanceVariable{kj::str(variable.key), kj::str(variable.value)});
  return all.releaseAsArray();
}

kj::Promise<Result<ExitStatus>> Preparation::run(kj::String shell, kj::String input,
                                                 kj::Array<ProcessVariable> own, ShownStep& step) {
  PlaceProcess process;
  process.id = newId(IdKind::EXEC, tools.entropy);
  process.environmentId = kj::str(plan.environmentId);
  process.taskId = kj::str(plan.taskId);
  process.command = kj::arr(kj::mv(shell), kj::str("-s"));
  process.variables = variables(kj::mv(own));
  process.directory = kj::str(plan.path);
  process.input = kj::mv(input);
  return runInPlace(tools.timer, kj::addRef(*link), kj::mv(process), kj::addRef(step), deadline,
                    cancelled.addBranch());
}

// ---- clones

kj::Promise<Outcome> Preparation::cloneAll() {
  for (size_t i = 0; i < plan.workspace.repositories.size(); ++i) {
    KJ_IF_MAYBE (problem, co_await cloneOne(i)) {
      co_return kj::mv(*problem);
    }
  }
  co_return nullptr;
}

kj::Promise<Outcome> Preparation::cloneOne(size_t index) {
  auto& repository = plan.workspace.repositories[index];
  auto& step = *steps[index];
  auto mode = plan.prepared                  ? CloneMode::CHECK
              : plan.workspace.reuseRequired ? CloneMode::REUSE
                                             : CloneMode::MAKE;
  step.begin(kj::str("git clone ", repository.url));
  auto own =
      cloneVariables(repository, plan.path, mode, plan.caller, newId(IdKind::EXEC, tools.entropy));
  auto result = co_await run(kj::str("sh"), kj::str(cloneScript()), kj::mv(own), step);
  Outcome failure;
  if (result.is<Problem>()) {
    failure = interruptedRun(result.get<Problem>(), "the clone", tools.limits.deadlines.prepare);
  } else {
    auto code = result.get<ExitStatus>().shellCode();
    switch (cloneEnd(code)) {
      case CloneEnd::MADE:
        step.complete();
        break;
      case CloneEnd::KEPT:
        step.skip();
        break;
      case CloneEnd::FAILED:
        failure = cloneProblem(
            code, repository, kj::str("spec.workspace.repositories[", index, "]"), step.lastLine());
        break;
    }
  }
  KJ_IF_MAYBE (problem, failure) {
    step.fail(*problem);
  }
  co_return kj::mv(failure);
}

// ---- scripts

kj::Promise<Outcome> Preparation::runScript(kj::String filled, kj::StringPtr what,
                                            ShownStep& step) {
  auto shell = options.shell.size() > 0 ? kj::str(options.shell) : kj::str("bash");
  step.begin(kj::str(shell, " -s"));
  auto input = wrapScript(filled);
  auto result = co_await run(kj::str(shell), kj::str(input), scriptVariables(facts()), step);
  if (options.shell.size() == 0 && isNoProgram(result)) {
    step.begin(kj::str("sh -s"));
    result = co_await run(kj::str("sh"), kj::mv(input), scriptVariables(facts()), step);
  }
  if (isNoProgram(result)) {
    co_return Problem(ErrorCode::PREPARE_FAILED, kj::str("there is no shell ", shell))
        .at(kj::str("config.shell"))
        .advise(kj::str("name another one with the profile's key shell"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  if (result.is<Problem>()) co_return kj::mv(result.get<Problem>());
  auto& exit = result.get<ExitStatus>();
  if (exit.kind == ExitStatus::Kind::CODE && exit.code == 0) co_return nullptr;
  co_return Problem(ErrorCode::PREPARE_FAILED, kj::str(what, " failed with ", exit))
      .because(step.lastLine())
      .advise(kj::str("the step's output tells more"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

kj::Promise<Outcome> Preparation::prepare() {
  auto limit = tools.limits.deadlines.prepare;
  deadline = Deadline::after(tools.timer, limit);
  bool hasScript = !isEmptyScript(plan.prepareScript);
  kj::String filled;
  // A place that was prepared does not need a script that can still be used.
  if (!plan.prepared) {
    auto read = readScriptOptions(plan.config);
    if (read.is<Problem>()) co_return kj::mv(read.get<Problem>());
    options = kj::mv(read.get<ScriptOptions>());
    auto text = fillScript(plan.prepareScript, "prepareScript");
    if (text.is<Problem>()) co_return kj::mv(text.get<Problem>());
    filled = kj::mv(text.get<kj::String>());
  }
  auto names = KJ_MAP(repository, plan.workspace.repositories) { return nameOf(repository); };
  kj::Vector<kj::String> all;
  for (auto& name: names)
    all.add(kj::mv(name));
  if (hasScript) all.add(kj::str("Run prepare script"));
  announce(all);

  KJ_IF_MAYBE (problem, co_await cloneAll()) {
    co_return kj::mv(*problem);
  }
  if (!hasScript) co_return nullptr;
  auto& step = *steps.back();
  if (plan.prepared) {
    step.skip();
    co_return nullptr;
  }
  auto failure = co_await runScript(kj::mv(filled), "the prepare script", step);
  KJ_IF_MAYBE (problem, failure) {
    auto told = interruptedRun(*problem, "the prepare script", limit);
    if (told.code == ErrorCode::PREPARE_FAILED && options.prepareFailure == PrepareFailure::WARN) {
      step.warn(kj::str("the prepare script failed, which this profile lets pass"), told);
      co_return nullptr;
    }
    step.fail(told);
    co_return kj::mv(told);
  }
  step.complete();
  co_return nullptr;
}

kj::Promise<Outcome> Preparation::cleanUp() {
  if (isEmptyScript(plan.cleanupScript)) co_return nullptr;
  auto limit = tools.limits.deadlines.cleanup;
  deadline = Deadline::after(tools.timer, limit);
  auto read = readScriptOptions(plan.config);
  if (read.is<Problem>()) co_return kj::mv(read.get<Problem>());
  options = kj::mv(read.get<ScriptOptions>());
  auto filled = fillScript(plan.cleanupScript, "cleanupScript");
  if (filled.is<Problem>()) co_return kj::mv(filled.get<Problem>());
  announce(kj::arr(kj::str("Run clean-up script")));
  auto& step = *steps[0];
  auto failure = co_await runScript(kj::mv(filled.get<kj::String>()), "the clean-up script", step);
  KJ_IF_MAYBE (problem, failure) {
    auto told = interruptedRun(*problem, "the clean-up script", limit);
    step.fail(told);
    co_return kj::mv(told);
  }
  step.complete();
  co_return nullptr;
}

kj::Promise<Outcome> perform(PreparerTools tools, PreparePlan plan, ProgressSink& sink,
                             kj::Promise<void> interrupt,
                             kj::Promise<Outcome> (Preparation::*what)()) {
  auto work = kj::refcounted<Preparation>(tools, kj::mv(plan), sink);
  auto pair = kj::newPromiseAndFulfiller<Outcome>();
  KJ_DEFER(work->abandon());
  auto& preparation = *work;
  auto interrupting =
      interrupt.then([&preparation]() { preparation.interrupt(); }).eagerlyEvaluate(nullptr);
  tools.making.add(
      deliver((preparation.*what)().attach(kj::addRef(*work)), kj::mv(pair.fulfiller)));
  co_return co_await pair.promise;
}

}  // namespace

kj::Promise<Outcome> prepareWorkspace(PreparerTools tools, PreparePlan plan, ProgressSink& sink,
                                      kj::Promise<void> interrupt) {
  return perform(tools, kj::mv(plan), sink, kj::mv(interrupt), &Preparation::prepare);
}

kj::Promise<Outcome> runCleanupScript(PreparerTools tools, PreparePlan plan, ProgressSink& sink,
                                      kj::Promise<void> interrupt) {
  return perform(tools, kj::mv(plan), sink, kj::mv(interrupt), &Preparation::cleanUp);
}

}  // namespace capstan
