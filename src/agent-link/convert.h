#pragma once
// Between the values of domain and those of schema/agentctl.capnp.

#include "agentctl.capnp.h"
#include "base/problem.h"
#include "domain/process.h"

namespace capstan {

// Null when the peer sent no error.
Outcome readError(rpc::Error::Reader error);
// As above, with "agentctl" as the source where the peer named none.
Outcome readHelperError(rpc::Error::Reader error);
ExitStatus readExit(rpc::ExitStatus::Reader exit);
void write(rpc::Terminal::Builder out, const Terminal& terminal);

// What the helper says of one instance.
struct InstanceReport {
  kj::String id;
  kj::String sessionId;
  kj::String environmentId;
  kj::String taskId;
  bool running = false;
  bool acknowledged = false;
  bool ephemeral = false;
  int pid = 0;
  UnixMs startedAt = 0;
  kj::Maybe<ExitStatus> exit;
  uint32_t descendants = 0;
  uint64_t outputBegin = 0;
  uint64_t outputEnd = 0;
  kj::Maybe<Problem> error;
};
InstanceReport readReport(agentctl::InstanceInfo::Reader info);

// What the helper says of itself.
struct HelperInfo {
  kj::Array<kj::byte> serverId;
  kj::String build;
  kj::Array<kj::String> capabilities;
  int pid = 0;
  kj::String platform;
  bool draining = false;
};
HelperInfo readHelperInfo(agentctl::ServerInfo::Reader info);

}  // namespace capstan
