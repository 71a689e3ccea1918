// Commands that look at and end environments and sessions.
#include "client/process-io.h"
#include "client/standard-streams.h"
#include "tools/capstan/commands.h"
#include "tools/capstan/run.h"
#include "tools/capstan/views.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace capstan::cli {

namespace {

constexpr size_t COMMAND_COLUMN = 24;  // The table then fits 80 columns with a short task id.

// Sends a request and waits for its answer.
template <typename Results, typename Request>
capnp::Response<Results> ask(Context& context, Request&& request) {
  return context.wait(
      request.send().then([](capnp::Response<Results>&& response) { return kj::mv(response); }));
}

using ListResponse = capnp::Response<rpc::Supervisor::ListResults>;

// All environments, page by page.
kj::Vector<ListResponse> listAll(Context& context) {
  kj::Vector<ListResponse> pages;
  kj::String after;
  for (;;) {
    auto request = context.supervisor().listRequest();
    request.setAfter(after);
    pages.add(ask<rpc::Supervisor::ListResults>(context, kj::mv(request)));
    after = kj::str(pages.back().getNext());
    if (after.size() == 0) return pages;
  }
}

struct FoundSession {
  kj::String environmentId;
  rpc::Session::Client session;
};

// A session by id or unambiguous prefix, in whatever environment.
FoundSession findSession(Context& context, kj::StringPtr name) {
  kj::Vector<kj::String> ids, environments;
  for (auto& page: listAll(context)) {
    for (auto environment: page.getPage()) {
      for (auto session: environment.getSessions()) {
        if (!kj::StringPtr(session.getId()).startsWith(name)) continue;
        ids.add(kj::str(session.getId()));
        environments.add(kj::str(environment.getId()));
      }
    }
  }
  if (ids.size() == 0 || name.size() == 0) {
    fail(Problem(ErrorCode::NOT_FOUND, kj::str("no session '", name, "'"))
             .advise(kj::str("capstan session list shows them")));
  }
  if (ids.size() > 1) {
    fail(Problem(ErrorCode::INVALID_ARGUMENT,
                 kj::str("'", name, "' stands for ", ids.size(), " sessions"))
             .advise(kj::str("give more characters of the id")));
  }
  auto request = context.environment(environments[0]).sessionRequest();
  request.setId(ids[0]);
  auto response = ask<rpc::TaskEnvironment::SessionResults>(context, kj::mv(request));
  check(response.getError());
  return FoundSession{kj::mv(environments[0]), response.getSession()};
}

void addSessionRow(Table& table, rpc::SessionInfo::Reader session, kj::StringPtr taskId) {
  kj::Vector<kj::String> cells;
  cells.add(kj::str(session.getId()));
  cells.add(kj::str(taskId));
  cells.add(kj::str(word(session.getState())));
  cells.add(exitText(session));
  cells.add(timeText(session.getStartedAt()));
  cells.add(commandText(session, COMMAND_COLUMN));
  table.row(kj::mv(cells));
}

void printProblem(rpc::Error::Reader error) {
  KJ_IF_MAYBE (problem, readProblem(error)) {
    std::printf("error        %s [%s]\n", plainLines(kj::str(*problem)).cStr(),
                errorCodeName(problem->code).cStr());
  }
}

void setGrace(Context& context, auto& request) {
  request.setForce(context.arguments.has("--force"));
  KJ_IF_MAYBE (grace, context.arguments.get("--grace")) {
    request.setGraceMs(readDuration("--grace", *grace));
  }
}

}  // namespace

int runEnvList(Context& context) {
  context.noMoreWords(0);
  auto pages = listAll(context);
  if (context.json()) {
    JsonWriter json;
    json.beginObject().key("environments").beginArray();
    for (auto& page: pages) {
      for (auto status: page.getPage())
        writeJson(json, status);
    }
    json.endArray().endObject();
    context.print(json);
    return 0;
  }
  Table table({"ENVIRONMENT", "TASK", "STATE", "EXECUTOR", "SESSIONS", "CHANGED"});
  for (auto& page: pages) {
    for (auto status: page.getPage()) {
      uint32_t running = 0;
      for (auto session: status.getSessions()) {
        if (session.getState() == rpc::SessionState::RUNNING) ++running;
      }
      kj::Vector<kj::String> cells;
      cells.add(kj::str(status.getId()));
      cells.add(kj::str(status.getTaskId()));
      cells.add(kj::str(word(status.getState())));
      cells.add(kj::str(status.getExecutorId()));
      cells.add(running > 0 ? kj::str(status.getSessions().size(), " (", running, " running)")
                            : kj::str(status.getSessions().size()));
      cells.add(timeText(status.getChangedAt()));
      table.row(kj::mv(cells));
    }
  }
  std::printf("%s", table.finish().cStr());
  return 0;
}

