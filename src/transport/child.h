#pragma once
// Child processes of the daemon, started by libuv, which alone owns SIGCHLD.

#include "base/problem.h"
#include "transport/uv-loop.h"

#include <kj/array.h>
#include <kj/string.h>

namespace capstan {

// How a process ended: by exit (signal = 0) or by a signal.
struct ChildExit {
  int code = 0;
  int signal = 0;
};

struct ChildOptions {
  kj::Array<kj::String> argv;  // The first word is looked up in PATH unless it has a slash.
  kj::Maybe<kj::Array<kj::String>> environment;  // "NAME=value"; null = the daemon's own.
  kj::String directory;                          // Empty = the daemon's own.

  // Descriptors of the child; of 0 to 2 those not named are /dev/null, all others are closed. Ours
  // stay open and must be open until spawn() returns.
  struct Descriptor {
    int child;  // 0 to 63
    int ours;
  };
  kj::Array<Descriptor> descriptors;

  enum class Session {
    SAME,
    OWN,  // setsid: a process group of its own, which signal(GROUP) reaches; no terminal
  };
  Session session = Session::SAME;

  enum class OnDrop {
    KILL,   // SIGKILL to the process, and to its group with an own session
    LEAVE,  // it goes on; it is reaped while the uv loop lives
  };
  OnDrop onDrop = OnDrop::KILL;
};

// One child process. Signals have their default handling and none is blocked in it.
class Child final {
public:
  // Starts the process. Refusals: notFound (no such program or directory), denied, internal; each
  // with the errno's name as upstreamCode. `uv` must outlive the child.
  static Result<kj::Own<Child>> spawn(UvLoop& uv, ChildOptions options);
  ~Child() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Child);

  int pid() const;
  // Resolves when the process has ended and is reaped; may be called many times. Output pipes may
  // still hold data then.
  kj::Promise<ChildExit> onExit() { return exited.addBranch(); }
  bool running() const;

  enum class To {
    PROCESS,
    GROUP,  // needs Session::OWN
  };
  // False when it has ended already. Never reaches a process that reuses the number.
  bool signal(int number, To to = To::PROCESS);

private:
  class State;
  Child(UvLoop& uv, State& state, kj::Promise<ChildExit> exit);
  template <typename T, typename... Params>
  friend kj::Own<T> kj::heap(Params&&... params);

  UvLoop& uv;
  State& state;  // belongs to libuv until its handle is closed
  kj::ForkedPromise<ChildExit> exited;
};

}  // namespace capstan
