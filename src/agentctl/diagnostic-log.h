#pragma once
// The helper's own log: warnings and errors, bounded, never a secret.

#include <kj/debug.h>
#include <kj/exception.h>
#include <kj/io.h>

namespace capstan {

// While it lives (on the stack), kj's log lines go to a file of at most 1 MiB, with one older file
// `path`.1 beside it; without a path to stderr.
class DiagnosticLog final: public kj::ExceptionCallback {
public:
  static constexpr uint64_t MAX_FILE_BYTES = 1 << 20;
  static constexpr size_t MAX_LINE_BYTES = 4096;

  // An empty path: stderr. A file that cannot be opened: stderr, with a line that says so.
  explicit DiagnosticLog(kj::StringPtr path);

  void logMessage(kj::LogSeverity severity, const char* file, int line, int contextDepth,
                  kj::String&& text) override;

private:
  kj::String path;
  kj::AutoCloseFd fd;
  uint64_t written = 0;

  bool open();
};

}  // namespace capstan
