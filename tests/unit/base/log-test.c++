#include "base/log.h"

#include "support/test.h"

#include <kj/thread.h>

#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace capstan {
namespace {

class FixedClock final: public kj::Clock {
public:
  kj::Date now() const override {
    return kj::UNIX_EPOCH + 1769860800 * kj::SECONDS + 7 * kj::MILLISECONDS;
  }
};

// A pipe that nobody reads until taken().
struct Pipe {
  kj::AutoCloseFd in, out;
  Pipe() {
    int fds[2];
    KJ_SYSCALL(pipe2(fds, O_CLOEXEC | O_NONBLOCK));
    in = kj::AutoCloseFd(fds[0]);
    out = kj::AutoCloseFd(fds[1]);
  }
  std::string taken() {
    std::string result;
    char buffer[4096];
    for (;;) {
      ssize_t n = read(in, buffer, sizeof(buffer));
      if (n <= 0) return result;
      result.append(buffer, static_cast<size_t>(n));
    }
  }
};

TEST_CASE("a text line has time, severity, place and text") {
  Pipe pipe;
  FixedClock clock;
  Log log(pipe.out, LogOptions(), clock);
  log.logMessage(kj::LogSeverity::WARNING, "../src/core/x.c++", 12, 0,
                 kj::str("odd; name = a\nb\x1b[31m\n"));
  CHECK(pipe.taken() ==
        "2026-01-31T12:00:00.007Z WARNING core/x.c++:12: odd; name = a\\nb\\u001b[31m\n");
}

TEST_CASE("a JSON line is one object") {
  Pipe pipe;
  FixedClock clock;
  LogOptions options;
  options.format = LogFormat::JSON;
  Log log(pipe.out, options, clock);
  log.logMessage(kj::LogSeverity::ERROR, "a.c++", 1, 0, kj::str("say \"x\"\xff"));
  CHECK(pipe.taken() ==
        "{\"time\":\"2026-01-31T12:00:00.007Z\",\"severity\":\"error\",\"source\":\"a.c++:1\","
        "\"text\":\"say \\\"x\\\"\xef\xbf\xbd\"}\n");
}

TEST_CASE("KJ_LOG below the threshold is not written, and the level comes back") {
  Pipe pipe;
  bool infoBefore = kj::_::Debug::shouldLog(kj::LogSeverity::INFO);
  {
    Log log(pipe.out);
    KJ_LOG(INFO, "seen");
  }
  CHECK(kj::_::Debug::shouldLog(kj::LogSeverity::INFO) == infoBefore);
  {
    LogOptions options;
    options.threshold = kj::LogSeverity::ERROR;
    Log log(pipe.out, options);
    KJ_LOG(WARNING, "unseen");
  }
  auto text = pipe.taken();
  CHECK(text.find("seen") != std::string::npos);
  CHECK(text.find("unseen") == std::string::npos);
}

TEST_CASE("an overlong text is cut to the line's bound and says so") {
  for (auto format: {LogFormat::TEXT, LogFormat::JSON}) {
    Pipe pipe;
    LogOptions options;
    options.format = format;
    options.maxLine = 512;
    Log log(pipe.out, options);
    log.logMessage(kj::LogSeverity::INFO, "a.c++", 1, 0, kj::str(kj::repeat('\x01', 10000)));
    auto line = pipe.taken();
    CHECK(line.size() <= 512);
    CHECK(line.find("octets left out]") != std::string::npos);
    CHECK(line.find('\n') == line.size() - 1);
  }
}

TEST_CASE("lines that cannot be written are counted and told later") {
  Pipe pipe;
  Log log(pipe.out);
  KJ_SYSCALL(fcntl(pipe.out, F_SETPIPE_SZ, 4096));
  int sent = 0;
  while (log.lost() == 0 && sent < 1000) {
    log.logMessage(kj::LogSeverity::INFO, "a.c++", ++sent, 0, kj::str(kj::repeat('x', 900)));
  }
  REQUIRE(log.lost() > 0);
  pipe.taken();
  log.logMessage(kj::LogSeverity::INFO, "a.c++", 1, 0, kj::str("after"));
  auto text = pipe.taken();
  CHECK(text.find("log lines could not be written\n") != std::string::npos);
  CHECK(text.find("after\n") != std::string::npos);
  CHECK(log.lost() == 0);
}

TEST_CASE("threads share the log and their lines do not interleave") {
  test::TempDir dir;
  auto path = dir / "log";
  {
    kj::AutoCloseFd fd(open(path.cStr(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    Log log(fd);
    auto chatter = []() {
      for (int i = 0; i < 200; ++i) {
        KJ_LOG(INFO, "chatter", kj::str(kj::repeat('y', 500)));
      }
    };
    kj::Thread a(chatter), b(chatter);
  }
  kj::AutoCloseFd fd(open(path.cStr(), O_RDONLY | O_CLOEXEC));
  std::string text(400000, 0);
  text.resize(static_cast<size_t>(read(fd, text.data(), text.size())));
  int lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    auto end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    CHECK(text.compare(at, 2, "20") == 0);
    CHECK(end - at > 500);
    CHECK(end - at < 700);
    at = end + 1;
  }
  CHECK(lines == 400);
}

}  // namespace
}  // namespace capstan
