// capstand: the daemon.
#include "base/descriptors.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/version.h"
#include "client/auto-start.h"
#include "client/paths.h"
#include "codec/daemon-config.h"
#include "tools/capstand/config.h"
#include "tools/capstand/daemon.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {
namespace {

constexpr OptionRule OPTIONS[] = {
    {"--config"_kj, "FILE"_kj, "settings (YAML, see docs/operations.md); options win over it"_kj},
    {"--print-config"_kj, ""_kj, "print what would hold, as a file for --config, and end"_kj},
    {"--socket"_kj, "PATH"_kj,
     "where clients connect (default: capstan.sock in the runtime folder)"_kj},
    {"--state-dir"_kj, "DIR"_kj, "where state is kept (default: $XDG_STATE_HOME/capstan)"_kj},
    {"--agentctl-dir"_kj, "DIR"_kj, "where the helpers are (default: beside this program)"_kj},
    {"--no-local-admin"_kj, ""_kj, "the daemon's own user is no administrator by itself"_kj},
    {"--log-format"_kj, "text|json"_kj, "how log lines on standard error look (default: text)"_kj},
    {"--auto-started"_kj, ""_kj, ""_kj},
    {"--version"_kj, ""_kj, "print the version and end"_kj},
    {"--help"_kj, ""_kj, "print this text and end"_kj},
};

int usageError(const Problem& problem) {
  std::fprintf(stderr, "capstand: %s\n", kj::str(problem).cStr());
  return 2;
}

kj::String ownPath() {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  KJ_REQUIRE(n > 0 && n < static_cast<ssize_t>(sizeof(path)), "cannot read /proc/self/exe");
  return kj::heapString(path, n);
}

// The log of a daemon that has no terminal; the previous one is kept once when it has grown.
kj::AutoCloseFd openLog(kj::StringPtr stateDirectory) {
  constexpr off_t ROTATE_BYTES = 10 << 20;
  auto path = kj::str(stateDirectory, "/capstand.log");
  struct stat info;
  if (lstat(path.cStr(), &info) == 0 && info.st_size > ROTATE_BYTES) {
    auto old = kj::str(path, ".1");
    KJ_SYSCALL(rename(path.cStr(), old.cStr()));
  }
  int fd;
  KJ_SYSCALL(fd = open(path.cStr(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600),
             path);
  return kj::AutoCloseFd(fd);
}

int run(int argc, char** argv) {
  auto read = readArguments(kj::arrayPtr<const char* const>(argv + 1, argc - 1), OPTIONS);
  if (read.is<Problem>()) return usageError(read.get<Problem>());
  auto& arguments = read.get<Arguments>();
  if (arguments.has("--help")) {
    std::printf(
        "capstand: the Capstan daemon\n\nusage: capstand [options]\n\n%s\n"
        "example: capstand --state-dir /var/lib/capstan --socket /run/capstan/capstan.sock\n",
        helpOf(OPTIONS).cStr());
    return 0;
  }
  if (arguments.has("--version")) {
    std::printf("capstand %s\n", VERSION);
    return 0;
  }
  if (arguments.words().size() > 0) {
    return usageError(Problem(ErrorCode::INVALID_ARGUMENT,
                              kj::str("unexpected word '", arguments.words()[0], "'")));
  }
  GetVariable get = processVariable;
  auto effective = effectiveConfig(arguments, get, geteuid());
  if (effective.is<Problem>()) return usageError(effective.get<Problem>());
  auto& config = effective.get<DaemonConfig>();
  if (arguments.has("--print-config")) {
    std::fputs(writeDaemonConfig(config).cStr(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  }
  LogOptions logOptions;
  logOptions.format = config.logFormat;

  DaemonOptions options;
  options.agentDescriptors = raiseDescriptorLimit();
  options.executable = ownPath();
  options.runtimeDirectory = runtimeDirectory(get, geteuid());
  options.socket = kj::mv(KJ_ASSERT_NONNULL(config.socket));
  options.stateDirectory = kj::mv(KJ_ASSERT_NONNULL(config.stateDirectory));
  options.helperSocketDirectory = kj::mv(KJ_ASSERT_NONNULL(config.standaloneSocketDirectory));
  options.helperDirectory = kj::mv(config.helperDirectory);
  options.localAdmin = config.localAdmin;
  options.dockerEnabled = config.dockerEnabled;
  options.limits = config.limits;
  options.autoStarted = arguments.has("--auto-started");

  if (options.autoStarted) closeInheritedDescriptors();
  kj::AutoCloseFd ownLog;
  int fd = STDERR_FILENO;
  if (options.autoStarted) {
    // Until the state folder is known to be ours, the client that started us hears on stderr.
    KJ_IF_MAYBE (problem, ensurePrivateDirectory(options.stateDirectory)) {
      return usageError(*problem);
    }
    ownLog = openLog(options.stateDirectory);
    fd = ownLog;
  }
  Log log(fd, logOptions);
  bool clientListens = options.autoStarted;
  KJ_IF_MAYBE (problem, runDaemon(kj::mv(options))) {
    KJ_LOG(ERROR, "cannot start", errorCodeName(problem->code), *problem);
    if (clientListens) std::fprintf(stderr, "%s\n", kj::str(*problem).cStr());
    if (clientListens && problem->code == ErrorCode::STATE_LOCKED) return DAEMON_GAVE_WAY;
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  capstan::openStandardStreams();
  capstan::keepHeapForStreams();
  return capstan::run(argc, argv);
}
