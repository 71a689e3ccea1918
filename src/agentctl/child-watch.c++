#include "agentctl/child-watch.h"

#include <kj/debug.h>

#include <algorithm>
#include <csignal>
#include <sys/wait.h>

namespace capstan {

ChildWatch::ChildWatch(kj::UnixEventPort& port)
    : port(port), loop(run().eagerlyEvaluate([](kj::Exception&& e) {
        KJ_LOG(ERROR, "the watch over children ended", e);
      })) {}

kj::Promise<void> ChildWatch::run() {
  for (;;) {
    // Captured signals stay pending while nobody waits for them, so none is lost in between.
    co_await port.onSignal(SIGCHLD);
    reap();
  }
}

void ChildWatch::reap() {
  for (;;) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    reapers.erase(std::remove(reapers.begin(), reapers.end(), pid), reapers.end());
    KJ_IF_MAYBE (waiter, waiting.find(pid)) {
      auto fulfiller = kj::mv(*waiter);
      waiting.erase(pid);
      fulfiller->fulfill(kj::mv(status));
    }
  }
}

kj::Promise<int> ChildWatch::onExit(pid_t pid) {
  auto paf = kj::newPromiseAndFulfiller<int>();
  waiting.upsert(pid, kj::mv(paf.fulfiller));
  return kj::mv(paf.promise);
}

bool ChildWatch::isChild(pid_t pid) const {
  siginfo_t info;
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace capstan
