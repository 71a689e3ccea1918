#include "tools/capstan/run.h"

#include "base/entropy.h"
#include "base/ids.h"
#include "client/standard-streams.h"
#include "domain/workspace.h"
#include "tools/capstan/commands.h"
#include "tools/capstan/views.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace capstan::cli {

namespace {

kj::String absolute(kj::StringPtr path) {
  char resolved[PATH_MAX];
  if (realpath(path.cStr(), resolved) == nullptr) {
    fail(Problem(ErrorCode::INVALID_ARGUMENT, kj::str("cannot use the workspace ", path))
             .because(kj::str(strerror(errno))),
         USAGE);
  }
  return kj::str(resolved);
}

// URL[#REF]. One repository is the workspace, several lie in it under their own names.
void fillClones(kj::ArrayPtr<const kj::String> clones,
                capnp::List<rpc::Repository>::Builder repositories) {
  for (auto i: kj::indices(clones)) {
    kj::StringPtr url = clones[i];
    auto out = repositories[i];
    KJ_IF_MAYBE (mark, url.findLast('#')) {
      out.setRef(url.slice(*mark + 1));
      out.setUrl(kj::str(url.slice(0, *mark)));
      if (out.getRef().size() == 0) failUsage(kj::str("no ref after the # of --clone ", url));
    } else {
      out.setUrl(url);
    }
    if (clones.size() == 1) return;
    auto folder = folderOfUrl(out.getUrl());
    if (folder.size() == 0) failUsage(kj::str("--clone ", url, " has no name for its folder"));
    for (size_t other = 0; other < i; ++other) {
      if (repositories[other].getPath() == folder) {
        failUsage(kj::str("two repositories would both be cloned to ", folder));
      }
    }
    out.setPath(folder);
  }
}

void fillWorkspace(const Arguments& arguments, rpc::WorkspaceSpec::Builder workspace) {
  auto clones = arguments.all("--clone");
  KJ_IF_MAYBE (folder, arguments.get("--workspace")) {
    if (clones.size() > 0) failUsage(kj::str("--workspace and --clone exclude each other"));
    workspace.setDirectory(absolute(*folder));
  } else if (clones.size() > 0) {
    fillClones(clones, workspace.initRepositories(clones.size()));
  }
}

struct Launched {
  rpc::TaskEnvironment::Client environment;
  rpc::Session::Client session;
  rpc::Run::Client run;
  kj::String taskId;
};

struct Executed {
  rpc::Instance::Client instance;
  rpc::ByteStream::Client stdinStream;
};

Launched launch(Context& context) {
  auto& arguments = context.arguments;
  auto supervisor = context.supervisor();
  SystemEntropy entropy;
  auto ensure = supervisor.ensureRequest();
  auto spec = ensure.initSpec();
  auto taskId = newTaskId(entropy);
  KJ_IF_MAYBE (id, arguments.get("--task")) {
    taskId = kj::str(*id);
  }
  spec.setTaskId(taskId);
  KJ_IF_MAYBE (title, arguments.get("--title")) {
    spec.setTitle(*title);
  }
  KJ_IF_MAYBE (tenant, arguments.get("--tenant")) {
    spec.setTenantId(*tenant);
  }
  KJ_IF_MAYBE (executor, arguments.get("--executor")) {
    spec.setExecutorId(*executor);
  }
  KJ_IF_MAYBE (profile, arguments.get("--profile")) {
    spec.setProfileId(*profile);
  }
  fillWorkspace(arguments, spec.initWorkspace());
  auto ensured = ensure.send();

  // Sent before the answer: one round trip for both.
  auto launchRequest = ensured.getEnvironment().launchRequest();
  fillLaunch(context, launchRequest.initSpec());
  launchRequest.setProgress(kj::heap<SlowProgress>(context));
  auto launched = launchRequest.send();

  auto environment = context.wait(
      ensured.then([](capnp::Response<rpc::Supervisor::EnsureResults>&& r) { return kj::mv(r); }));
  check(environment.getError());
  auto answer = context.wait(launched.then(
      [](capnp::Response<rpc::TaskEnvironment::LaunchResults>&& r) { return kj::mv(r); }));
  KJ_IF_MAYBE (problem, readProblem(answer.getError())) {
    failLaunch(context, kj::mv(*problem));
  }
  return Launched{environment.getEnvironment(), answer.getSession(), answer.getRun(),
                  kj::mv(taskId)};
}

int printDetached(Context& context, Launched& launched) {
  auto status = context.wait(launched.environment.statusRequest().send().then(
      [](capnp::Response<rpc::TaskEnvironment::StatusResults>&& r) { return kj::mv(r); }));
  auto info = context.wait(launched.session.infoRequest().send().then(
      [](capnp::Response<rpc::Session::InfoResults>&& r) { return kj::mv(r); }));
  auto environment = status.getStatus();
  auto session = info.getInfo();
  if (context.json()) {
    JsonWriter json;
    json.beginObject()
        .member("taskId", kj::StringPtr(environment.getTaskId()))
        .member("environmentId", kj::StringPtr(environment.getId()))
        .member("sessionId", kj::StringPtr(session.getId()))
        .member("runId", kj::StringPtr(session.getRunId()))
        .member("executorId", kj::StringPtr(environment.getExecutorId()))
        .member("state", word(session.getState()))
        .endObject();
    context.print(json);
    return 0;
  }
  Table table({"TASK", "ENVIRONMENT", "SESSION", "STATE"});
  kj::Vector<kj::String> cells;
  cells.add(kj::str(environment.getTaskId()));
  cells.add(kj::str(environment.getId()));
  cells.add(kj::str(session.getId()));
  cells.add(kj::str(word(session.getState())));
  table.row(kj::mv(cells));
  std::printf("%s", table.finish().cStr());
  std::fprintf(stderr, "follow it with: capstan session logs -f %s\n", session.getId().cStr());
  return 0;
}

void removeEnvironment(Context& context, rpc::TaskEnvironment::Client environment) {
  auto request = environment.cleanupRequest();
  request.setScope(rpc::TaskEnvironment::CleanupScope::ALL);
  auto response = context.wait(request.send().then(
      [](capnp::Response<rpc::TaskEnvironment::CleanupResults>&& r) { return kj::mv(r); }));
  check(response.getError());
}

// A message to the daemon holds 1 MiB; more would cost the connection instead of an answer.
constexpr size_t MOST_LAUNCH_BYTES = 900u << 10;
constexpr size_t WORD_COST = 24;  // Pointer, NUL and padding; a variable has more fields.
constexpr size_t VARIABLE_COST = 96;

void checkSize(kj::ArrayPtr<const kj::String> command, kj::ArrayPtr<const kj::String> variables) {
  size_t total = 0;
  for (auto& word: command)
    total += word.size() + WORD_COST;
  for (auto& variable: variables)
    total += variable.size() + VARIABLE_COST;
  if (total <= MOST_LAUNCH_BYTES) return;
  fail(Problem(ErrorCode::INVALID_ARGUMENT,
               kj::str("the command and its variables take ", total >> 10, " KiB, at most ",
                       MOST_LAUNCH_BYTES >> 10, " KiB are sent"))
           .advise(kj::str("put long texts into a file of the workspace")),
       USAGE);
}

}  // namespace

