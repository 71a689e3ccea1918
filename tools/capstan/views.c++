#include "tools/capstan/views.h"

#include "base/problem.h"

#include <capnp/schema.h>

#include <cstring>
#include <ctime>

namespace capstan::cli {

namespace {

template <typename T>
kj::StringPtr enumWord(T value) {
  auto all = capnp::Schema::from<T>().getEnumerants();
  auto index = static_cast<size_t>(value);
  return index < all.size() ? all[index].getProto().getName() : "unknown"_kj;
}

// Columns are counted in characters: octets that do not continue a UTF-8 character.
size_t widthOf(kj::StringPtr text) {
  size_t width = 0;
  for (char c: text) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) ++width;
  }
  return width;
}

void writeExit(JsonWriter& json, rpc::ExitStatus::Reader exit) {
  json.beginObject();
  switch (exit.which()) {
    case rpc::ExitStatus::CODE:
      json.member("code", exit.getCode());
      break;
    case rpc::ExitStatus::SIGNAL:
      json.member("signal", kj::StringPtr(exit.getSignal()));
      break;
    case rpc::ExitStatus::UNKNOWN:
      json.member("unknown", true);
      break;
  }
  json.member("at", exit.getAt()).endObject();
}

}  // namespace

kj::String plain(kj::StringPtr text) {
  kj::Vector<char> out;
  appendPlainText(out, text.asArray());
  return kj::heapString(out.asPtr());
}

kj::String plainLines(kj::StringPtr text) {
  kj::Vector<char> out;
  auto rest = text.asArray();
  for (;;) {
    size_t end = 0;
    while (end < rest.size() && rest[end] != '\n')
      ++end;
    appendPlainText(out, rest.slice(0, end));
    if (end == rest.size()) return kj::heapString(out.asPtr());
    out.add('\n');
    rest = rest.slice(end + 1, rest.size());
  }
}

Table::Table(std::initializer_list<kj::StringPtr> titles) {
  kj::Vector<kj::String> cells;
  for (auto title: titles)
    cells.add(kj::str(title));
  rows.add(kj::mv(cells));
}

void Table::row(kj::Vector<kj::String> cells) {
  for (auto& cell: cells) {
    cell = cell.size() == 0 ? kj::str("-") : plain(cell);
  }
  rows.add(kj::mv(cells));
}

kj::String Table::finish() const {
  kj::Vector<size_t> widths;
  for (auto& row: rows) {
    for (auto i: kj::indices(row)) {
      if (i == widths.size()) widths.add(0);
      widths[i] = kj::max(widths[i], widthOf(row[i]));
    }
  }
  kj::Vector<char> out;
  for (auto& row: rows) {
    for (auto i: kj::indices(row)) {
      out.addAll(row[i].asArray());
      if (i + 1 == row.size()) break;
      for (size_t pad = widthOf(row[i]); pad < widths[i] + 2; ++pad)
        out.add(' ');
    }
    out.add('\n');
  }
  return kj::heapString(out.asPtr());
}

kj::StringPtr word(rpc::EnvironmentState state) { return enumWord(state); }
kj::StringPtr word(rpc::SessionState state) { return enumWord(state); }
kj::StringPtr word(rpc::RetryHint retry) { return enumWord(retry); }

kj::String exitText(rpc::SessionInfo::Reader session) {
  if (!session.hasExit()) return kj::str("-");
  auto exit = session.getExit();
  switch (exit.which()) {
    case rpc::ExitStatus::CODE:
      return kj::str(exit.getCode());
    case rpc::ExitStatus::SIGNAL:
      return kj::str("SIG", exit.getSignal());
    case rpc::ExitStatus::UNKNOWN:
      break;
  }
  return kj::str("unknown");
}

kj::String timeText(int64_t unixMs) {
  if (unixMs == 0) return kj::str("-");
  time_t seconds = unixMs / 1000;
  tm parts = {};
  localtime_r(&seconds, &parts);
  char text[32];
  time_t now = time(nullptr);
  tm present = {};
  localtime_r(&now, &present);
  bool today = present.tm_year == parts.tm_year && present.tm_yday == parts.tm_yday;
  strftime(text, sizeof(text), today ? "%H:%M:%S" : "%Y-%m-%d", &parts);
  return kj::str(text);
}

