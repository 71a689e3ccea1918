#pragma once
// What a run of a test's daemon says.

#include "core/run-actor.h"
#include "support/daemon.h"
#include "support/test.h"

#include <string>

namespace capstan::test {

// Keeps what a run says.
class RunReader final: public OutputReceiver {
public:
  RunReader(std::string& text, bool& ended): text(text), ended(ended) {}
  kj::Promise<void> write(uint64_t, OutputStream, kj::ArrayPtr<const kj::byte> bytes) override {
    text.append(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
    return kj::READY_NOW;
  }
  kj::Promise<void> gap(uint64_t, uint64_t) override { return kj::READY_NOW; }
  kj::Promise<void> end(uint64_t) override {
    ended = true;
    return kj::READY_NOW;
  }

private:
  std::string& text;
  bool& ended;
};

// Delivers all of a run's output to `reader`, and what comes, until the result is dropped.
inline kj::Own<OutputReading> follow(Daemon& daemon, RunActor& run, kj::Own<RunReader> reader) {
  auto process = run.process();
  if (process.is<Problem>()) FAIL(kj::str(process.get<Problem>()).cStr());
  OutputRequest all;
  all.follow = true;
  auto reading = daemon.wait(process.get<kj::Own<ProcessActor>>()->output(all, kj::mv(reader)));
  if (reading.is<Problem>()) FAIL(kj::str(reading.get<Problem>()).cStr());
  return kj::mv(reading.get<kj::Own<OutputReading>>());
}

// All output of a run that has ended, or ends soon.
inline std::string outputOf(Daemon& daemon, RunActor& run) {
  std::string text;
  bool ended = false;
  auto reading = follow(daemon, run, kj::heap<RunReader>(text, ended));
  CHECK(daemon.becomesTrue([&]() { return ended; }));
  daemon.wait(run.wait().ignoreResult());
  return text;
}

// What it has written so far comes to be `text`.
inline bool says(Daemon& daemon, RunActor& run, kj::StringPtr expected) {
  std::string text;
  bool ended = false;
  auto reading = follow(daemon, run, kj::heap<RunReader>(text, ended));
  return daemon.becomesTrue([&]() { return text == expected.cStr(); });
}

}  // namespace capstan::test
