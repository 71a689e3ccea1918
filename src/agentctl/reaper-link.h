#pragma once
// agentctl's end of one reaper, and the instance's tree as seen from here, whether its reaper
// lives or has died and agentctl has adopted what was below it.

#include "agentctl/cgroup.h"
#include "agentctl/child-watch.h"
#include "agentctl/reaper.h"
#include "base/problem.h"

#include <kj/async-unix.h>
#include <kj/refcount.h>
#include <kj/timer.h>

namespace capstan {

struct AgentStarted {
  pid_t pid;
  uint64_t startTicks;
};

// What the children's ends of the streams are; closed by the caller after fork().
struct AgentStreams {
  int input;
  int output;
  int errors;
  bool terminal;
};

// One tree of processes. Everything given by reference must outlive it. Destroying it closes the
// control socket, upon which the reaper ends its tree after the stop grace.
class ReaperLink {
public:
  // Forks the reaper, whose agent starts with a soft limit of `descriptorLimit` descriptors. Until
  // its end the reaper holds `lifeline`, unless that is -1; the agent does not. Problems:
  // resourceExhausted.
  static Result<kj::Own<ReaperLink>> fork(kj::UnixEventPort& port, kj::Timer& timer,
                                          ChildWatch& children, const LaunchPlan& plan,
                                          AgentStreams streams, uint64_t stopGraceMs,
                                          uint64_t descriptorLimit, int lifeline,
                                          kj::Maybe<CgroupFds> cgroup);

  ReaperLink(kj::UnixEventPort& port, kj::Timer& timer, ChildWatch& children, kj::AutoCloseFd fd,
             pid_t reaper, kj::Maybe<CgroupFds> cgroup);
  ~ReaperLink() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(ReaperLink);

  // Whether execve succeeded. Problems: notFound, denied and others with the errno's name as
  // upstreamCode; internal when the reaper died. To be called once.
  kj::Promise<Result<AgentStarted>> started();

  // The agent's wait status, or null when nobody saw it. To be called once, after started().
  kj::Promise<kj::Maybe<int>> agentExit();

  // To the agent's process group. Problems: wrongState (it has ended), denied.
  kj::Promise<Outcome> signal(int number);

  // Ends the tree; resolves with what is left of it. Dropping the promise does not undo it.
  kj::Promise<uint32_t> stop(uint64_t graceMs, bool force);

  // Processes of the tree but the agent itself. Waits at most a second for a busy reaper.
  kj::Promise<uint32_t> descendants();

  // Whether no process of the tree is left.
  bool isEmpty() const { return empty; }
  kj::Promise<void> onEmpty() { return whenEmpty.addBranch(); }

private:
  kj::Timer& timer;
  ChildWatch& children;
  kj::AutoCloseFd fd;
  kj::UnixEventPort::FdObserver observer;  // Of `fd`.
  pid_t reaper;
  kj::Maybe<CgroupFds> cgroup;  // Removed by the reaper, or by us when that has died.
  pid_t agent = 0;
  uint64_t agentTicks = 0;
  bool linked = true;   // The reaper lives.
  bool exited = false;  // The agent has.
  bool empty = false;
  uint32_t nextId = 1;
  kj::PromiseFulfillerPair<Result<AgentStarted>> start =
      kj::newPromiseAndFulfiller<Result<AgentStarted>>();
  kj::PromiseFulfillerPair<kj::Maybe<int>> exit = kj::newPromiseAndFulfiller<kj::Maybe<int>>();
  kj::Own<kj::PromiseFulfiller<void>> emptyFulfiller;
  kj::ForkedPromise<void> whenEmpty = nullptr;
  kj::HashMap<uint32_t, kj::Own<kj::PromiseFulfiller<int>>> questions;
  kj::Vector<kj::Own<kj::PromiseFulfiller<uint32_t>>> stops;
  kj::Promise<int> adoptedExit = kj::NEVER_DONE;  // Should the agent become a child of ours.
  kj::Promise<void> loop = nullptr;               // last

  kj::Promise<void> run();
  kj::Promise<void> readReports();
  kj::Promise<void> superviseAdopted();
  kj::Promise<uint32_t> stopAdopted(uint64_t graceMs, bool force);
  void handle(const ReaperReport& report);
  void agentEnded(kj::Maybe<int> status);
  void stopped(uint32_t survivors);
  void send(const ReaperRequest& request);
  kj::Promise<int> ask(ReaperRequest request);
  bool isAgentAlive() const;
  uint32_t adoptedProcesses() const;
};

// "ENOENT" and so on, for upstreamCode; "errno N" for uncommon ones.
kj::String errnoName(int error);

}  // namespace capstan