kj::String commandText(rpc::SessionInfo::Reader session, size_t width) {
  auto words = KJ_MAP(part, session.getCommand()) { return kj::str(part); };
  auto text = kj::strArray(words, " ");
  if (text.size() <= width) return text;
  size_t cut = width - 3;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80)
    --cut;
  return kj::str(text.slice(0, cut), "...");
}

void printHealth(rpc::EnvironmentStatus::Reader status) {
  auto health = status.getHealth();
  std::printf("health       executor %s, workspace %s, conversation %s\n",
              enumWord(health.getExecutor()).cStr(), enumWord(health.getWorkspace()).cStr(),
              enumWord(health.getConversation()).cStr());
  auto episodes = status.getEpisodes();
  if (episodes.size() == 0) return;
  auto episode = episodes[episodes.size() - 1];
  bool goesOn = episode.getEndedAt() == 0;
  auto until = goesOn ? kj::str("until now") : kj::str("to ", timeText(episode.getEndedAt()));
  auto touched = episode.getAffected().size();
  std::printf("%s %s, %s %s", goesOn ? "episode     " : "last episode", episode.getOutcome().cStr(),
              timeText(episode.getStartedAt()).cStr(), until.cStr());
  if (touched > 0) {
    std::printf(", %zu session%s lost the run", static_cast<size_t>(touched),
                touched == 1 ? "" : "s");
  }
  std::printf("\n             %s\n", plain(episode.getCause().getMessage()).cStr());
  for (auto blocker: episode.getBlockers())
    std::printf("             also: %s\n", plain(blocker.getMessage()).cStr());
}

void printStepTrouble(FILE* to, rpc::PrepareStep::Reader step) {
  constexpr size_t MOST_LINES = 20;
  if (step.getWarning().size() > 0) {
    std::fprintf(to, "  warning: %s: %s\n", plain(step.getWarning()).cStr(),
                 plain(step.getWarningDetail()).cStr());
  }
  kj::Vector<kj::ArrayPtr<const char>> lines;
  kj::ArrayPtr<const char> rest = kj::StringPtr(step.getOutput()).asArray();
  while (rest.size() > 0) {
    size_t length = 0;
    while (length < rest.size() && rest[length] != '\n')
      ++length;
    lines.add(rest.slice(0, length));
    rest = rest.slice(kj::min(length + 1, rest.size()), rest.size());
  }
  size_t begin = lines.size() > MOST_LINES ? lines.size() - MOST_LINES : 0;
  for (auto line: lines.slice(begin, lines.size()))
    std::fprintf(to, "  | %s\n", plain(kj::heapString(line)).cStr());
}

void writeJson(JsonWriter& json, rpc::Error::Reader error) {
  json.beginObject()
      .member("code", errorCodeName(error.getCode()))
      .member("message", kj::StringPtr(error.getMessage()))
      .member("cause", kj::StringPtr(error.getCause()))
      .member("hint", kj::StringPtr(error.getHint()))
      .member("field", kj::StringPtr(error.getField()))
      .member("source", kj::StringPtr(error.getSource()))
      .member("upstreamCode", kj::StringPtr(error.getUpstreamCode()))
      .member("retry", word(error.getRetry()))
      .member("retryable", error.getRetry() != rpc::RetryHint::NEVER)
      .member("retryAfterMs", error.getRetryAfterMs())
      .endObject();
}

void writeJson(JsonWriter& json, rpc::SessionInfo::Reader session, kj::StringPtr environmentId) {
  json.beginObject()
      .member("id", kj::StringPtr(session.getId()))
      .member("environmentId", environmentId)
      .member("state", word(session.getState()))
      .member("runId", kj::StringPtr(session.getRunId()))
      .member("startedAt", session.getStartedAt())
      .member("pid", session.getPid())
      .member("descendants", session.getDescendants())
      .member("outputBegin", session.getOutputBegin())
      .member("outputEnd", session.getOutputEnd());
  json.key("command").beginArray();
  for (auto part: session.getCommand())
    json.value(kj::StringPtr(part));
  json.endArray();
  if (session.hasExit()) {
    json.key("exit");
    writeExit(json, session.getExit());
  }
  if (session.getLastError().getCode() != ErrorCode::NONE) {
    json.key("lastError");
    writeJson(json, session.getLastError());
  }
  json.endObject();
}

