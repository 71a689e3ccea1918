#pragma once
// How things look on the command line: tables for people, JSON for programs (docs/cli-json.md).

#include "base/json-writer.h"
#include "bootstrap.capnp.h"
#include "values.capnp.h"

#include <kj/vector.h>

#include <cstdio>

namespace capstan::cli {

// Rows of text in columns that are as wide as they need to be; control characters are escaped.
class Table {
public:
  explicit Table(std::initializer_list<kj::StringPtr> titles);
  void row(kj::Vector<kj::String> cells);
  kj::String finish() const;

private:
  kj::Vector<kj::Vector<kj::String>> rows;
};

// A text of somebody else's for a terminal: control characters are escaped.
kj::String plain(kj::StringPtr text);
// The same of a text of several lines, which stay lines.
kj::String plainLines(kj::StringPtr text);

kj::StringPtr word(rpc::EnvironmentState state);
kj::StringPtr word(rpc::SessionState state);
kj::StringPtr word(rpc::RetryHint retry);
// "3", "SIGKILL", "-".
kj::String exitText(rpc::SessionInfo::Reader session);
// The time of day today, else the date, in local time; "-" when unknown.
kj::String timeText(int64_t unixMs);
kj::String commandText(rpc::SessionInfo::Reader session, size_t width);

// The warning of a step and the last lines of its output, indented.
// The axes, and the episode that goes on or ended last.
void printHealth(rpc::EnvironmentStatus::Reader status);
void printStepTrouble(FILE* to, rpc::PrepareStep::Reader step);

void writeJson(JsonWriter& json, rpc::Error::Reader error);
void writeJson(JsonWriter& json, rpc::SessionInfo::Reader session, kj::StringPtr environmentId);
void writeJson(JsonWriter& json, rpc::EnvironmentStatus::Reader status);
void writeJson(JsonWriter& json, rpc::RuntimeStatus::Reader status);

}  // namespace capstan::cli
