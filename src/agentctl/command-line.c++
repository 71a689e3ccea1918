#include "agentctl/command-line.h"

#include "agentctl/diagnostic-log.h"
#include "agentctl/listener.h"
#include "base/descriptors.h"

#include <kj/debug.h>
#include <kj/encoding.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr int NONCE_LIMIT_MS = 10'000;

Problem usage(kj::String text) {
  return Problem(ErrorCode::INVALID_ARGUMENT, kj::mv(text)).advise(kj::str("see agentctl --help"));
}

// All octets up to end of file, at most NONCE_MAX_BYTES.
Result<kj::Array<kj::byte>> readNonce(int fd) {
  kj::FixedArray<kj::byte, NONCE_MAX_BYTES + 1> buffer;
  KJ_DEFER(zeroBytes(buffer));
  size_t size = 0;
  while (size < buffer.size()) {
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, NONCE_LIMIT_MS) <= 0) return usage(kj::str("the nonce did not come"));
    ssize_t n = read(fd, buffer.begin() + size, buffer.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return usage(kj::str("the nonce cannot be read"));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size < NONCE_MIN_BYTES || size > NONCE_MAX_BYTES) {
    return usage(kj::str("a nonce has ", NONCE_MIN_BYTES, " to ", NONCE_MAX_BYTES, " octets"));
  }
  return kj::heapArray<kj::byte>(buffer.begin(), size);
}

// 0, 1 and 2 are always open, so that no other descriptor is ever taken for one of them.
void holdStandardStreams() {
  int null = open("/dev/null", O_RDWR);
  while (null >= 0 && null <= 2) {
    null = open("/dev/null", O_RDWR);
  }
  if (null > 2) close(null);
}

