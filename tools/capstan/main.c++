// capstan: the command line.
#include "base/descriptors.h"
#include "base/memory.h"
#include "base/version.h"
#include "tools/capstan/commands.h"
#include "tools/capstan/views.h"

#include <kj/async-unix.h>
#include <kj/debug.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace capstan::cli {
namespace {

void printOverview() {
  std::printf(
      "capstan: run work in environments that outlive you\n\nusage: capstan COMMAND [options]\n\n");
  size_t width = 0;
  for (auto& command: commands())
    width = kj::max(width, command.name.size());
  for (auto& command: commands()) {
    std::printf("  %-*s  %s\n", static_cast<int>(width), command.name.cStr(), command.help.cStr());
  }
  std::printf("\noptions of every command:\n%s\nexample: %s\n", helpOf(globalOptions()).cStr(),
              commands()[0].example.cStr());
}

void printHelp(const Command& command) {
  std::printf("%s\n\nusage: %s\n", command.help.cStr(), command.usage.cStr());
  if (command.options.size() > 0) std::printf("\n%s", helpOf(command.options).cStr());
  std::printf("\noptions of every command:\n%s\nexample: %s\n", helpOf(globalOptions()).cStr(),
              command.example.cStr());
  if (command.more.size() > 0) std::printf("\n%s", command.more.cStr());
  if (command.name == "run") {
    std::printf(
        "\nThe command's variables are HOME USER LOGNAME SHELL LANG LC_* TZ TMPDIR PATH of the\n"
        "daemon, Capstan's own CAPSTAN_*, and those of --env. Your shell's other variables are\n"
        "not taken. --env has the origin 'managed runtime': a differing value of the executor\n"
        "profile for the same name is a conflict, not an override.\n"
        "Local PC isolates nothing: the command runs as the daemon's user.\n"
        "Ctrl-C interrupts the command, a second one within 2 s stops it; if this client goes\n"
        "away, the command goes on. The exit code is the command's, 128+n for a signal, 125\n"
        "when Capstan failed, 126 or 127 when the command could not be executed or found.\n");
  }
}

// Words up to "--" that could name a command: those before the first option are enough.
const Command* choose(int argc, char** argv, int& consumed) {
  const Command* found = nullptr;
  for (auto& command: commands()) {
    kj::StringPtr rest = command.name;
    int position = 1;
    // Global options may stand before the command.
    while (position < argc && argv[position][0] == '-' && kj::StringPtr(argv[position]) != "--") {
      bool takesValue = false;
      for (auto& rule: globalOptions()) {
        if (rule.name == argv[position]) takesValue = rule.value.size() > 0;
      }
      position += takesValue ? 2 : 1;
    }
    bool matches = true;
    int words = 0;
    while (rest.size() > 0 && matches) {
      kj::String part;
      KJ_IF_MAYBE (space, rest.findFirst(' ')) {
        part = kj::str(rest.slice(0, *space));
        rest = rest.slice(*space + 1);
      } else {
        part = kj::str(rest);
        rest = nullptr;
      }
      matches = position + words < argc && part == argv[position + words];
      ++words;
    }
    if (matches) {
      found = &command;
      consumed = words;
    }
  }
  return found;
}

int report(const Failure& failure, bool json) {
  auto& problem = failure.problem;
  if (json) {
    capnp::MallocMessageBuilder message;
    auto error = message.initRoot<rpc::Error>();
    error.setCode(problem.code);
    error.setMessage(problem.message);
    error.setCause(problem.cause);
    error.setHint(problem.hint);
    error.setField(problem.field);
    error.setSource(problem.source);
    error.setUpstreamCode(problem.upstreamCode);
    error.setRetry(problem.retry);
    error.setRetryAfterMs(problem.retryAfterMs);
    JsonWriter writer;
    writer.beginObject().key("error");
    writeJson(writer, error);
    writer.endObject();
    std::fprintf(stderr, "%s\n", writer.finish().cStr());
    return failure.code;
  }
  std::fprintf(stderr, "capstan: %s", plainLines(problem.message).cStr());
  if (problem.cause.size() > 0) std::fprintf(stderr, ": %s", plainLines(problem.cause).cStr());
  std::fprintf(stderr, " [%s]\n", errorCodeName(problem.code).cStr());
  if (problem.hint.size() > 0) std::fprintf(stderr, "  %s\n", plainLines(problem.hint).cStr());
  return failure.code;
}

kj::String ownPath() {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  KJ_REQUIRE(n > 0 && n < static_cast<ssize_t>(sizeof(path)), "cannot read /proc/self/exe");
  return kj::heapString(path, n);
}

// A daemon that is ending, or has just begun, refuses what would begin, so nothing has happened
// yet: the command is run again, on the daemon that takes over.
int runOnNextDaemonToo(const Command& command, kj::AsyncIoContext& io, const Arguments& arguments) {
  constexpr kj::Duration PAUSE = 300 * kj::MILLISECONDS;
  for (int triesLeft = 5;; --triesLeft) {
    try {
      Context context(io, arguments, ownPath());
      return command.run(context);
    } catch (const Failure& failure) {
      auto code = failure.problem.code;
      bool passes = code == ErrorCode::SHUTTING_DOWN || code == ErrorCode::RECOVERING;
      if (!passes || triesLeft == 0) throw;
    }
    io.provider->getTimer().afterDelay(PAUSE).wait(io.waitScope);
  }
}

int run(int argc, char** argv) {
  bool json = false;
  for (int i = 1; i < argc && kj::StringPtr(argv[i]) != "--"; ++i) {
    json = json || kj::StringPtr(argv[i]) == "--json";
  }
  try {
    int consumed = 0;
    auto* command = choose(argc, argv, consumed);
    kj::Vector<OptionRule> rules;
    rules.addAll(globalOptions());
    if (command != nullptr) rules.addAll(command->options);
    auto read = readArguments(kj::arrayPtr<const char* const>(argv + 1, argc - 1), rules);
    if (read.is<Problem>()) fail(kj::mv(read.get<Problem>()), USAGE);
    auto& arguments = read.get<Arguments>();
    if (arguments.has("--version")) {
      std::printf("capstan %s\n", VERSION);
      return 0;
    }
    if (command == nullptr) {
      if (arguments.has("--help") || argc == 1) {
        printOverview();
        return argc == 1 ? USAGE : 0;
      }
      if (arguments.words().size() == 0) failUsage(kj::str("no command given"));
      failUsage(kj::str("unknown command '", kj::strArray(arguments.words(), " "), "'"));
    }
    if (arguments.has("--help")) {
      printHelp(*command);
      return 0;
    }
    kj::Vector<kj::String> words;
    for (size_t i = consumed; i < arguments.plain.size(); ++i) {
      words.add(kj::mv(arguments.plain[i]));
    }
    arguments.plain = kj::mv(words);
    if (command->interrupts) kj::UnixEventPort::captureSignal(SIGINT);
    auto io = kj::setupAsyncIo();
    io.waitScope.setBusyPollInterval(64);
    return runOnNextDaemonToo(*command, io, arguments);
  } catch (const Failure& failure) {
    std::fflush(stdout);
    return report(failure, json);
  } catch (const kj::Exception& exception) {
    std::fflush(stdout);
    return report(failureOf(exception), json);
  }
}

// What was printed has reached stdout, or the command has failed.
int finishOutput(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  if (errno == EPIPE) return 128 + SIGPIPE;
  std::fprintf(stderr, "capstan: cannot write the output: %s\n",
               errno == 0 ? "an earlier write failed" : std::strerror(errno));
  return code == 0 ? CAPSTAN_FAILED : code;
}

}  // namespace
}  // namespace capstan::cli

int main(int argc, char** argv) {
  capstan::openStandardStreams();
  capstan::keepHeapForStreams();
  return capstan::cli::finishOutput(capstan::cli::run(argc, argv));
}
