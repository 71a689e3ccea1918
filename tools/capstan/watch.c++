// capstan env watch: what happens to environments, as it happens.
#include "tools/capstan/commands.h"
#include "tools/capstan/views.h"

#include <kj/map.h>

#include <csignal>
#include <cstdio>
#include <ctime>

namespace capstan::cli {

namespace {

using Change = rpc::Watcher<rpc::EnvironmentStatus>::Change;

// What is told of events, one line each.
class EventLines {
public:
  virtual ~EventLines() noexcept(false) = default;
  virtual void event(uint64_t seq, Change::Reader change) = 0;
};

class JsonLines final: public EventLines {
public:
  void event(uint64_t seq, Change::Reader change) override {
    JsonWriter json;
    json.beginObject();
    switch (change.which()) {
      case Change::RESET:
        json.member("event", "reset"_kj).member("seq", seq);
        break;
      case Change::UPSERT:
        json.member("event", "upsert"_kj).member("seq", seq).key("environment");
        writeJson(json, change.getUpsert());
        break;
      case Change::REMOVE:
        json.member("event", "remove"_kj).member("seq", seq);
        json.member("environmentId", kj::StringPtr(change.getRemove()));
        break;
      case Change::SYNCED:
        json.member("event", "synced"_kj).member("seq", seq);
        break;
    }
    json.endObject();
    std::printf("%s\n", json.finish().cStr());
  }
};

// How things stand first, then only what differs from the last line about it.
class PlainLines final: public EventLines {
public:
  void event(uint64_t, Change::Reader change) override {
    switch (change.which()) {
      case Change::RESET:
        synced = false;
        for (auto& entry: known)
          entry.value.seen = false;
        break;
      case Change::UPSERT:
        show(change.getUpsert());
        break;
      case Change::REMOVE:
        remove(change.getRemove());
        break;
      case Change::SYNCED: {
        synced = true;
        kj::Vector<kj::String> gone;
        for (auto& entry: known) {
          if (!entry.value.seen) gone.add(kj::str(entry.key));
        }
        for (auto& id: gone)
          remove(id);
        break;
      }
    }
  }

private:
  struct Known {
    kj::String task;
    kj::String line;
    kj::HashMap<kj::String, kj::String> sessions;  // The last line by id.
    bool seen = true;
  };
  kj::HashMap<kj::String, Known> known;
  bool synced = false;

  static void print(kj::StringPtr task, kj::StringPtr what) {
    constexpr int TASK_COLUMN = 16;
    time_t now = time(nullptr);
    tm parts = {};
    localtime_r(&now, &parts);
    std::printf("%02d:%02d:%02d  %-*s  %s\n", parts.tm_hour, parts.tm_min, parts.tm_sec,
                TASK_COLUMN, task.cStr(), what.cStr());
  }

  void show(rpc::EnvironmentStatus::Reader status) {
    bool isNew = false;
    auto& entry = known.findOrCreate(status.getId(), [&]() {
      isNew = true;
      Known fresh;
      fresh.task = kj::str(status.getTaskId());
      return decltype(known)::Entry{kj::str(status.getId()), kj::mv(fresh)};
    });
    entry.seen = true;
    auto line = stateText(status);
    if (line != entry.line) {
      print(entry.task, line);
      entry.line = kj::mv(line);
    }
    kj::HashMap<kj::String, kj::String> sessions;
    for (auto session: status.getSessions()) {
      auto text = sessionText(session);
      bool ended = session.getState() != rpc::SessionState::STARTING &&
                   session.getState() != rpc::SessionState::RUNNING;
      auto before = entry.sessions.find(session.getId());
      bool same = false;
      KJ_IF_MAYBE (last, before) {
        same = *last == text;
      }
      // What ended before we looked is no news.
      if (!same && !(isNew && !synced && ended)) print(entry.task, text);
      sessions.insert(kj::str(session.getId()), kj::mv(text));
    }
    entry.sessions = kj::mv(sessions);
  }

  void remove(kj::StringPtr id) {
    KJ_IF_MAYBE (entry, known.find(id)) {
      print(entry->task, "removed");
      known.erase(id);
    } else {
      print(id, "removed");
    }
  }