kj::ArrayPtr<const kj::String> commandWords(Context& context) {
  KJ_IF_MAYBE (words, context.arguments.rest()) {
    return *words;
  }
  return nullptr;
}

void fillResume(Context& context, rpc::LaunchSpec::Builder spec) {
  auto command = commandWords(context);
  checkSize(command, nullptr);
  auto out = spec.initResumeCommand(command.size());
  for (auto i: kj::indices(command))
    out.set(i, command[i]);
}

void fillLaunch(Context& context, rpc::LaunchSpec::Builder spec) {
  auto command = commandWords(context);
  if (command.size() == 0) failUsage(kj::str("no command given: put it after --"));
  checkSize(command, context.arguments.all("--env"));
  auto out = spec.initCommand(command.size());
  for (auto i: kj::indices(command))
    out.set(i, command[i]);
  auto given = context.arguments.all("--env");
  auto variables = spec.initVariables(given.size());
  for (auto i: kj::indices(given)) {
    auto equals = given[i].findFirst('=');
    KJ_IF_MAYBE (at, equals) {
      if (*at == 0) failUsage(kj::str("--env wants NAME=VALUE, not '", given[i], "'"));
      variables[i].setKey(kj::str(given[i].slice(0, *at)));
      auto value = given[i].slice(*at + 1);
      if (value.startsWith("secret:")) {
        variables[i].setSecret(value.slice(7));
      } else {
        variables[i].setLiteral(value);
      }
      variables[i].setOrigin(rpc::Origin::MANAGED_RUNTIME);
    } else {
      failUsage(kj::str("--env wants NAME=VALUE, not '", given[i], "'"));
    }
  }
  KJ_IF_MAYBE (folder, context.arguments.get("--cwd")) {
    spec.setWorkingDirectory(*folder);
  }
}

int launchFailureCode(const Problem& problem) {
  // The field tells a command apart from a working directory that is not there.
  if (problem.source != "agentctl" || problem.field != "command") return CAPSTAN_FAILED;
  return problem.upstreamCode == "ENOENT" ? COMMAND_NOT_FOUND : CANNOT_EXECUTE;
}

