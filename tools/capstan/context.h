#pragma once
// What every command of `capstan` gets, and how it says what went wrong.

#include "base/json-writer.h"
#include "client/auto-start.h"
#include "client/command-line.h"
#include "client/connection.h"
#include "client/launch.h"

#include <kj/async-io.h>

namespace capstan::cli {

// Exit codes of capstan's own (D44).
constexpr int CAPSTAN_FAILED = 125;
constexpr int CANNOT_EXECUTE = 126;
constexpr int COMMAND_NOT_FOUND = 127;
constexpr int USAGE = 2;

// Ends a command with a message and a code; caught by main.
struct Failure {
  Problem problem;
  int code = CAPSTAN_FAILED;
};
[[noreturn]] void fail(Problem problem, int code = CAPSTAN_FAILED);
[[noreturn]] void failUsage(kj::String message);

// Throws a Failure when the answer carries an error.
void check(rpc::Error::Reader error);

class Context {
public:
  Context(kj::AsyncIoContext& io, const Arguments& arguments, kj::String executable);

  kj::AsyncIoContext& io;
  const Arguments& arguments;

  bool json() const { return arguments.has("--json"); }
  kj::Timer& timer() { return io.provider->getTimer(); }
  // Waits for a promise; a lost connection and every other exception become a Failure.
  template <typename T>
  T wait(kj::Promise<T> promise);

  // The daemon; started when there is none.
  ClientConnection& daemon();
  rpc::Supervisor::Client supervisor() { return daemon().supervisor(); }
  rpc::Admin::Client admin() { return daemon().admin(); }
  // The environment a word stands for.
  rpc::TaskEnvironment::Client environment(kj::StringPtr name);

  // The word at `index` after the command; a usage error when it is missing.
  kj::StringPtr word(size_t index, kj::StringPtr name) const;
  // No words beyond `count`.
  void noMoreWords(size_t count) const;

  // Prints one JSON document and a line break.
  void print(JsonWriter& writer);

private:
  kj::String executable;
  kj::Maybe<kj::Own<ClientConnection>> connection;

  AutoStart autoStart() const;
};

Failure failureOf(const kj::Exception& exception);

template <typename T>
T Context::wait(kj::Promise<T> promise) {
  try {
    return promise.wait(io.waitScope);
  } catch (const kj::Exception& exception) {
    throw failureOf(exception);
  }
}

}  // namespace capstan::cli