  static kj::String stateText(rpc::EnvironmentStatus::Reader status) {
    auto state = word(status.getState());
    bool busy = status.getState() == rpc::EnvironmentState::PREPARING ||
                status.getState() == rpc::EnvironmentState::CLEANING;
    if (busy) {
      for (auto step: status.getLastSteps()) {
        if (step.getStatus() == "running") return kj::str(state, ": ", plain(step.getName()));
      }
    } else {
      KJ_IF_MAYBE (problem, readProblem(status.getLastError())) {
        return kj::str(state, ": ", plain(kj::str(*problem)));
      }
    }
    return kj::str(state);
  }

  static kj::String sessionText(rpc::SessionInfo::Reader session) {
    constexpr size_t COMMAND_WIDTH = 40;
    auto text = kj::str("session ", session.getId(), ' ', word(session.getState()));
    if (session.hasExit()) return kj::str(text, ' ', exitText(session));
    return kj::str(text, ": ", plain(commandText(session, COMMAND_WIDTH)));
  }
};

// Resolves `end` to why there are no more events: null = what was watched is gone, as it should be.
class Printer final: public rpc::Watcher<rpc::EnvironmentStatus>::Server {
public:
  Printer(kj::Own<EventLines> lines, kj::Own<kj::PromiseFulfiller<kj::Maybe<Problem>>> end)
      : lines(kj::mv(lines)), end(kj::mv(end)) {}
  ~Printer() noexcept(false) {
    end->fulfill(Problem(ErrorCode::UNREACHABLE, kj::str("the daemon tells no more events")));
  }

protected:
  kj::Promise<void> event(EventContext context) override {
    auto params = context.getParams();
    lines->event(params.getSeq(), params.getChange());
    // Whoever reads along wants it now; and the daemon waits meanwhile, nobody else.
    if (std::fflush(stdout) != 0) end->fulfill(nullptr);
    return kj::READY_NOW;
  }
  kj::Promise<void> closed(ClosedContext context) override {
    auto problem = readProblem(context.getParams().getError());
    KJ_IF_MAYBE (why, problem) {
      // The watched environment was removed, and its last line said so.
      if (why->code == ErrorCode::NOT_FOUND) problem = nullptr;
    }
    KJ_IF_MAYBE (why, problem) {
      // Whoever only looks must not start the next daemon.
      if (why->code == ErrorCode::SHUTTING_DOWN) why->code = ErrorCode::UNREACHABLE;
    }
    end->fulfill(kj::mv(problem));
    return kj::READY_NOW;
  }

private:
  kj::Own<EventLines> lines;
  kj::Own<kj::PromiseFulfiller<kj::Maybe<Problem>>> end;
};

template <typename Request>
kj::Promise<rpc::Subscription::Client> subscribe(Request request,
                                                 rpc::Watcher<rpc::EnvironmentStatus>::Client to) {
  request.setWatcher(kj::mv(to));
  return request.send().then([](auto&& response) { return response.getSubscription(); });
}

}  // namespace

int runEnvWatch(Context& context) {
  auto one = context.arguments.words().size() > 0
                 ? kj::Maybe<rpc::TaskEnvironment::Client>(
                       context.environment(context.arguments.words()[0]))
                 : nullptr;
  context.noMoreWords(1);
  auto pair = kj::newPromiseAndFulfiller<kj::Maybe<Problem>>();
  kj::Own<EventLines> lines;
  if (context.json()) {
    lines = kj::heap<JsonLines>();
  } else {
    lines = kj::heap<PlainLines>();
  }
  rpc::Watcher<rpc::EnvironmentStatus>::Client watcher =
      kj::heap<Printer>(kj::mv(lines), kj::mv(pair.fulfiller));
  auto subscribing = kj::Promise<rpc::Subscription::Client>(nullptr);
  KJ_IF_MAYBE (environment, one) {
    subscribing = subscribe(environment->watchRequest(), kj::mv(watcher));
  } else {
    subscribing = subscribe(context.supervisor().watchRequest(), kj::mv(watcher));
  }
  auto subscription = context.wait(kj::mv(subscribing));
  KJ_IF_MAYBE (problem, context.wait(kj::mv(pair.promise))) {
    fail(kj::mv(*problem));
  }
  return std::ferror(stdout) ? 128 + SIGPIPE : 0;
}

}  // namespace capstan::cli
