#pragma once
// What `run`, `exec` and `session resume` share: the launch's words, and staying attached to a
// process.

#include "client/process-io.h"
#include "tools/capstan/context.h"

namespace capstan::cli {

// What stands after --; empty when nothing does.
kj::ArrayPtr<const kj::String> commandWords(Context& context);

// Fills command, variables and working directory from the command line.
void fillLaunch(Context& context, rpc::LaunchSpec::Builder spec);

// Fills the resume command, when there is one on the command line.
void fillResume(Context& context, rpc::LaunchSpec::Builder spec);

// 126 or 127 when the problem says that the command could not be executed or found, else 125.
int launchFailureCode(const Problem& problem);
// Ends the command with that code and what is wrong.
[[noreturn]] void failLaunch(Context& context, Problem problem);

// Asks for a delivery and keeps only its subscription. Whoever holds the response makes the daemon
// hold the request's parameters, the sink among them, and never learns that the delivery was cut.
template <typename Results, typename Request>
kj::Promise<Result<rpc::Subscription::Client>> subscribe(Request request) {
  return request.send().then(
      [](capnp::Response<Results>&& response) -> Result<rpc::Subscription::Client> {
        KJ_IF_MAYBE (problem, readProblem(response.getError())) {
          return kj::mv(*problem);
        }
        return response.getSubscription();
      });
}

// Shows steps on standard error once the work takes longer than a second, and those that go wrong
// with the end of their output at once.
class SlowProgress final: public rpc::Progress::Server {
public:
  // The context outlives it.
  explicit SlowProgress(Context& context);

protected:
  kj::Promise<void> report(ReportContext context) override;

private:
  kj::TimePoint begun;
  kj::Timer& timer;
  bool json;
  kj::Vector<kj::String> early;  // Lines of the first second.
  kj::String last;
};

// Feeds stdin (null = the process takes none), watches Ctrl-C and waits for the end of process and
// output; returns the exit code. `onStop` is called at the second Ctrl-C within 2 s.
int attach(Context& context, rpc::Instance::Client instance,
           kj::Promise<kj::Maybe<rpc::ByteStream::Client>> stdinStream, OutputTarget& output,
           kj::Function<kj::Promise<void>()> onStop);

// Stays attached to a session's run, its output from `offset` on, until it ends; returns the exit
// code. A second Ctrl-C stops the session.
int attachRun(Context& context, rpc::Session::Client session, rpc::Run::Client run,
              uint64_t offset);

}  // namespace capstan::cli
