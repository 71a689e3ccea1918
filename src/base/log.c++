#include "base/log.h"

#include "base/json-writer.h"

#include <kj/debug.h>

#include <cerrno>
#include <ctime>

#include <poll.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr int STALL_MS = 100;  // how long a full pipe may hold the loop, per line

kj::StringPtr severityName(kj::LogSeverity severity, LogFormat format) {
  bool json = format == LogFormat::JSON;
  switch (severity) {
    case kj::LogSeverity::INFO:
      return json ? "info"_kj : "INFO"_kj;
    case kj::LogSeverity::WARNING:
      return json ? "warning"_kj : "WARNING"_kj;
    case kj::LogSeverity::ERROR:
      return json ? "error"_kj : "ERROR"_kj;
    case kj::LogSeverity::FATAL:
      return json ? "fatal"_kj : "FATAL"_kj;
    case kj::LogSeverity::DBG:
      return json ? "debug"_kj : "DEBUG"_kj;
  }
  KJ_UNREACHABLE;
}

// Compilers are run in the build folder: ../src/core/x.c++ is core/x.c++.
kj::StringPtr shortName(const char* file) {
  kj::StringPtr name = file;
  while (name.startsWith("../")) {
    name = name.slice(3);
  }
  return name.startsWith("src/") ? name.slice(4) : name;
}

kj::LogSeverity currentLevel() {
  for (auto level: {kj::LogSeverity::INFO, kj::LogSeverity::WARNING, kj::LogSeverity::ERROR}) {
    if (kj::_::Debug::shouldLog(level)) return level;
  }
  return kj::LogSeverity::FATAL;
}

}  // namespace

kj::String formatTime(kj::Date date) {
  int64_t ms = kj::max(int64_t(0), (date - kj::UNIX_EPOCH) / kj::MILLISECONDS);
  time_t seconds = ms / 1000;
  struct tm parts;
  KJ_ASSERT(gmtime_r(&seconds, &parts) != nullptr);
  char text[40];
  auto size = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S.", &parts);
  auto milli = kj::str(1000 + ms % 1000);
  return kj::str(kj::arrayPtr(text, size), milli.slice(1), 'Z');
}

// Shared by the threads that log to one descriptor.
class Log::Sink final: public kj::AtomicRefcounted {
public:
  Sink(int fd, LogOptions options, const kj::Clock& clock)
      : options(options), fd(fd), clock(clock) {}

  void line(kj::LogSeverity severity, const char* file, int number, kj::ArrayPtr<const char> text) {
    if (severity < options.threshold) return;
    auto locked = state.lockExclusive();
    if (locked->lost > 0) {
      auto note = kj::str(locked->lost, " log lines could not be written");
      if (!write(*locked, format(kj::LogSeverity::WARNING, __FILE__, __LINE__, note))) {
        ++locked->lost;
        return;
      }
      locked->lost = 0;
    }
    if (!write(*locked, format(severity, file, number, text))) ++locked->lost;
  }

  uint64_t lost() const { return state.lockShared()->lost; }

  const LogOptions options;

private:
  struct State {
    uint64_t lost = 0;
    bool torn = false;  // the last line was written in part: the next begins with a newline
  };

  int fd;
  const kj::Clock& clock;
  kj::MutexGuarded<State> state;

  kj::Array<char> format(kj::LogSeverity severity, const char* file, int number,
                         kj::ArrayPtr<const char> text) {
    while (text.size() > 0 && text[text.size() - 1] == '\n') {
      text = text.slice(0, text.size() - 1);
    }
    // One octet becomes at most six; what is cut says how much.
    kj::Vector<char> body;
    size_t room = options.maxLine - 192;
    size_t taken = kj::min(text.size(), room);
    auto append = options.format == LogFormat::JSON ? &appendJsonString : &appendPlainText;
    for (;;) {
      auto part = text.slice(0, taken);
      if (taken == text.size()) {
        append(body, part);
      } else {
        append(body, kj::str(part, " … [", text.size() - taken, " octets left out]"));
      }
      if (body.size() <= room + 64) break;
      body.clear();
      taken /= 2;
    }
    auto time = formatTime(clock.now());
    auto source = kj::str(shortName(file), ':', number);
    if (source.size() > 80) source = kj::heapString(source.slice(source.size() - 80));
    auto name = severityName(severity, options.format);
    if (options.format == LogFormat::TEXT) {
      return kj::Array<char>(
          kj::str(time, ' ', name, ' ', source, ": ", body, '\n').releaseArray());
    }
    kj::Vector<char> quoted;
    appendJsonString(quoted, source);
    return kj::Array<char>(kj::str("{\"time\":\"", time, "\",\"severity\":\"", name,
                                   "\",\"source\":", quoted, ",\"text\":", body, "}\n")
                               .releaseArray());
  }

  // False if it could not be written as a whole. `line` has a NUL at its end.
  bool write(State& locked, kj::Array<char> line) {
    if (locked.torn) {
      if (!writeAll(locked, kj::arrayPtr("\n", 1))) return false;
    }
    return writeAll(locked, line.slice(0, line.size() - 1));
  }

  bool writeAll(State& locked, kj::ArrayPtr<const char> rest) {
    int waits = 0;
    while (rest.size() > 0) {
      ssize_t n = ::write(fd, rest.begin(), rest.size());
      if (n >= 0) {
        rest = rest.slice(static_cast<size_t>(n), rest.size());
        if (n > 0) locked.torn = rest.size() > 0;
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN || ++waits > 1) return false;
      struct pollfd writable = {fd, POLLOUT, 0};
      if (poll(&writable, 1, STALL_MS) <= 0) return false;
    }
    return true;
  }
};

// The callback of a thread that was started while a Log lived.
class Log::ThreadLog final: public kj::ExceptionCallback {
public:
  explicit ThreadLog(Sink& sink): sink(sink) {}
  void logMessage(kj::LogSeverity severity, const char* file, int line, int,
                  kj::String&& text) override {
    sink.line(severity, file, line, text);
  }

private:
  Sink& sink;
};

Log::Log(int fd, LogOptions options, const kj::Clock& clock)
    : own(kj::atomicRefcounted<Sink>(fd, options, clock)), previousLevel(currentLevel()) {
  KJ_REQUIRE(options.maxLine >= 256, "log lines need some room", options.maxLine);
  kj::_::Debug::setLogLevel(options.threshold);
}

Log::~Log() noexcept(false) { kj::_::Debug::setLogLevel(previousLevel); }

uint64_t Log::lost() const { return own->lost(); }

void Log::logMessage(kj::LogSeverity severity, const char* file, int line, int, kj::String&& text) {
  own->line(severity, file, line, text);
}

kj::Function<void(kj::Function<void()>)> Log::getThreadInitializer() {
  return [sink = kj::atomicAddRef(*own)](kj::Function<void()> main) mutable {
    ThreadLog log(*sink);
    main();
  };
}

}  // namespace capstan
