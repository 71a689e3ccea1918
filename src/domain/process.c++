#include "domain/process.h"

#include <csignal>

namespace capstan {

namespace {

struct NamedSignal {
  kj::StringPtr name;
  int number;
};

// POSIX.1-2017 <signal.h> and Linux signal(7).
const NamedSignal SIGNALS[] = {
    {"HUP"_kj, SIGHUP},   {"INT"_kj, SIGINT},       {"QUIT"_kj, SIGQUIT}, {"ILL"_kj, SIGILL},
    {"TRAP"_kj, SIGTRAP}, {"ABRT"_kj, SIGABRT},     {"BUS"_kj, SIGBUS},   {"FPE"_kj, SIGFPE},
    {"KILL"_kj, SIGKILL}, {"USR1"_kj, SIGUSR1},     {"SEGV"_kj, SIGSEGV}, {"USR2"_kj, SIGUSR2},
    {"PIPE"_kj, SIGPIPE}, {"ALRM"_kj, SIGALRM},     {"TERM"_kj, SIGTERM}, {"STKFLT"_kj, SIGSTKFLT},
    {"CHLD"_kj, SIGCHLD}, {"CONT"_kj, SIGCONT},     {"STOP"_kj, SIGSTOP}, {"TSTP"_kj, SIGTSTP},
    {"TTIN"_kj, SIGTTIN}, {"TTOU"_kj, SIGTTOU},     {"URG"_kj, SIGURG},   {"XCPU"_kj, SIGXCPU},
    {"XFSZ"_kj, SIGXFSZ}, {"VTALRM"_kj, SIGVTALRM}, {"PROF"_kj, SIGPROF}, {"WINCH"_kj, SIGWINCH},
    {"IO"_kj, SIGIO},     {"PWR"_kj, SIGPWR},       {"SYS"_kj, SIGSYS},
};

}  // namespace

ExitStatus ExitStatus::clone() const {
  ExitStatus result;
  result.kind = kind;
  result.code = code;
  result.signal = kj::str(signal);
  result.at = at;
  return result;
}

int ExitStatus::shellCode() const {
  switch (kind) {
    case Kind::CODE:
      return code;
    case Kind::SIGNAL:
      KJ_IF_MAYBE (number, signalNumber(signal)) {
        return 128 + *number;
      }
      return 255;
    case Kind::UNKNOWN:
      break;
  }
  return 255;
}

kj::String KJ_STRINGIFY(const ExitStatus& status) {
  switch (status.kind) {
    case ExitStatus::Kind::CODE:
      return kj::str("exit ", status.code);
    case ExitStatus::Kind::SIGNAL:
      return kj::str("signal ", status.signal);
    case ExitStatus::Kind::UNKNOWN:
      break;
  }
  return kj::str("unknown");
}

Terminal Terminal::clone() const {
  Terminal result;
  result.columns = columns;
  result.rows = rows;
  result.term = kj::str(term);
  return result;
}

kj::Maybe<int> signalNumber(kj::StringPtr name) {
  for (auto& known: SIGNALS) {
    if (known.name == name) return known.number;
  }
  return nullptr;
}

kj::String signalName(int number) {
  for (auto& known: SIGNALS) {
    if (known.number == number) return kj::str(known.name);
  }
  return kj::str(number);
}

}  // namespace capstan
