#pragma once

#include "tools/capstan/context.h"

namespace capstan::cli {

// Every command: returns the process's exit code, throws a Failure for what went wrong.
int runRun(Context& context);
int runExec(Context& context);
int runEnvList(Context& context);
int runEnvShow(Context& context);
int runEnvRecheck(Context& context);
int runEnvWatch(Context& context);
int runEnvStop(Context& context);
int runEnvDestroy(Context& context);
int runSessionList(Context& context);
int runSessionShow(Context& context);
int runSessionLogs(Context& context);
int runSessionResume(Context& context);
int runSessionStop(Context& context);
int runExecutorList(Context& context);
int runExecutorAdd(Context& context);
int runExecutorShow(Context& context);
int runExecutorUpdate(Context& context);
int runExecutorRemove(Context& context);
int runExecutorDefault(Context& context);
int runProfileList(Context& context);
int runProfileAdd(Context& context);
int runProfileShow(Context& context);
int runProfileUpdate(Context& context);
int runProfileRemove(Context& context);
int runSecretSet(Context& context);
int runSecretList(Context& context);
int runSecretAllow(Context& context);
int runSecretDisallow(Context& context);
int runSecretRotate(Context& context);
int runSecretRemove(Context& context);
int runRuntimes(Context& context);

// One command of the command line.
struct Command {
  kj::StringPtr name;   // "env list": words that select it
  kj::StringPtr usage;  // "capstan env list"
  kj::StringPtr help;   // one line
  kj::StringPtr example;
  kj::ArrayPtr<const OptionRule> options;
  int (*run)(Context& context);
  bool interrupts = false;       // It handles Ctrl-C itself.
  kj::StringPtr more = nullptr;  // Further lines of help.
};
kj::ArrayPtr<const Command> commands();
// Options that every command takes.
kj::ArrayPtr<const OptionRule> globalOptions();

// "250ms", "10s", "5m", "2h" or a number of seconds, in milliseconds; a usage error otherwise.
uint64_t readDuration(kj::StringPtr option, kj::StringPtr text);

}  // namespace capstan::cli
