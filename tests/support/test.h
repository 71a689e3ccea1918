#pragma once
// What every test of ours uses: Catch2, an event loop per case, and logs that fail the case.

#include <kj/async-io.h>
#include <kj/async-unix.h>
#include <kj/debug.h>
#include <kj/exception.h>
#include <kj/timer.h>
#include <kj/vector.h>

#include <catch2/catch_test_macros.hpp>

namespace kj {
// Lets Catch2 print kj strings.
inline std::ostream& operator<<(std::ostream& out, const kj::String& text) {
  return out << text.cStr();
}
inline std::ostream& operator<<(std::ostream& out, kj::StringPtr text) {
  return out << std::string_view(text.begin(), text.size());
}
}  // namespace kj

namespace capstan::test {

// While it lives, an ERROR or FATAL log line that was not announced by expect() fails the case at
// its end. Keep it first in the case, so that it outlives what it watches.
class LogWatch final: public kj::ExceptionCallback {
public:
  LogWatch() = default;
  ~LogWatch() noexcept(false);

  // One coming ERROR line that contains `part` is part of the case.
  void expect(kj::StringPtr part);
  // All lines so far, for tests that search them for secrets.
  kj::ArrayPtr<const kj::String> lines() const { return seen; }

  void logMessage(kj::LogSeverity severity, const char* file, int line, int contextDepth,
                  kj::String&& text) override;

private:
  kj::Vector<kj::String> seen;
  kj::Vector<kj::String> unexpected;
  kj::Vector<kj::String> expected;
};

// An event loop without I/O and a clock moved by hand; promise.poll(waitScope) proves "not yet".
struct Loop {
  kj::EventLoop loop;
  kj::WaitScope waitScope{loop};
  kj::TimerImpl timer{kj::origin<kj::TimePoint>()};

  void advance(kj::Duration by) { timer.advanceTo(timer.now() + by); }
};

// A real event loop with sockets, timers and signals.
struct IoLoop {
  kj::AsyncIoContext io = kj::setupAsyncIo();
  kj::WaitScope& waitScope = io.waitScope;
  kj::Timer& timer = io.provider->getTimer();

  IoLoop() { waitScope.setBusyPollInterval(64); }
};

// A folder of its own below $TMPDIR, removed with all its content at the end.
class TempDir {
public:
  TempDir();
  ~TempDir() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(TempDir);
  kj::StringPtr path() const { return name; }
  kj::String operator/(kj::StringPtr below) const { return kj::str(name, '/', below); }

private:
  kj::String name;
};

}  // namespace capstan::test
