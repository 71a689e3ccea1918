#pragma once
// One process under agentctl: an agent's run or an exec, with its streams, its log and its tree.

#include "agentctl/output-log.h"
#include "agentctl/reaper-link.h"
#include "agentctl/stdin-buffer.h"

#include <kj/refcount.h>

namespace capstan {

// What all instances of a helper share. Must outlive them.
struct InstanceHost {
  kj::UnixEventPort& port;
  kj::Timer& timer;
  ChildWatch& children;
  kj::String home;           // HOME for processes that are given none.
  kj::String tag;            // Tells this helper's cgroups from another's.
  uint64_t descriptorLimit;  // Soft, of processes.
  int lifeline = -1;         // Held by reapers, too; -1 = none.
  // For output that nobody keeps.
  kj::Array<kj::byte> scratch = kj::heapArray<kj::byte>(OutputLog::MAX_PIECE_BYTES);
};

// How an agent ended.
struct ExitRecord {
  enum class Kind { CODE, SIGNAL, UNKNOWN };
  Kind kind = Kind::UNKNOWN;
  int value = 0;  // Exit code or signal number.
  int64_t atMs = 0;

  void write(rpc::ExitStatus::Builder builder) const;
};

// created -> configured -> running -> exited; failed instead when it never ran. Counted: whoever
// uses it over a wait holds a reference. Dropping the last one ends its tree.
class HelperInstance final: public kj::Refcounted, private kj::TaskSet::ErrorHandler {
public:
  // Checks the spec and makes the session directory. Problems: invalidArgument, denied.
  static Result<kj::Own<HelperInstance>> create(InstanceHost& host,
                                                agentctl::InstanceSpec::Reader spec);

  HelperInstance(InstanceHost& host, agentctl::InstanceSpec::Reader spec);
  ~HelperInstance() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(HelperInstance);

  kj::StringPtr id() const { return idText; }
  agentctl::InstanceState state() const { return stateNow; }
  bool isEphemeral() const { return ephemeral; }
  // Whether it has a process, or is getting one, or descendants are left.
  bool isLive() const;
  // exited or failed: nothing will change but descendants.
  bool hasEnded() const;
  bool isAcknowledged() const { return acknowledged; }
  // The outcome is durable elsewhere: gives the log's memory back to the spool.
  void acknowledge();
  // Deletes the log and what else was stored. Requires !isLive().
  void removeFiles();

  // Once, before start(). The secrets in the message are overwritten whatever comes of it.
  Outcome configure(agentctl::InstanceConfig::Reader config);
  // Resolves after execve. Dropping the promise does not stop the start.
  kj::Promise<Result<int32_t>> start();
  // `name` without SIG. Problems: invalidArgument, wrongState, denied.
  kj::Promise<Outcome> signal(kj::String name);
  // Problems: wrongState (not running), unsupported (no terminal).
  Outcome resize(uint16_t columns, uint16_t rows);
  // Resolves after the agent's exit and the end of its output. Problems: why it never ran.
  kj::Promise<Result<ExitRecord>> wait();
  // Resolves when it has ended and no process of its tree is left. Hold a reference meanwhile.
  kj::Promise<void> whenIdle();
  // Ends the tree; resolves with the number of processes left. Idempotent. Dropping the promise
  // does not undo it. graceMs 0 = the spec's.
  kj::Promise<uint32_t> stop(uint64_t graceMs, bool force);

  // A snapshot of everything a caller may see.
  struct Info;
  kj::Promise<Info> info();

  OutputLog& output() { return log; }
  // Null before it runs and after its end.
  kj::Maybe<StdinBuffer&> input();

private:
  InstanceHost& host;
  kj::String idText, sessionId, environmentId, taskId, directory;
  bool ephemeral;
  bool acknowledged = false;
  uint64_t stopGraceMs;
  agentctl::InstanceState stateNow = agentctl::InstanceState::CREATED;
  bool starting = false;
  int32_t pid = 0;
  uint64_t startTicks = 0;
  int64_t startedAtMs = 0;
  ExitRecord exit;
  kj::Maybe<Problem> failure;
  bool hasTerminal = false;
  uint16_t columns = 0, rows = 0;
  OutputLog log;
  kj::Maybe<kj::Own<LaunchPlan>> plan;
  kj::AutoCloseFd terminal;  // The pty's master, for its size.
  kj::Maybe<kj::Own<StdinBuffer>> stdinBuffer;
  kj::Maybe<kj::Own<ReaperLink>> link;
  bool discarding = false;  // The log has ended: what still comes is read and dropped.
  int openOutputs = 0;
  kj::Own<kj::PromiseFulfiller<void>> outputsEnded;
  kj::Own<kj::PromiseFulfiller<void>> startDone;
  kj::ForkedPromise<void> whenStarted = nullptr;
  kj::Own<kj::PromiseFulfiller<void>> endDone;
  kj::ForkedPromise<void> whenEnded = nullptr;
  kj::TaskSet tasks;  // last

  kj::Promise<void> runStart();
  Outcome openStreams(AgentStreams& streams, kj::Vector<kj::AutoCloseFd>& childEnds);
  void addOutput(kj::AutoCloseFd fd, OutputStream stream);
  kj::Promise<void> pump(kj::AutoCloseFd fd, OutputStream stream);
  kj::Promise<void> pace();
  kj::Promise<void> supervise(kj::Promise<void> outputs);
  void fail(Problem problem);
  Outcome storeAgentJson(capnp::Data::Reader json);
  kj::String agentJsonPath() const;
  void taskFailed(kj::Exception&& exception) override;
};

// Copied out of an instance, so that nothing refers to it while an answer is built.
struct HelperInstance::Info {
  kj::String id, sessionId, environmentId, taskId;
  agentctl::InstanceState state;
  int32_t pid;
  uint64_t startTicks;
  int64_t startedAtMs;
  kj::Maybe<ExitRecord> exit;
  uint32_t descendants;
  uint64_t outputBegin, outputEnd;
  bool ephemeral, acknowledged;
  kj::Maybe<Problem> error;

  void write(agentctl::InstanceInfo::Builder builder) const;
};

// A Problem as the wire has it; `source` "agentctl" unless it names another.
void writeProblem(const Problem& problem, rpc::Error::Builder builder);

// The number of a signal's name without SIG; null = unknown.
kj::Maybe<int> signalNumber(kj::StringPtr name);

}  // namespace capstan
