#pragma once
// A place with a real helper and real git, for what core runs inside a place.

#include "conformance/agentctl/helper-process.h"
#include "core/workspace-preparer.h"

#include <string>

namespace capstan::test {

// Keeps the last state of each step and everything that was ever shown.
class Recorder final: public ProgressSink {
public:
  void report(const PrepareStep& step, uint16_t index, uint16_t total) override;

  kj::Vector<PrepareStep> steps;
  uint16_t total = 0;
  size_t reports = 0;
  std::string everything;

  // "name:status" of all steps.
  std::string summary() const;
  const PrepareStep& last() const { return steps.back(); }
};

class Place final: private kj::TaskSet::ErrorHandler {
public:
  Place();
  ~Place() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Place);

  LogWatch log;
  IoLoop loop;
  Helper helper{loop};
  TempDir folder;
  Limits limits;
  Recorder recorder;

  // Runs `script` in the folder with the test's own sh; its output. Requires that it succeeds.
  std::string sh(kj::StringPtr script);
  // Whether it succeeds.
  bool holds(kj::StringPtr script);
  // A bare repository with the branches main and feature, the tag v1 and the ref refs/pull/1/head,
  // each with its own name in the file `what`; its url. main has the file `owner` with `name`.
  kj::String repository(kj::StringPtr name);

  PreparePlan plan();
  // Of the only repository of a plan, or of one more.
  static void add(PreparePlan& plan, kj::StringPtr path, kj::StringPtr url, kj::StringPtr ref = "");
  // In front of the others in PATH: a program of the test's own.
  void program(kj::StringPtr name, kj::StringPtr script);

  kj::Promise<Outcome> start(PreparePlan plan, kj::Promise<void> interrupt = kj::NEVER_DONE);
  // To the end; "(fine)" or the Problem's code and text. Requires that no instance is left.
  std::string prepare(PreparePlan plan);
  std::string cleanUp(PreparePlan plan);
  // The same, a Problem is required.
  Problem refuse(PreparePlan plan);
  // Until nothing is being discarded any more.
  void settle();
  size_t instances();

private:
  SystemEntropy entropy;
  kj::Own<AgentLink> link;
  kj::TaskSet making;

  PreparerTools tools() {
    return {loop.timer, kj::systemPreciseCalendarClock(), entropy, limits, *link, making};
  }
  std::string told(Outcome outcome);
  void taskFailed(kj::Exception&& exception) override;
};

}  // namespace capstan::test