bool writeAddressFile(kj::StringPtr path, kj::StringPtr line) {
  auto fresh = kj::str(path, ".new");
  int fd = open(fresh.cStr(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  kj::AutoCloseFd owned(fd);
  return write(fd, line.begin(), line.size()) == static_cast<ssize_t>(line.size()) &&
         rename(fresh.cStr(), path.cStr()) == 0;
}

// Null, and errno, when it cannot be had.
kj::AutoCloseFd openLifeline(kj::StringPtr path) {
  kj::AutoCloseFd file(open(path.cStr(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file != nullptr && flock(file, LOCK_SH | LOCK_NB) < 0) file = nullptr;
  return file;
}

kj::Promise<void> shutdownOn(kj::UnixEventPort& port, HelperServer& server, int signal) {
  co_await port.onSignal(signal);
  co_await server.shutdown(0);
}

int complain(const Problem& problem) {
  auto text = kj::str("agentctl: ", problem, '\n');
  ssize_t ignored = write(STDERR_FILENO, text.begin(), text.size());
  (void)ignored;
  return 1;
}

int serve(CommandLine& line, kj::Array<kj::byte> nonce) {
  // Before the loop exists, so that no thread or handler sees them otherwise. SIGPIPE is ignored
  // by kj, SIGHUP here: the helper outlives the terminal and the link that started it.
  for (int number: {SIGCHLD, SIGTERM, SIGINT}) {
    kj::UnixEventPort::captureSignal(number);
  }
  signal(SIGHUP, SIG_IGN);
  line.options.subreaper =
      becomeSubreaper() ? SubreaperSupport::AVAILABLE : SubreaperSupport::REFUSED;

  auto bound = UnixListener::bind(line.socketPath);
  KJ_IF_MAYBE (problem, bound.tryGet<Problem>()) {
    return complain(*problem);
  }
  auto& listener = bound.get<UnixListener>();

  kj::AutoCloseFd lifeline;
  if (line.lifelineFile.size() > 0) {
    lifeline = openLifeline(line.lifelineFile);
    if (lifeline == nullptr) {
      return complain(
          Problem(ErrorCode::DENIED, kj::str("cannot lock the file ", line.lifelineFile)));
    }
  }
  auto io = kj::setupAsyncIo();
  io.waitScope.setBusyPollInterval(64);
  ChildWatch children(io.unixEventPort);
  Credentials credentials(kj::mv(nonce));
  InstanceHost host{io.unixEventPort,  io.lowLevelProvider->getTimer(), children,
                    homeOf(geteuid()), kj::encodeHex(randomBytes(4)),   line.agentDescriptors,
                    lifeline.get()};
  HelperServer server(host, *io.lowLevelProvider, credentials, line.options);

  auto address = kj::str("{\"address\":\"unix:", line.socketPath, "\",\"serverId\":\"",
                         kj::encodeHex(server.serverId), "\",\"pid\":", getpid(), "}\n");
  if (line.addressFile.size() > 0 && !writeAddressFile(line.addressFile, address)) {
    return complain(
        Problem(ErrorCode::DENIED, kj::str("cannot write the address file ", line.addressFile)));
  }
  auto running = server.run(io.lowLevelProvider->wrapListenSocketFd(listener.takeFd()));
  if (write(STDOUT_FILENO, address.begin(), address.size()) < 0) {
    KJ_LOG(WARNING, "nobody reads the address", errno);
  }
  running
      .exclusiveJoin(shutdownOn(io.unixEventPort, server, SIGTERM)
                         .exclusiveJoin(shutdownOn(io.unixEventPort, server, SIGINT)))
      .wait(io.waitScope);
  if (line.addressFile.size() > 0) unlink(line.addressFile.cStr());
  if (line.lifelineFile.size() > 0) unlink(line.lifelineFile.cStr());
  return 0;
}

}  // namespace

kj::StringPtr helpText() {
  return "usage: agentctl serve --socket PATH --nonce-fd N [options]\n"
         "       agentctl --version | --help\n"
         "\n"
         "Runs agent processes for capstand and keeps their output while nobody listens.\n"
         "\n"
         "  --socket PATH            unix socket to listen on: absolute, below 100 octets\n"
         "  --nonce-fd N             descriptor with the nonce, 16 to 256 octets up to its end\n"
         "  --state-dir DIR          folder of the helper's own log (agentctl.log)\n"
         "  --log FILE               log file, instead of that\n"
         "  --address-file FILE      write the address line there, too\n"
         "  --unowned-period S       end everything after S seconds without an owner (0 = never)\n"
         "  --idle-period S          end after S seconds with neither owner nor instance (0 = "
         "never)\n"
         "  --ephemeral-grace-ms MS  keep ephemeral instances so long after their owner (10000)\n"
         "  --handshake-limit-ms MS  close connections that prove nothing (10000)\n"
         "  --agent-descriptors N    soft limit of open descriptors of agents (the helper's own)\n"
         "  --lifeline FILE          file to hold locked (flock, shared) while the helper or one "
         "of\n"
         "                           its reapers lives\n"_kj;
}

Result<CommandLine> parseCommandLine(kj::ArrayPtr<const kj::StringPtr> words) {
  CommandLine line;
  if (words.size() == 1 && words[0] == "--version") {
    line.action = CommandLine::Action::VERSION;
    return kj::mv(line);
  }
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) return kj::mv(line);
  if (words.size() == 0) return usage(kj::str("no command"));
  if (words[0] != "serve") return usage(kj::str("unknown command '", words[0], "'"));
  line.action = CommandLine::Action::SERVE;

  for (size_t i = 1; i < words.size(); i += 2) {
    auto option = words[i];
    if (i + 1 >= words.size()) return usage(kj::str(option, " needs a value"));
    auto value = words[i + 1];
    auto number = value.tryParseAs<uint32_t>();
    kj::String* text = option == "--socket"         ? &line.socketPath
                       : option == "--state-dir"    ? &line.stateDirectory
                       : option == "--address-file" ? &line.addressFile
                       : option == "--log"          ? &line.logFile
                       : option == "--lifeline"     ? &line.lifelineFile
                                                    : nullptr;
    if (text != nullptr) {
      *text = kj::heapString(value);
      continue;
    }
    bool known = option == "--nonce-fd" || option == "--unowned-period" ||
                 option == "--idle-period" || option == "--ephemeral-grace-ms" ||
                 option == "--handshake-limit-ms" || option == "--agent-descriptors";
    if (!known) return usage(kj::str("unknown option '", option, "'"));
    if (number == nullptr) return usage(kj::str(option, " needs a number"));
    uint32_t n = KJ_ASSERT_NONNULL(number);
    if (option == "--nonce-fd") {
      if (n > INT32_MAX) return usage(kj::str(option, " needs a descriptor"));
      line.nonceFd = static_cast<int>(n);
    } else if (option == "--unowned-period") {
      line.options.unownedPeriod = n * kj::SECONDS;
    } else if (option == "--idle-period") {
      line.options.idlePeriod = n * kj::SECONDS;
    } else if (option == "--ephemeral-grace-ms") {
      line.options.ephemeralGrace = n * kj::MILLISECONDS;
    } else if (option == "--agent-descriptors") {
      line.agentDescriptors = n;
    } else {
      line.options.handshakeLimit = n * kj::MILLISECONDS;
    }
  }
  if (line.socketPath.size() == 0) return usage(kj::str("--socket is missing"));
  for (char c: line.socketPath) {
    // It goes into the address line as it is.
    if (c < ' ' || c == '"' || c == '\\') return usage(kj::str("--socket: unfit characters"));
  }
  if (line.nonceFd < 0) return usage(kj::str("--nonce-fd is missing"));
  if (line.logFile.size() == 0 && line.stateDirectory.size() > 0) {
    line.logFile = kj::str(line.stateDirectory, "/agentctl.log");
  }
  return kj::mv(line);
}

int runHelper(CommandLine line) {
  auto descriptors = raiseDescriptorLimit();
  if (line.agentDescriptors == 0) line.agentDescriptors = descriptors;
  auto nonce = readNonce(line.nonceFd);
  close(line.nonceFd);
  holdStandardStreams();
  KJ_IF_MAYBE (problem, nonce.tryGet<Problem>()) {
    return complain(*problem);
  }
  DiagnosticLog log(line.logFile);
  int code = 1;
  KJ_IF_MAYBE (exception, kj::runCatchingExceptions([&]() {
                 code = serve(line, kj::mv(nonce.get<kj::Array<kj::byte>>()));
               })) {
    KJ_LOG(ERROR, "the helper failed", *exception);
    return 1;
  }
  return code;
}

}  // namespace capstan