namespace {

void printStatus(Context& context, rpc::EnvironmentStatus::Reader status) {
  if (context.json()) {
    JsonWriter json;
    writeJson(json, status);
    context.print(json);
    return;
  }
  std::printf("environment  %s\ntask         %s\n", status.getId().cStr(),
              status.getTaskId().cStr());
  if (status.getTitle().size() > 0)
    std::printf("title        %s\n", plain(status.getTitle()).cStr());
  std::printf("state        %s\nexecutor     %s (%s)\nworkspace    %s\ncreated      %s\n",
              word(status.getState()).cStr(), status.getExecutorId().cStr(),
              status.getRuntime().cStr(), plain(status.getWorkspace()).cStr(),
              timeText(status.getCreatedAt()).cStr());
  printHealth(status);
  printProblem(status.getLastError());
  if (status.getLastSteps().size() > 0) {
    std::printf("\n");
    Table steps({"STEP", "STATUS", "TOOK"});
    for (auto step: status.getLastSteps()) {
      kj::Vector<kj::String> cells;
      cells.add(kj::str(step.getName()));
      cells.add(kj::str(step.getStatus()));
      cells.add(step.getEndedAt() > 0 ? kj::str(step.getEndedAt() - step.getStartedAt(), " ms")
                                      : kj::String());
      steps.row(kj::mv(cells));
    }
    std::printf("%s", steps.finish().cStr());
    for (auto step: status.getLastSteps()) {
      if (step.getStatus() != "failed" && step.getWarning().size() == 0) continue;
      std::printf("\n%s\n", plain(step.getName()).cStr());
      printStepTrouble(stdout, step);
    }
  }
  if (status.getSessions().size() > 0) {
    std::printf("\n");
    Table table({"SESSION", "TASK", "STATE", "EXIT", "STARTED", "COMMAND"});
    for (auto session: status.getSessions())
      addSessionRow(table, session, status.getTaskId());
    std::printf("%s", table.finish().cStr());
  }
}

}  // namespace

int runEnvShow(Context& context) {
  auto environment = context.environment(context.word(0, "ENV"));
  context.noMoreWords(1);
  auto response = ask<rpc::TaskEnvironment::StatusResults>(context, environment.statusRequest());
  printStatus(context, response.getStatus());
  return 0;
}

int runEnvRecheck(Context& context) {
  auto environment = context.environment(context.word(0, "ENV"));
  context.noMoreWords(1);
  auto response = ask<rpc::TaskEnvironment::RecheckResults>(context, environment.recheckRequest());
  check(response.getError());
  printStatus(context, response.getStatus());
  return 0;
}

int runEnvStop(Context& context) {
  auto environment = context.environment(context.word(0, "ENV"));
  context.noMoreWords(1);
  auto request = environment.stopRequest();
  setGrace(context, request);
  check(ask<rpc::TaskEnvironment::StopResults>(context, kj::mv(request)).getError());
  if (context.json()) return runEnvShow(context);
  return 0;
}

int runEnvDestroy(Context& context) {
  auto environment = context.environment(context.word(0, "ENV"));
  context.noMoreWords(1);
  auto request = environment.cleanupRequest();
  request.setScope(context.arguments.has("--keep-workspace")
                       ? rpc::TaskEnvironment::CleanupScope::ALL_KEEP_WORKSPACE
                       : rpc::TaskEnvironment::CleanupScope::ALL);
  auto response = ask<rpc::TaskEnvironment::CleanupResults>(context, kj::mv(request));
  if (context.json()) {
    JsonWriter json;
    json.beginObject().key("leftovers").beginArray();
    for (auto line: response.getLeftovers())
      json.value(kj::StringPtr(line));
    json.endArray().endObject();
    context.print(json);
  } else {
    for (auto line: response.getLeftovers())
      std::printf("%s\n", line.cStr());
  }
  check(response.getError());
  return 0;
}

