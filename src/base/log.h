#pragma once
// The process's log: KJ_LOG lines as text or JSON, one line each, to a file descriptor.

#include <kj/exception.h>
#include <kj/function.h>
#include <kj/mutex.h>
#include <kj/refcount.h>
#include <kj/time.h>
#include <kj/vector.h>

namespace capstan {

enum class LogFormat { TEXT, JSON };

struct LogOptions {
  LogFormat format = LogFormat::TEXT;
  kj::LogSeverity threshold = kj::LogSeverity::INFO;  // what is below is not written
  size_t maxLine = 16 * 1024;                         // octets of a line with its newline, >= 256
};

// While it lives, this thread's KJ_LOG lines go to `fd` (not owned), and those of kj::Threads it
// starts. Lines never interleave, control characters are escaped, overlong texts are cut and say
// so. What cannot be written is counted and told with the next line that can. Make it on the stack
// of main(). It sets kj's process-wide log level and gives the old one back.
//
// TEXT: 2026-01-31T12:00:00.123Z WARNING core/supervisor.c++:12: text
// JSON: {"time":"…","severity":"warning","source":"core/supervisor.c++:12","text":"…"}
class Log final: public kj::ExceptionCallback {
public:
  Log(int fd, LogOptions options = LogOptions(),
      const kj::Clock& clock = kj::systemPreciseCalendarClock());
  ~Log() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Log);

  // Lines lost so far and not yet told.
  uint64_t lost() const;

  void logMessage(kj::LogSeverity severity, const char* file, int line, int contextDepth,
                  kj::String&& text) override;
  kj::Function<void(kj::Function<void()>)> getThreadInitializer() override;

private:
  class Sink;
  class ThreadLog;
  kj::Own<Sink> own;
  kj::LogSeverity previousLevel;
};

// "2026-01-31T12:00:00.123Z". Dates before 1970 are shown as 1970.
kj::String formatTime(kj::Date date);

}  // namespace capstan
