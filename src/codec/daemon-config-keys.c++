#include "codec/daemon-config-keys.h"

#include "base/unix-socket.h"
#include "codec/yaml-tree.h"

#include <kj/common.h>

namespace capstan::config {

namespace {

constexpr uint64_t KIB = 1u << 10, MIB = 1u << 20, GIB = 1u << 30;
constexpr auto MS = kj::MILLISECONDS;
constexpr auto S = kj::SECONDS;
constexpr auto MIN = kj::MINUTES;
constexpr auto H = kj::HOURS;

constexpr size_t PATH_BYTES = 4095;
// "/agentctl-", 16 digits and ".sock" have to fit behind it.
constexpr size_t SOCKET_FOLDER_BYTES = UNIX_PATH_BYTES - 31;

constexpr auto NO_PORT =
    "the helper of this machine listens on a unix socket, never on a network address"_kj;

const Key KEYS[] = {
    {"state_dir"_kj,
     PathRule{&DaemonConfig::stateDirectory, PATH_BYTES, "`$XDG_STATE_HOME/capstan`"_kj},
     "Where state is kept; `--state-dir`"_kj},
    {"socket"_kj,
     PathRule{&DaemonConfig::socket, UNIX_PATH_BYTES, "`capstan.sock` in the runtime folder"_kj},
     "Where clients connect; `--socket`"_kj},
    {"agentctl_dir"_kj,
     PathRule{&DaemonConfig::helperDirectory, PATH_BYTES, "beside the program"_kj},
     "Where the helpers' executables are; `--agentctl-dir`"_kj},
    {"local_admin"_kj, SwitchRule{&DaemonConfig::localAdmin},
     "Whether the daemon's own user and root are administrators by themselves; `false` is "
     "`--no-local-admin`"_kj},
    {"log_format"_kj, LogFormatRule{}, "How log lines look; `--log-format`"_kj},

    {"agent.docker.enabled"_kj, SwitchRule{&DaemonConfig::dockerEnabled},
     "Whether tasks may use the Docker runtime, where the build contains it"_kj},
    {"agent.standalone.host"_kj, FixedRule{"localhost"_kj, NO_PORT},
     "Where the helper of local tasks runs: always this machine"_kj},
    {"agent.standalone.port"_kj, FixedRule{"0"_kj, NO_PORT},
     "Always `0`, no port: it listens on a unix socket"_kj},
    {"agent.standalone.socket"_kj,
     PathRule{&DaemonConfig::standaloneSocketDirectory, SOCKET_FOLDER_BYTES,
              "the runtime folder"_kj},
     "Folder (mode 0700, this user's) in which each helper of local tasks makes its own socket"_kj},

    {"deadlines.connect"_kj, DurationRule{&Deadlines::connect, 100 * MS, 10 * MIN},
     "Until a helper's stream is open"_kj},
    {"deadlines.handshake"_kj, DurationRule{&Deadlines::handshake, 100 * MS, 10 * MIN},
     "Until a helper has proved itself"_kj},
    {"deadlines.helper_start"_kj, DurationRule{&Deadlines::helperStart, 100 * MS, 10 * MIN},
     "Until a started helper listens"_kj},
    {"deadlines.prepare"_kj, DurationRule{&Deadlines::prepare, 1 * S, 24 * H},
     "One run of a prepare script"_kj},
    {"deadlines.launch"_kj, DurationRule{&Deadlines::launch, 1 * S, 24 * H},
     "One launch, bring-up included, unless the launch gives its own"_kj},
    {"deadlines.stop_grace"_kj, DurationRule{&Deadlines::stopGrace, 100 * MS, 1 * H},
     "From TERM to KILL"_kj},
    {"deadlines.cleanup"_kj, DurationRule{&Deadlines::cleanup, 1 * S, 1 * H},
     "The removal of one resource"_kj},
    {"deadlines.control"_kj, DurationRule{&Deadlines::control, 100 * MS, 10 * MIN},
     "One answer of a helper"_kj},
    {"deadlines.output_kept"_kj, DurationRule{&Deadlines::outputKept, 1 * H, 8760 * H},
     "From a run's end until its output is deleted"_kj},
    {"deadlines.health"_kj, DurationRule{&Deadlines::health, 100 * MS, 10 * MIN},
     "One check of a runtime's health"_kj},
    {"deadlines.loss_grace"_kj, DurationRule{&Deadlines::lossGrace, 100 * MS, 1 * H},
     "Out of reach for less is no episode"_kj},
    {"deadlines.inspection"_kj, DurationRule{&Deadlines::inspection, 100 * MS, 1 * MIN},
     "One recheck of an environment"_kj},

    {"limits.output_spool_bytes"_kj, SizeRule{&Limits::outputSpoolBytes, 256 * KIB, 64 * GIB},
     "Output kept of one run; then the oldest goes"_kj},
    {"limits.command_words"_kj, CountRule{&Limits::commandWords, 1, 65536},
     "Words of one command"_kj},
    {"limits.command_bytes"_kj, SizeRule{&Limits::commandBytes, 1 * KIB, 1 * MIB},
     "A command's words, and its variables, each"_kj},
    {"limits.variables"_kj, CountRule{&Limits::variables, 1, 16384},
     "Definitions of variables in one launch"_kj},
    {"limits.environments"_kj, CountRule{&Limits::environments, 1, 100000},
     "Environments of this daemon"_kj},
    {"limits.sessions_per_environment"_kj, CountRule{&Limits::sessionsPerEnvironment, 1, 5000},
     "Sessions of one environment, ended ones included"_kj},
    {"limits.execs_per_environment"_kj, CountRule{&Limits::execsPerEnvironment, 1, 4096},
     "Execs of one environment at once"_kj},
    {"limits.watchers"_kj, CountRule{&Limits::watchers, 1, 65536},
     "Subscriptions to events of one connection"_kj},
    {"limits.labels"_kj, CountRule{&Limits::labels, 1, 1024}, "Labels of one environment"_kj},
    {"limits.text_bytes"_kj, SizeRule{&Limits::textBytes, 64, 64 * KIB},
     "A title, label, reason or path"_kj},
    {"limits.list_page"_kj, CountRule{&Limits::listPage, 10, 2000}, "Rows of one answer"_kj},
    {"limits.executors"_kj, CountRule{&Limits::executors, 1, 10000}, "Executors"_kj},
    {"limits.profiles"_kj, CountRule{&Limits::profiles, 1, 100000}, "Executor profiles"_kj},
    {"limits.tenant_defaults"_kj, CountRule{&Limits::tenantDefaults, 1, 100000},
     "Default executors of tenants"_kj},
    {"limits.config_bytes"_kj, SizeRule{&Limits::configBytes, 4 * KIB, 512 * KIB},
     "The config of one executor or profile"_kj},
    {"limits.script_bytes"_kj, SizeRule{&Limits::scriptBytes, 4 * KIB, 512 * KIB},
     "One prepare or cleanup script"_kj},
    {"limits.catalog_bytes"_kj, SizeRule{&Limits::catalogBytes, 1 * MIB, 4 * GIB},
     "All executors and profiles together, which are held in memory"_kj},
    {"limits.secrets"_kj, CountRule{&Limits::secrets, 1, 1000000}, "Secrets of users"_kj},
    {"limits.launch_secret_bytes"_kj, SizeRule{&Limits::launchSecretBytes, 1 * KIB, 64 * MIB},
     "Secrets opened for one launch"_kj},
    {"limits.repositories"_kj, CountRule{&Limits::repositories, 1, 200},
     "Repositories of one workspace, and its source roots"_kj},
};

constexpr size_t DEADLINE_KEYS = 12, LIMIT_KEYS = 20;
static_assert(sizeof(Deadlines) == DEADLINE_KEYS * sizeof(kj::Duration) &&
                  sizeof(Limits) == sizeof(Deadlines) + LIMIT_KEYS * sizeof(size_t),
              "every field of domain/limits.h has a key above: add the new one's, and count it");

constexpr GoneKey GONE[] = {
    {"agent.runtime"_kj,
     "is gone: there is no runtime for all tasks; each task chooses its executor, and that one's "
     "type its runtime"_kj,
     "remove the line, and choose with capstan run --executor"_kj},
    {"agent.standalone.enabled"_kj,
     "is gone: the standalone runtime is always there; tasks leave it alone by choosing another "
     "executor"_kj,
     "remove the line"_kj},
};

struct Unit {
  kj::StringPtr name;
  uint64_t factor;
};
// Small ones first.
constexpr Unit DURATIONS[] = {
    {"ms"_kj, 1}, {"s"_kj, 1000}, {"min"_kj, 60'000}, {"h"_kj, 3'600'000}};
constexpr Unit SIZES[] = {{"B"_kj, 1}, {"KiB"_kj, KIB}, {"MiB"_kj, MIB}, {"GiB"_kj, GIB}};

uint64_t saturated(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

// The digits that `text` begins with; what is behind them goes into `rest`.
Quantity readDigits(kj::StringPtr text, kj::StringPtr& rest) {
  Quantity result;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    result.value = saturated(result.value, 10);
    result.value = kj::max(result.value, result.value + static_cast<uint64_t>(text[digits] - '0'));
  }
  rest = text.slice(digits);
  if (digits == 0) result.fault = kj::str("'", shownText(text), "' is no whole number");
  return result;
}

Quantity readWithUnit(kj::StringPtr text, kj::ArrayPtr<const Unit> units) {
  kj::StringPtr rest;
  auto result = readDigits(text, rest);
  if (result.fault.size() > 0) return result;
  for (auto& unit: units) {
    if (rest != unit.name) continue;
    result.value = saturated(result.value, unit.factor);
    return result;
  }
  auto known = kj::strArray(KJ_MAP(unit, units) { return unit.name; }, ", ");
  result.fault = rest == "" ? kj::str("'", text, "' has no unit: ", known)
                            : kj::str("'", shownText(rest), "' is no unit: ", known);
  return result;
}

kj::String withUnit(uint64_t value, kj::ArrayPtr<const Unit> units) {
  const Unit* best = units.begin();
  for (auto& unit: units) {
    if (value > 0 && value % unit.factor == 0) best = &unit;
  }
  return kj::str(value / best->factor, best->name);
}

}  // namespace

kj::ArrayPtr<const Key> keys() { return KEYS; }
kj::ArrayPtr<const GoneKey> goneKeys() { return GONE; }

Quantity readDuration(kj::StringPtr text) { return readWithUnit(text, DURATIONS); }
Quantity readSize(kj::StringPtr text) { return readWithUnit(text, SIZES); }

Quantity readCount(kj::StringPtr text) {
  kj::StringPtr rest;
  auto result = readDigits(text, rest);
  if (rest != "") result.fault = kj::str("'", shownText(text), "' is no whole number");
  return result;
}

kj::String durationText(kj::Duration duration) {
  return withUnit(static_cast<uint64_t>(duration / MS), DURATIONS);
}

kj::String sizeText(uint64_t bytes) { return withUnit(bytes, SIZES); }

}  // namespace capstan::config