namespace {

void writeEpisode(JsonWriter& json, rpc::Episode::Reader episode) {
  json.beginObject()
      .member("id", kj::StringPtr(episode.getId()))
      .member("generation", kj::StringPtr(episode.getGeneration()))
      .member("outcome", kj::StringPtr(episode.getOutcome()))
      .member("startedAt", episode.getStartedAt())
      .member("endedAt", episode.getEndedAt());
  json.key("affected").beginArray();
  for (auto session: episode.getAffected())
    json.value(kj::StringPtr(session));
  json.endArray();
  json.key("cause");
  writeJson(json, episode.getCause());
  json.key("blockers").beginArray();
  for (auto blocker: episode.getBlockers())
    writeJson(json, blocker);
  json.endArray().endObject();
}

}  // namespace

void writeJson(JsonWriter& json, rpc::EnvironmentStatus::Reader status) {
  json.beginObject()
      .member("id", kj::StringPtr(status.getId()))
      .member("taskId", kj::StringPtr(status.getTaskId()))
      .member("title", kj::StringPtr(status.getTitle()))
      .member("tenantId", kj::StringPtr(status.getTenantId()))
      .member("state", word(status.getState()))
      .member("executorId", kj::StringPtr(status.getExecutorId()))
      .member("executorType", kj::StringPtr(status.getExecutorType()))
      .member("runtime", kj::StringPtr(status.getRuntime()))
      .member("profileId", kj::StringPtr(status.getProfileId()))
      .member("workspace", kj::StringPtr(status.getWorkspace()))
      .member("createdAt", status.getCreatedAt())
      .member("changedAt", status.getChangedAt())
      .member("seq", status.getSeq());
  json.key("labels").beginObject();
  for (auto label: status.getLabels()) {
    json.member(kj::StringPtr(label.getKey()), kj::StringPtr(label.getValue()));
  }
  json.endObject();
  auto health = status.getHealth();
  json.key("health")
      .beginObject()
      .member("executor", enumWord(health.getExecutor()))
      .member("workspace", enumWord(health.getWorkspace()))
      .member("conversation", enumWord(health.getConversation()))
      .endObject();
  json.key("episodes").beginArray();
  for (auto episode: status.getEpisodes())
    writeEpisode(json, episode);
  json.endArray();
  json.key("sessions").beginArray();
  for (auto session: status.getSessions())
    writeJson(json, session, status.getId());
  json.endArray();
  json.key("lastSteps").beginArray();
  for (auto step: status.getLastSteps()) {
    json.beginObject()
        .member("name", kj::StringPtr(step.getName()))
        .member("command", kj::StringPtr(step.getCommand()))
        .member("status", kj::StringPtr(step.getStatus()))
        .member("startedAt", step.getStartedAt())
        .member("endedAt", step.getEndedAt())
        .member("output", kj::StringPtr(step.getOutput()))
        .member("error", kj::StringPtr(step.getError()))
        .member("warning", kj::StringPtr(step.getWarning()))
        .member("warningDetail", kj::StringPtr(step.getWarningDetail()))
        .endObject();
  }
  json.endArray();
  if (status.getLastError().getCode() != ErrorCode::NONE) {
    json.key("lastError");
    writeJson(json, status.getLastError());
  }
  json.endObject();
}

void writeJson(JsonWriter& json, rpc::RuntimeStatus::Reader status) {
  json.beginObject()
      .member("runtime", kj::StringPtr(status.getRuntime()))
      .member("builtIn", status.getBuiltIn())
      .member("configured", status.getConfigured())
      .member("available", status.getAvailable())
      .member("healthy", status.getHealthy())
      .member("version", kj::StringPtr(status.getVersion()))
      .member("checkedAt", status.getCheckedAt());
  if (status.getReason().getCode() != ErrorCode::NONE) {
    json.key("reason");
    writeJson(json, status.getReason());
  }
  json.endObject();
}

}  // namespace capstan::cli
