#pragma once
// What `run` and `exec` share: the launch's words, and staying attached to a process.

#include "client/process-io.h"
#include "tools/capstan/context.h"

namespace capstan::cli {

// Fills command, variables and working directory from the command line.
void fillLaunch(Context& context, rpc::LaunchSpec::Builder spec);

// 126 or 127 when the error says that the command could not be executed or found, else 125.
int launchFailureCode(const Problem& problem);

// Shows steps on standard error once the work takes longer than a second.
class SlowProgress final: public rpc::Progress::Server {
public:
  explicit SlowProgress(kj::Timer& timer);

protected:
  kj::Promise<void> report(ReportContext context) override;

private:
  kj::TimePoint begun;
  kj::Timer& timer;
  kj::Vector<kj::String> early;  // Lines of the first second.
};

// Feeds stdin (null = the process takes none), watches Ctrl-C and waits for the end of process and
// output; returns the exit code. `onStop` is called at the second Ctrl-C within 2 s.
int attach(Context& context, rpc::Instance::Client instance,
           kj::Promise<kj::Maybe<rpc::ByteStream::Client>> stdinStream, OutputTarget& output,
           kj::Function<kj::Promise<void>()> onStop);

}  // namespace capstan::cli