int runSessionList(Context& context) {
  context.noMoreWords(0);
  kj::String only;
  KJ_IF_MAYBE (name, context.arguments.get("--env")) {
    auto status = ask<rpc::TaskEnvironment::StatusResults>(
        context, context.environment(*name).statusRequest());
    only = kj::str(status.getStatus().getId());
  }
  JsonWriter json;
  json.beginObject().key("sessions").beginArray();
  Table table({"SESSION", "TASK", "STATE", "EXIT", "STARTED", "COMMAND"});
  for (auto& page: listAll(context)) {
    for (auto status: page.getPage()) {
      if (only.size() > 0 && status.getId() != only) continue;
      for (auto session: status.getSessions()) {
        writeJson(json, session, status.getId());
        addSessionRow(table, session, status.getTaskId());
      }
    }
  }
  json.endArray().endObject();
  if (context.json()) {
    context.print(json);
  } else {
    std::printf("%s", table.finish().cStr());
  }
  return 0;
}

int runSessionShow(Context& context) {
  auto found = findSession(context, context.word(0, "S"));
  context.noMoreWords(1);
  auto response = ask<rpc::Session::InfoResults>(context, found.session.infoRequest());
  auto session = response.getInfo();
  if (context.json()) {
    JsonWriter json;
    writeJson(json, session, found.environmentId);
    context.print(json);
    return 0;
  }
  std::printf(
      "session      %s\nenvironment  %s\nstate        %s\nexit         %s\nrun          %s\n"
      "started      %s\noutput       %llu bytes, kept from %llu\ncommand      %s\n",
      session.getId().cStr(), found.environmentId.cStr(), word(session.getState()).cStr(),
      exitText(session).cStr(), session.getRunId().cStr(), timeText(session.getStartedAt()).cStr(),
      static_cast<unsigned long long>(session.getOutputEnd()),
      static_cast<unsigned long long>(session.getOutputBegin()),
      plain(commandText(session, 400)).cStr());
  if (session.getPid() != 0) std::printf("pid          %d\n", session.getPid());
  if (session.getDescendants() > 0) {
    std::printf("left behind  %u processes of the agent still run: capstan session stop %s\n",
                session.getDescendants(), session.getId().cStr());
  }
  printProblem(session.getLastError());
  return 0;
}

int runSessionLogs(Context& context) {
  auto found = findSession(context, context.word(0, "S"));
  context.noMoreWords(1);
  auto& provider = *context.io.lowLevelProvider;
  auto target = kj::refcounted<OutputTarget>(openOutput(provider, STDOUT_FILENO),
                                             openOutput(provider, STDERR_FILENO));
  auto request = found.session.outputRequest();
  request.setSink(target->sink());
  request.setFollow(context.arguments.has("--follow") || context.arguments.has("-f"));
  KJ_IF_MAYBE (from, context.arguments.get("--from")) {
    auto position = request.initPosition();
    kj::StringPtr offset = *from;
    KJ_IF_MAYBE (colon, from->findLast(':')) {
      position.setRunId(kj::str(from->slice(0, *colon)));
      offset = from->slice(*colon + 1);
    }
    char* end;
    position.setOffset(std::strtoull(offset.cStr(), &end, 10));
    if (offset.size() == 0 || *end != 0 || offset[0] == '-') {
      failUsage(kj::str("--from wants RUN:OFFSET, not '", *from, "'"));
    }
  }
  auto subscription = context.wait(subscribe<rpc::Session::OutputResults>(kj::mv(request)));
  KJ_IF_MAYBE (problem, subscription.tryGet<Problem>()) {
    fail(kj::mv(*problem));
  }
  auto failure = context.wait(target->onEnd().then(
      []() -> kj::Maybe<kj::Exception> { return nullptr; },
      [](kj::Exception&& e) -> kj::Maybe<kj::Exception> { return kj::mv(e); }));
  KJ_IF_MAYBE (exception, failure) {
    bool cut = exception->getType() == kj::Exception::Type::DISCONNECTED;
    if (cut && target->readerGone()) return 128 + SIGPIPE;
    // If that is because the process is lost, its session says more, as soon as that is durable.
    for (int looks = 0; cut && looks < 20; ++looks) {
      auto info = ask<rpc::Session::InfoResults>(context, found.session.infoRequest());
      check(info.getInfo().getLastError());
      auto state = info.getInfo().getState();
      bool lives = state == rpc::SessionState::RUNNING ||
                   state == rpc::SessionState::RECONNECTING ||
                   state == rpc::SessionState::RECOVERING;
      if (!lives) break;
      context.wait(context.timer().afterDelay(100 * kj::MILLISECONDS));
    }
    throw failureOf(*exception);
  }
  if (target->lost() > 0) {
    std::fprintf(stderr, "capstan: %llu bytes of output are no longer kept\n",
                 static_cast<unsigned long long>(target->lost()));
  }
  return 0;
}

