#pragma once
// Processes of this machine that are not children of this one.

#include "base/problem.h"

#include <kj/async-unix.h>
#include <kj/io.h>
#include <kj/string.h>

namespace capstan {

// A process, named so that none which gets its number later is taken for it. The start is field 22
// of /proc/PID/stat (proc(5)): ticks since the boot that `bootId` names.
struct ProcessName {
  int64_t pid = 0;
  uint64_t startTicks = 0;
  kj::String bootId;

  ProcessName clone() const { return ProcessName{pid, startTicks, kj::str(bootId)}; }
};

// Of a process that runs; null when it is certain that none with that number does (a zombie does
// not). Problems: the kernel will not say.
Result<kj::Maybe<ProcessName>> nameOfProcess(int64_t pid);

// One process of this machine that runs, or did when it was found. Not a child: nobody sees how it
// ends.
class WatchedProcess final {
public:
  // Null when it is certain that it does not run any more: another boot, no such number, another
  // start. The port must outlive the result. Problems: the kernel will not say.
  static Result<kj::Maybe<kj::Own<WatchedProcess>>> find(kj::UnixEventPort& port,
                                                         const ProcessName& name);
  ~WatchedProcess() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(WatchedProcess);

  int64_t pid() const { return number; }
  bool running() const;
  // Resolves when it has ended. May be called many times.
  kj::Promise<void> onExit() { return exited.addBranch(); }
  // False when it has ended already. Never reaches a process that reuses the number.
  bool signal(int signalNumber);

private:
  int64_t number;
  kj::AutoCloseFd handle;
  kj::UnixEventPort::FdObserver observer;
  kj::ForkedPromise<void> exited;

  WatchedProcess(kj::UnixEventPort& port, int64_t pid, kj::AutoCloseFd handle);
  template <typename T, typename... Params>
  friend kj::Own<T> kj::heap(Params&&... params);
};

}  // namespace capstan
