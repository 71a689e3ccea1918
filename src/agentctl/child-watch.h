#pragma once
// The one owner of SIGCHLD and waitpid in the helper: its children are the reapers, and what it
// adopts when a reaper dies.

#include <kj/async-unix.h>
#include <kj/map.h>

#include <sys/types.h>
#include <vector>

namespace capstan {

// `port` must outlive it and must capture SIGCHLD (kj::UnixEventPort::captureSignal, before the
// loop is made).
class ChildWatch {
public:
  explicit ChildWatch(kj::UnixEventPort& port);
  KJ_DISALLOW_COPY_AND_MOVE(ChildWatch);

  // Resolves with the wait status of `pid` if it is, or becomes, a child of ours. At most one call
  // per number; forget() it when the process has ended elsewhere, which rejects the promise.
  kj::Promise<int> onExit(pid_t pid);
  void forget(pid_t pid) { waiting.erase(pid); }

  // Whether `pid` is a child of ours that was not reaped.
  bool isChild(pid_t pid) const;

  // Reapers are never taken for adopted processes.
  void addReaper(pid_t pid) { reapers.push_back(pid); }
  // All of them that live.
  const std::vector<pid_t>& liveReapers() const { return reapers; }

  // Collects whatever has ended, now.
  void reap();

private:
  kj::UnixEventPort& port;
  kj::HashMap<pid_t, kj::Own<kj::PromiseFulfiller<int>>> waiting;
  std::vector<pid_t> reapers;
  kj::Promise<void> loop;  // last

  kj::Promise<void> run();
};

}  // namespace capstan