[[noreturn]] void failLaunch(Context& context, Problem problem) {
  int code = launchFailureCode(problem);
  if (code != CAPSTAN_FAILED) {
    auto words = commandWords(context);
    if (words.size() > 0) problem.message = kj::str(words[0], ": ", problem.message);
  }
  fail(kj::mv(problem), code);
}

SlowProgress::SlowProgress(Context& context)
    : begun(context.timer().now()), timer(context.timer()), json(context.json()) {}

kj::Promise<void> SlowProgress::report(ReportContext context) {
  auto params = context.getParams();
  auto step = params.getStep();
  kj::StringPtr status = step.getStatus();
  // Those to come are only waiting, and a step whose output grows is reported again and again.
  if (status == "pending") return kj::READY_NOW;
  auto line = kj::str("[", params.getIndex() + 1, "/", params.getTotal(), "] ",
                      plain(step.getName()), ": ", status);
  if (line == last) return kj::READY_NOW;
  early.add(kj::str(line));
  last = kj::mv(line);
  bool wentWrong = status == "failed" || step.getWarning().size() > 0;
  // In JSON the error alone stands on standard error of a command that fails at once.
  if (timer.now() - begun < 1 * kj::SECONDS && (json || !wentWrong)) return kj::READY_NOW;
  for (auto& each: early)
    std::fprintf(stderr, "%s\n", each.cStr());
  early.clear();
  if (wentWrong && !json) printStepTrouble(stderr, step);
  return kj::READY_NOW;
}

int attachRun(Context& context, rpc::Session::Client session, rpc::Run::Client run,
              uint64_t offset) {
  auto& provider = *context.io.lowLevelProvider;
  auto target = kj::refcounted<OutputTarget>(openOutput(provider, STDOUT_FILENO),
                                             openOutput(provider, STDERR_FILENO));
  auto delivery = run.outputRequest();
  delivery.setOffset(offset);
  delivery.setSink(target->sink());
  delivery.setFollow(true);
  delivery.setHold(true);  // A slow reader slows the command, as a pipe would.
  auto subscribed = subscribe<rpc::Instance::OutputResults>(kj::mv(delivery));
  auto stdinStream =
      run.stdinRequest().send().then([](capnp::Response<rpc::Instance::StdinResults>&& response)
                                         -> kj::Maybe<rpc::ByteStream::Client> {
        auto refusal = readProblem(response.getError());
        KJ_IF_MAYBE (problem, refusal) {
          // A process that has ended already takes none; its exit says the rest.
          if (problem->code != ErrorCode::WRONG_STATE || problem->field == "takeOver") {
            std::fprintf(stderr, "capstan: no stdin: %s\n", kj::str(*problem).cStr());
          }
          return nullptr;
        }
        return response.getStdin();
      });
  auto subscription = context.wait(kj::mv(subscribed));
  KJ_IF_MAYBE (problem, subscription.tryGet<Problem>()) {
    fail(kj::mv(*problem));
  }

  return attach(context, run, kj::mv(stdinStream), *target,
                [session]() mutable -> kj::Promise<void> {
                  return session.stopRequest().send().ignoreResult();
                });
}

int runRun(Context& context) {
  context.noMoreWords(0);
  auto launched = launch(context);
  if (context.arguments.has("--detach")) return printDetached(context, launched);

  int code = attachRun(context, launched.session, launched.run, 0);
  if (context.arguments.has("--rm")) removeEnvironment(context, launched.environment);
  return code;
}

int runExec(Context& context) {
  context.noMoreWords(1);
  auto environment = context.environment(context.word(0, "ENV"));
  auto& provider = *context.io.lowLevelProvider;
  auto target = kj::refcounted<OutputTarget>(openOutput(provider, STDOUT_FILENO),
                                             openOutput(provider, STDERR_FILENO));
  auto request = environment.execRequest();
  fillLaunch(context, request.initSpec());
  request.setSink(target->sink());
  // Its response goes at once, as that of subscribe() does.
  auto answer = context.wait(request.send().then(
      [](capnp::Response<rpc::TaskEnvironment::ExecResults>&& response) -> Result<Executed> {
        KJ_IF_MAYBE (problem, readProblem(response.getError())) {
          return kj::mv(*problem);
        }
        return Executed{response.getInstance(), response.getStdin()};
      }));
  KJ_IF_MAYBE (problem, answer.tryGet<Problem>()) {
    failLaunch(context, kj::mv(*problem));
  }
  auto& executed = answer.get<Executed>();
  auto instance = executed.instance;
  return attach(context, instance, kj::Maybe<rpc::ByteStream::Client>(executed.stdinStream),
                *target, [instance]() mutable -> kj::Promise<void> {
                  auto kill = instance.signalRequest();
                  kill.setName("KILL");
                  return kill.send().ignoreResult();
                });
}

}  // namespace capstan::cli
