#pragma once
// A real daemon for the cases of this folder, and the same programs without it, to compare with.

#include "client/attached-process.h"
#include "client/connection.h"
#include "support/test.h"

#include <string>
#include <sys/types.h>
#include <vector>

namespace capstan::test {

// Every wait of a case has this limit.
template <typename T>
T await(IoLoop& loop, kj::Promise<T> promise, kj::Duration limit = 60 * kj::SECONDS) {
  return loop.timer.timeoutAfter(limit, kj::mv(promise)).wait(loop.waitScope);
}

// The same for a foreseen failure, which then fails the case with its words.
template <typename T>
T awaitResult(IoLoop& loop, kj::Promise<Result<T>> promise, kj::Duration limit = 60 * kj::SECONDS) {
  auto result = await(loop, kj::mv(promise), limit);
  if (result.template is<Problem>()) FAIL(kj::str(result.template get<Problem>()).cStr());
  return kj::mv(result.template get<T>());
}

// A variable that Meson sets for this suite.
kj::StringPtr setting(const char* name);

// A started process of ours in a process group of its own, which gets its signals: killed and
// collected at the end.
class Child {
public:
  struct Streams {
    int in = -1, out = -1, err = -1;  // Descriptors for the child; -1 = /dev/null.
  };
  // Finds the program in PATH. `variables` are all it gets.
  Child(kj::ArrayPtr<const kj::StringPtr> words, kj::ArrayPtr<const kj::String> variables,
        Streams streams);
  ~Child() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Child);

  pid_t pid() const { return process; }
  void signal(int number);
  // The wait status once it has ended; null when it did not within `limit`.
  kj::Maybe<int> ends(IoLoop& loop, kj::Duration limit = 10 * kj::SECONDS);

private:
  pid_t process = -1;
  kj::Maybe<int> status;
};

// What every process of a case starts from: PATH, HOME, LANG.
kj::Vector<kj::String> plainVariables(kj::StringPtr home);

// capstand with a state folder and a socket of its own. Its helper ends with it.
class Daemon {
public:
  // `home` becomes the HOME of the agents.
  Daemon(IoLoop& loop, kj::StringPtr home);
  ~Daemon() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Daemon);

  ClientConnection& connect();
  rpc::TaskEnvironment::Client environment(kj::StringPtr taskId);
  kj::StringPtr folder() const { return directory.path(); }

private:
  IoLoop& loop;
  TempDir directory;
  kj::Own<Child> process;
  kj::Maybe<kj::Own<ClientConnection>> connection;
};

// A program run directly, with plain pipes and its stderr in a file.
class DirectProcess {
public:
  DirectProcess(IoLoop& loop, kj::ArrayPtr<const kj::StringPtr> words, kj::StringPtr home);

  kj::AsyncOutputStream& input() { return *in; }
  void endInput() { in = nullptr; }
  kj::AsyncInputStream& output() { return *out; }
  std::string errors() const;
  Child& child() { return *process; }

private:
  TempDir directory;
  kj::Own<Child> process;
  kj::Own<kj::AsyncOutputStream> in;
  kj::Own<kj::AsyncInputStream> out;
};

// One step of a dialogue of lines.
struct Step {
  std::string say;    // Written with a line break; empty = nothing.
  std::string await;  // Then read on until a whole line holds this; empty = do not.
};
// Plays the steps; all octets that came, as they came. Reads nothing beyond the last awaited line
// but what came with it. Rejects when the output ends before.
kj::Promise<std::string> converse(kj::AsyncOutputStream& in, kj::AsyncInputStream& out,
                                  std::vector<Step> steps);

// What a file holds; empty when there is none.
std::string contentOf(kj::StringPtr path);

}  // namespace capstan::test
