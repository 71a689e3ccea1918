#include "tools/capstan/commands.h"

#include <cerrno>
#include <cstdlib>

namespace capstan::cli {

namespace {

constexpr OptionRule GLOBAL[] = {
    {"--json"_kj, ""_kj, "print JSON (docs/cli-json.md names every field)"_kj},
    {"--socket"_kj, "PATH"_kj, "the daemon's socket (default: in the runtime folder)"_kj},
    {"--state-dir"_kj, "DIR"_kj, "state folder for a daemon that is started by this command"_kj},
    {"--help"_kj, ""_kj, "print help and end"_kj},
    {"--version"_kj, ""_kj, "print the version and end"_kj},
};

constexpr OptionRule RUN[] = {
    {"--task"_kj, "ID"_kj, "the task; its environment is used again (default: a new one)"_kj},
    {"--title"_kj, "TEXT"_kj, "a title for the task"_kj},
    {"--executor"_kj, "E"_kj, "where it runs: id, name or unique prefix (default: Local PC)"_kj},
    {"--profile"_kj, "P"_kj, "executor profile"_kj},
    {"--tenant"_kj, "T"_kj, "the tenant the task belongs to"_kj},
    {"--workspace"_kj, "DIR"_kj, "a folder of yours to work in; never deleted"_kj},
    {"--clone"_kj, "URL[#REF]"_kj, "a repository to work in; of several each gets a folder"_kj,
     true},
    {"--env"_kj, "K=V"_kj, "a variable; K=secret:NAME for a secret's value"_kj, true},
    {"--cwd"_kj, "DIR"_kj, "working directory, relative to the workspace"_kj},
    {"--detach"_kj, ""_kj, "do not stay attached; print the ids"_kj},
    {"--rm"_kj, ""_kj, "remove the environment after the command has ended"_kj},
};

constexpr OptionRule EXEC[] = {
    {"--env"_kj, "K=V"_kj, "a variable; K=secret:NAME for a secret's value"_kj, true},
    {"--cwd"_kj, "DIR"_kj, "working directory, relative to the workspace"_kj},
};

constexpr OptionRule STOP[] = {
    {"--force"_kj, ""_kj, "kill at once instead of asking first"_kj},
    {"--grace"_kj, "TIME"_kj, "time between asking and killing (default: 10s)"_kj},
};

constexpr OptionRule DESTROY[] = {
    {"--keep-workspace"_kj, ""_kj, "leave the workspace's files"_kj},
};

constexpr OptionRule SESSION_LIST[] = {
    {"--env"_kj, "ENV"_kj, "only those of one environment"_kj},
};

constexpr OptionRule LOGS[] = {
    {"--follow"_kj, ""_kj, "go on until the output ends (also -f)"_kj},
    {"-f"_kj, ""_kj, ""_kj},
    {"--from"_kj, "RUN:OFFSET"_kj, "begin at an offset of a run's output; RUN may be left out"_kj},
};

const Command COMMANDS[] = {
    {"run"_kj, "capstan run [options] -- CMD [ARG...]"_kj,
     "Run a command in a task's environment and stay attached to it."_kj,
     "capstan run --task fix-42 --workspace . -- make test"_kj, RUN, runRun, true},
    {"exec"_kj, "capstan exec ENV [options] -- CMD [ARG...]"_kj,
     "Run a command beside the sessions of an environment; it ends with this client."_kj,
     "capstan exec fix-42 -- git status"_kj, EXEC, runExec, true},
    {"env list"_kj, "capstan env list"_kj, "List the environments."_kj,
     "capstan env list --json"_kj, nullptr, runEnvList},
    {"env show"_kj, "capstan env show ENV"_kj, "Show one environment with its sessions."_kj,
     "capstan env show fix-42"_kj, nullptr, runEnvShow},
    {"env stop"_kj, "capstan env stop ENV [options]"_kj,
     "End everything that runs in an environment; the place and its files stay."_kj,
     "capstan env stop fix-42 --grace 30s"_kj, STOP, runEnvStop},
    {"env destroy"_kj, "capstan env destroy ENV [options]"_kj,
     "End everything and remove what Capstan made; a folder of yours is left in place."_kj,
     "capstan env destroy fix-42 --keep-workspace"_kj, DESTROY, runEnvDestroy},
    {"session list"_kj, "capstan session list [--env ENV]"_kj, "List the sessions."_kj,
     "capstan session list --env fix-42"_kj, SESSION_LIST, runSessionList},
    {"session show"_kj, "capstan session show S"_kj, "Show one session."_kj,
     "capstan session show s-k3v5"_kj, nullptr, runSessionShow},
    {"session logs"_kj, "capstan session logs S [options]"_kj,
     "Print a session's output: its stdout to stdout, its stderr to stderr."_kj,
     "capstan session logs s-k3v5 -f"_kj, LOGS, runSessionLogs},
    {"session stop"_kj, "capstan session stop S [options]"_kj,
     "End a session's run with all its processes."_kj, "capstan session stop s-k3v5"_kj, STOP,
     runSessionStop},
    {"runtimes"_kj, "capstan runtimes"_kj,
     "Show which runtimes are built in, configured, available and healthy, or why not."_kj,
     "capstan runtimes"_kj, nullptr, runRuntimes},
};

}  // namespace

kj::ArrayPtr<const Command> commands() { return COMMANDS; }
kj::ArrayPtr<const OptionRule> globalOptions() { return GLOBAL; }

uint64_t readDuration(kj::StringPtr option, kj::StringPtr text) {
  char* end;
  errno = 0;
  unsigned long long number = std::strtoull(text.cStr(), &end, 10);
  kj::StringPtr unit = end;
  constexpr unsigned long long MOST = 1'000'000'000;
  if (end != text.cStr() && errno == 0 && text[0] != '-' && number <= MOST) {
    if (unit == "" || unit == "s") return number * 1000;
    if (unit == "ms") return number;
    if (unit == "m") return number * 60'000;
    if (unit == "h") return number * 3'600'000;
  }
  failUsage(kj::str(option, " wants a time such as 250ms, 10s, 5m or 2h, not '", text, "'"));
}

}  // namespace capstan::cli
