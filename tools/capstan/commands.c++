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

constexpr OptionRule RESUME[] = {
    {"--detach"_kj, ""_kj, "do not stay attached; show the session"_kj},
};

constexpr OptionRule EXECUTOR_UPDATE[] = {
    {"--name"_kj, "N"_kj, "a new name"_kj},
    {"--disable"_kj, ""_kj, "no new task gets it; what is there goes on"_kj},
    {"--enable"_kj, ""_kj, "tasks get it again"_kj},
    {"--if-version"_kj, "V"_kj, "only if it is still at this version"_kj},
};

constexpr OptionRule REMOVE[] = {
    {"--if-version"_kj, "V"_kj, "only if it is still at this version"_kj},
};

constexpr OptionRule EXECUTOR_DEFAULT[] = {
    {"--tenant"_kj, "T"_kj, "of one tenant (default: for everybody)"_kj},
    {"--clear"_kj, ""_kj, "no default any more"_kj},
};

constexpr OptionRule PROFILE_ADD[] = {
    {"--prepare-script"_kj, "FILE"_kj, "runs in the place before the first launch; - = stdin"_kj},
    {"--cleanup-script"_kj, "FILE"_kj, "runs before the place is removed; - = stdin"_kj},
    {"--env"_kj, "K=V"_kj, "a variable; K=secret:NAME for a secret's value"_kj, true},
    {"--mcp-policy"_kj, "P"_kj, "kept for clients; Capstan does not read it"_kj},
};

constexpr OptionRule PROFILE_UPDATE[] = {
    {"--name"_kj, "N"_kj, "a new name"_kj},
    {"--prepare-script"_kj, "FILE"_kj, "in place of the old one; - = stdin, empty = none"_kj},
    {"--cleanup-script"_kj, "FILE"_kj, "in place of the old one; - = stdin, empty = none"_kj},
    {"--env"_kj, "K=V"_kj, "a variable; K=secret:NAME for a secret's value, K= for none"_kj, true},
    {"--mcp-policy"_kj, "P"_kj, "kept for clients; Capstan does not read it"_kj},
    {"--if-version"_kj, "V"_kj, "only if it is still at this version"_kj},
};

constexpr OptionRule SECRET_SET[] = {
    {"--exact"_kj, ""_kj, "keep a newline at the end; without it one is cut off"_kj},
};

