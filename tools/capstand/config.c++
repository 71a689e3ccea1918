#include "tools/capstand/config.h"

#include "codec/daemon-config.h"

#include <kj/debug.h>
#include <kj/io.h>
#include <kj/vector.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr size_t FILE_BYTES = 1u << 20;

Problem unreadable(kj::StringPtr path, ErrorCode code, kj::StringPtr cause) {
  return Problem(code, kj::str("the configuration file ", path, " cannot be read"))
      .because(kj::str(cause));
}

Result<DaemonConfig> load(kj::StringPtr path) {
  // Without waiting for the other end of a pipe.
  int opened = open(path.cStr(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0) {
    return unreadable(path, errno == ENOENT ? ErrorCode::NOT_FOUND : ErrorCode::DENIED,
                      strerror(errno));
  }
  kj::AutoCloseFd fd(opened);
  struct stat info;
  KJ_SYSCALL(fstat(fd, &info));
  if (!S_ISREG(info.st_mode)) {
    return unreadable(path, ErrorCode::INVALID_ARGUMENT, "it is no file");
  }
  // One octet more than is taken, so that the reader tells of a file that is too long.
  auto text = kj::heapArray<char>(FILE_BYTES + 1);
  size_t size = 0;
  while (size < text.size()) {
    ssize_t n = read(fd, text.begin() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable(path, ErrorCode::DENIED, strerror(errno));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  return readDaemonConfig(path, text.slice(0, size));
}

Result<kj::String> absolute(kj::StringPtr path) {
  if (path.startsWith("/")) return kj::str(path);
  char folder[4096];
  if (path.size() == 0 || getcwd(folder, sizeof(folder)) == nullptr) {
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("'", path, "' is no path of a file or folder"));
  }
  return kj::str(folder, '/', path);
}

}  // namespace

Result<DaemonConfig> effectiveConfig(const Arguments& arguments, GetVariable& get, uint32_t uid) {
  DaemonConfig config;
  KJ_IF_MAYBE (path, arguments.get("--config")) {
    auto loaded = load(*path);
    if (loaded.is<Problem>()) return kj::mv(loaded.get<Problem>());
    config = kj::mv(loaded.get<DaemonConfig>());
  }
  struct {
    kj::StringPtr option;
    kj::Maybe<kj::String> DaemonConfig::* field;
  } constexpr PATHS[] = {{"--state-dir"_kj, &DaemonConfig::stateDirectory},
                         {"--socket"_kj, &DaemonConfig::socket},
                         {"--agentctl-dir"_kj, &DaemonConfig::helperDirectory}};
  for (auto& each: PATHS) {
    KJ_IF_MAYBE (given, arguments.get(each.option)) {
      auto path = absolute(*given);
      if (path.is<Problem>()) return kj::mv(path.get<Problem>()).at(kj::str(each.option));
      config.*each.field = kj::mv(path.get<kj::String>());
    }
  }
  if (arguments.has("--no-local-admin")) config.localAdmin = false;
  KJ_IF_MAYBE (format, arguments.get("--log-format")) {
    if (*format != "json" && *format != "text") {
      return Problem(ErrorCode::INVALID_ARGUMENT,
                     kj::str("--log-format is text or json, not '", *format, "'"));
    }
    config.logFormat = *format == "json" ? LogFormat::JSON : LogFormat::TEXT;
  }

  if (config.stateDirectory == nullptr) {
    auto found = defaultStateDirectory(get);
    if (found.is<Problem>()) return kj::mv(found.get<Problem>());
    config.stateDirectory = kj::mv(found.get<kj::String>());
  }
  auto runtime = runtimeDirectory(get, uid);
  if (config.socket == nullptr) config.socket = kj::str(runtime, "/capstan.sock");
  if (config.standaloneSocketDirectory == nullptr) {
    config.standaloneSocketDirectory = kj::mv(runtime);
  }
  return kj::mv(config);
}

}  // namespace capstan
