#pragma once
// Typed calls for what most clients do first: an environment, a command in it, its end.

#include "base/problem.h"
#include "bootstrap.capnp.h"

#include <kj/async.h>
#include <kj/time.h>
#include <kj/vector.h>

#include <initializer_list>

namespace capstan {

// A Problem as it came over the wire. Null when the field was not set.
kj::Maybe<Problem> readProblem(rpc::Error::Reader error);

// One variable of a process. The value is seen by everybody who may look at the session; secrets
// go by name, through the interface itself.
struct LiteralVariable {
  kj::String name;
  kj::String value;
};

// What to start, with pipes.
struct Command {
  kj::Vector<kj::String> words;           // The program and its arguments; at least one.
  kj::Vector<LiteralVariable> variables;  // Beside those of the environment.
  kj::String directory;                   // Empty = the workspace's root.

  // A full output log pauses the process, so that no octet is lost: for those whose output is a
  // protocol. LOSE_OLDEST suits people: the process never waits for a reader.
  enum class WhenFull { LOSE_OLDEST, PAUSE };
  WhenFull whenFull = WhenFull::LOSE_OLDEST;

  Command() = default;
  Command(std::initializer_list<kj::StringPtr> command);
};

// The task's environment on the default executor, made if there is none.
kj::Promise<Result<rpc::TaskEnvironment::Client>> ensureEnvironment(
    rpc::Supervisor::Client supervisor, kj::String taskId);

struct Launched {
  rpc::Session::Client session;
  rpc::Run::Client run;
};

// Starts `command` as a new session. Dropping the promise asks to cancel the launch.
kj::Promise<Result<Launched>> launch(rpc::TaskEnvironment::Client environment, Command command);

// How a process ended: by exit code, by signal, or nobody saw how (both null).
struct ProcessExit {
  kj::Maybe<int32_t> code;
  kj::Maybe<kj::String> signal;  // Its name without SIG.

  bool succeeded() const { return code.orDefault(-1) == 0; }
};
kj::String KJ_STRINGIFY(const ProcessExit& exit);
ProcessExit readExit(rpc::ExitStatus::Reader status);

// Waits for a process's end.
kj::Promise<Result<ProcessExit>> exitOf(rpc::Instance::Client instance);

// Ends a session's run: TERM, then KILL after `grace`. A run that has ended keeps its exit.
kj::Promise<Result<ProcessExit>> stop(rpc::Session::Client session, kj::Duration grace);

}  // namespace capstan