constexpr kj::StringPtr MERGE_HELP =
    "key=value sets one key and key= clears it; the others stay.\n"_kj;

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
    {"env recheck"_kj, "capstan env recheck ENV"_kj,
     "Look at an environment's place and ask its helper; nothing is started or changed."_kj,
     "capstan env recheck fix-42"_kj, nullptr, runEnvRecheck},
    {"env watch"_kj, "capstan env watch [ENV]"_kj,
     "Tell what happens to all environments, or to one until it is removed; Ctrl-C ends it."_kj,
     "capstan env watch fix-42"_kj, nullptr, runEnvWatch},
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
    {"session resume"_kj, "capstan session resume S [options] [-- CMD [ARG...]]"_kj,
     "Go on with a session: attach to its run, or start it again where it was."_kj,
     "capstan session resume s-k3v5"_kj, RESUME, runSessionResume, true,
     "A run that has ended is repeated in the same workspace, with its variables and secrets\n"
     "resolved afresh and CAPSTAN_RESUME_TOKEN set when a token was saved. CMD takes the place of\n"
     "its command, from then on. Nothing is made in place of a workspace that is lost.\n"_kj},
    {"session stop"_kj, "capstan session stop S [options]"_kj,
     "End a session's run with all its processes."_kj, "capstan session stop s-k3v5"_kj, STOP,
     runSessionStop},
    {"executor list"_kj, "capstan executor list"_kj, "List the executors."_kj,
     "capstan executor list"_kj, nullptr, runExecutorList},
    {"executor add"_kj, "capstan executor add TYPE NAME [key=value]..."_kj, "Add an executor."_kj,
     "capstan executor add ssh build-host ssh_host=build.example"_kj, nullptr, runExecutorAdd,
     false,
     "TYPE is local_pc, local_docker, remote_docker, ssh, k8s or sprites. A host key's "
     "fingerprint\n"
     "is refused here: it is trusted only once it has been seen.\n"_kj},
    {"executor show"_kj, "capstan executor show E"_kj, "Show one executor with its config."_kj,
     "capstan executor show exec-local-pc"_kj, nullptr, runExecutorShow},
    {"executor update"_kj, "capstan executor update E [key=value]... [options]"_kj,
     "Change an executor's config, name or status."_kj,
     "capstan executor update build-host ssh_port=2222"_kj, EXECUTOR_UPDATE, runExecutorUpdate,
     false, MERGE_HELP},
    {"executor remove"_kj, "capstan executor remove E [options]"_kj,
     "Remove an executor that no profile, environment or default uses."_kj,
     "capstan executor remove build-host"_kj, REMOVE, runExecutorRemove},
    {"executor default"_kj, "capstan executor default [E] [options]"_kj,
     "Show or set the executor of tasks that name none."_kj,
     "capstan executor default build-host --tenant acme"_kj, EXECUTOR_DEFAULT, runExecutorDefault,
     false,
     "A task gets the first of: its profile's executor, the one it names, its tenant's default, "
     "the\n"
     "default for everybody, Local PC. Without E the defaults are shown.\n"_kj},
    {"profile list"_kj, "capstan profile list"_kj, "List the executor profiles."_kj,
     "capstan profile list"_kj, nullptr, runProfileList},
    {"profile add"_kj, "capstan profile add E NAME [key=value]... [options]"_kj,
     "Add a profile to an executor."_kj,
     "capstan profile add exec-local-pc node --env CI=1 --prepare-script setup.sh"_kj, PROFILE_ADD,
     runProfileAdd},
    {"profile show"_kj, "capstan profile show P"_kj, "Show one profile with its scripts."_kj,
     "capstan profile show node"_kj, nullptr, runProfileShow},
    {"profile update"_kj, "capstan profile update P [key=value]... [options]"_kj,
     "Change parts of a profile; what is not given stays."_kj,
     "capstan profile update node --env TOKEN=secret:npm-token"_kj, PROFILE_UPDATE,
     runProfileUpdate, false, MERGE_HELP},
    {"profile remove"_kj, "capstan profile remove P [options]"_kj,
     "Remove a profile that no environment uses."_kj, "capstan profile remove node"_kj, REMOVE,
     runProfileRemove},
    {"secret set"_kj, "capstan secret set NAME [--exact] < FILE"_kj,
     "Keep a secret, its value from standard input; a known one gets the new value."_kj,
     "capstan secret set npm-token < token.txt"_kj, SECRET_SET, runSecretSet, false,
     "One newline at the end of the value is cut off, unless --exact is given.\n"_kj},
    {"secret list"_kj, "capstan secret list"_kj,
     "List the secrets: names, times and who may use them, never values."_kj,
     "capstan secret list"_kj, nullptr, runSecretList},
    {"secret allow"_kj, "capstan secret allow NAME ENV|PROFILE"_kj,
     "Let the launches of an environment, or all with a profile, use a secret."_kj,
     "capstan secret allow npm-token fix-42"_kj, nullptr, runSecretAllow, false,
     "A profile whose own variables name a secret needs no permission for it.\n"_kj},
    {"secret disallow"_kj, "capstan secret disallow NAME ENV|PROFILE"_kj,
     "Take that back; what runs keeps what it was given."_kj,
     "capstan secret disallow npm-token fix-42"_kj, nullptr, runSecretDisallow},
    {"secret rotate"_kj, "capstan secret rotate"_kj,
     "Seal all secrets with a new key and remove the old one."_kj, "capstan secret rotate"_kj,
     nullptr, runSecretRotate},
    {"secret remove"_kj, "capstan secret remove NAME"_kj, "Remove a secret."_kj,
     "capstan secret remove npm-token"_kj, nullptr, runSecretRemove},
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