int runSessionStop(Context& context) {
  auto found = findSession(context, context.word(0, "S"));
  context.noMoreWords(1);
  auto request = found.session.stopRequest();
  setGrace(context, request);
  check(ask<rpc::Session::StopResults>(context, kj::mv(request)).getError());
  if (context.json()) return runSessionShow(context);
  return 0;
}

int runSessionResume(Context& context) {
  auto name = context.word(0, "S");
  context.noMoreWords(1);
  auto found = findSession(context, name);
  auto before = ask<rpc::Session::InfoResults>(context, found.session.infoRequest());
  auto request = found.session.resumeRequest();
  fillResume(context, request.initSpec());
  request.setProgress(kj::heap<SlowProgress>(context));
  // Its response goes at once, as that of subscribe() does.
  auto resumed = context.wait(request.send().then(
      [](capnp::Response<rpc::Session::ResumeResults>&& response) -> Result<rpc::Run::Client> {
        KJ_IF_MAYBE (problem, readProblem(response.getError())) {
          return kj::mv(*problem);
        }
        return response.getRun();
      }));
  KJ_IF_MAYBE (problem, resumed.tryGet<Problem>()) {
    failLaunch(context, kj::mv(*problem));
  }
  auto run = resumed.get<rpc::Run::Client>();
  auto id = ask<rpc::Run::IdResults>(context, run.idRequest());
  bool goesOn = id.getRunId() == before.getInfo().getRunId();
  if (goesOn && commandWords(context).size() > 0) {
    std::fprintf(stderr, "capstan: its run goes on; the command after -- was not used\n");
  }
  if (context.arguments.has("--detach")) {
    if (!context.json()) {
      std::fprintf(stderr, "%s; follow it with: capstan session logs -f %s\n",
                   goesOn ? "its run goes on" : "a new run was started",
                   before.getInfo().getId().cStr());
    }
    return runSessionShow(context);
  }
  uint64_t offset = 0;
  if (goesOn) {
    // As after a look away: what was said before is in the logs.
    auto now = ask<rpc::Session::InfoResults>(context, found.session.infoRequest());
    offset = now.getInfo().getOutputEnd();
    std::fprintf(stderr, "capstan: its run goes on; earlier output: capstan session logs %s\n",
                 now.getInfo().getId().cStr());
  }
  return attachRun(context, found.session, run, offset);
}

int runRuntimes(Context& context) {
  context.noMoreWords(0);
  auto response =
      ask<rpc::Supervisor::RuntimesResults>(context, context.supervisor().runtimesRequest());
  if (context.json()) {
    JsonWriter json;
    json.beginObject().key("runtimes").beginArray();
    for (auto status: response.getRuntimes())
      writeJson(json, status);
    json.endArray().endObject();
    context.print(json);
    return 0;
  }
  auto yes = [](bool value) { return value ? kj::str("yes") : kj::str("no"); };
  Table table({"RUNTIME", "BUILT IN", "CONFIGURED", "AVAILABLE", "HEALTHY", "VERSION", "WHY NOT"});
  for (auto status: response.getRuntimes()) {
    kj::Vector<kj::String> cells;
    cells.add(kj::str(status.getRuntime()));
    cells.add(yes(status.getBuiltIn()));
    cells.add(yes(status.getConfigured()));
    cells.add(yes(status.getAvailable()));
    cells.add(yes(status.getHealthy()));
    cells.add(kj::str(status.getVersion()));
    KJ_IF_MAYBE (reason, readProblem(status.getReason())) {
      cells.add(kj::str(*reason));
    } else {
      cells.add(kj::String());
    }
    table.row(kj::mv(cells));
  }
  std::printf("%s", table.finish().cStr());
  return 0;
}

}  // namespace capstan::cli
