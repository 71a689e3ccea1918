#include "agentctl/instance.h"

#include "agentctl/terminal.h"

#include <kj/debug.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr uint64_t DEFAULT_SPOOL_BYTES = 64 << 20;
constexpr uint64_t DEFAULT_STOP_GRACE_MS = 10'000;
constexpr auto START_LIMIT = 30 * kj::SECONDS;
constexpr auto OUTPUT_LIMIT = 2 * kj::SECONDS;  // From the agent's exit to the end of its output.
constexpr int READS_PER_TURN = 16;
constexpr int PIPE_BYTES = 256 << 10;  // Of stdout.
// How long a process may be held for a reader that is being served, for each 64 KiB: a reader that
// keeps up gets its octets from memory, and one that does not slows the process to no less than
// 32 MB/s.
constexpr auto PACE = 2 * kj::MILLISECONDS;
constexpr size_t MAX_ID = 64;

using State = agentctl::InstanceState;

int64_t wallClockMs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Ids become names of files and cgroups.
bool isId(kj::StringPtr id) {
  if (id.size() == 0 || id.size() > MAX_ID || id[0] == '.') return false;
  for (char c: id) {
    bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_' || c == '.';
    if (!ok) return false;
  }
  return true;
}

Problem wrongState(kj::StringPtr text) {
  return Problem(ErrorCode::WRONG_STATE, kj::heapString(text));
}

OutputLogOptions logOptions(agentctl::InstanceSpec::Reader spec) {
  OutputLogOptions options;
  options.directory = kj::heapString(spec.getDirectory());
  options.name = kj::str("output-", spec.getId());
  options.spoolLimitBytes =
      spec.getSpoolLimitBytes() == 0 ? DEFAULT_SPOOL_BYTES : spec.getSpoolLimitBytes();
  options.pauseWhenFull = spec.getPauseWhenFull();
  return options;
}

bool setNonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0;
}

Problem noDescriptors() {
  return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("the process's streams cannot be opened"))
      .from("agentctl", errnoName(errno));
}

}  // namespace

Result<kj::Own<HelperInstance>> HelperInstance::create(InstanceHost& host,
                                                       agentctl::InstanceSpec::Reader spec) {
  if (!isId(spec.getId())) {
    return Problem(ErrorCode::INVALID_ARGUMENT,
                   kj::str("an id is 1 to 64 letters, digits, '-', '_' or '.'"))
        .at(kj::str("id"));
  }
  auto directory = spec.getDirectory();
  if (directory.size() > 0) {
    if (!directory.startsWith("/")) {
      return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the directory must be absolute"))
          .at(kj::str("directory"));
    }
    struct stat found;
    if (mkdir(directory.cStr(), 0700) < 0 && errno != EEXIST) {
      return Problem(ErrorCode::DENIED, kj::str("the session directory cannot be made"))
          .at(kj::str("directory"))
          .from("agentctl", errnoName(errno));
    }
    if (stat(directory.cStr(), &found) < 0 || !S_ISDIR(found.st_mode)) {
      return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the session directory is none"))
          .at(kj::str("directory"));
    }
  }
  return kj::refcounted<HelperInstance>(host, spec);
}

HelperInstance::HelperInstance(InstanceHost& host, agentctl::InstanceSpec::Reader spec)
    : host(host),
      idText(kj::heapString(spec.getId())),
      sessionId(kj::heapString(spec.getSessionId())),
      environmentId(kj::heapString(spec.getEnvironmentId())),
      taskId(kj::heapString(spec.getTaskId())),
      directory(kj::heapString(spec.getDirectory())),
      ephemeral(spec.getEphemeral()),
      stopGraceMs(spec.getStopGraceMs() == 0 ? DEFAULT_STOP_GRACE_MS : spec.getStopGraceMs()),
      log(logOptions(spec)),
      tasks(*this) {
  auto started = kj::newPromiseAndFulfiller<void>();
  startDone = kj::mv(started.fulfiller);
  whenStarted = started.promise.fork();
  auto ended = kj::newPromiseAndFulfiller<void>();
  endDone = kj::mv(ended.fulfiller);
  whenEnded = ended.promise.fork();
}

HelperInstance::~HelperInstance() noexcept(false) {}

void HelperInstance::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "a task of an instance failed", idText, exception);
}

bool HelperInstance::hasEnded() const {
  return stateNow == State::EXITED || stateNow == State::FAILED;
}

bool HelperInstance::isLive() const {
  KJ_IF_MAYBE (l, link) {
    return !(*l)->isEmpty();
  }
  return starting && !hasEnded();
}

void HelperInstance::acknowledge() {
  acknowledged = true;
  if (log.ended()) log.settle();
}

void HelperInstance::removeFiles() {
  log.remove();
  if (directory.size() > 0) unlink(agentJsonPath().cStr());
}

kj::String HelperInstance::agentJsonPath() const {
  return kj::str(directory, "/agent-", idText, ".json");
}

Outcome HelperInstance::storeAgentJson(capnp::Data::Reader json) {
  if (json.size() == 0 || directory.size() == 0) return nullptr;
  int file =
      open(agentJsonPath().cStr(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  kj::AutoCloseFd owned(file);
  if (file < 0 || ::write(file, json.begin(), json.size()) != static_cast<ssize_t>(json.size())) {
    return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("the agent specification is not stored"))
        .at(kj::str("agentJson"))
        .from("agentctl", errnoName(errno));
  }
  return nullptr;
}

Outcome HelperInstance::configure(agentctl::InstanceConfig::Reader config) {
  KJ_DEFER(wipeSecrets(config));
  if (stateNow != State::CREATED) return wrongState("it has been configured already");
  auto made = LaunchPlan::from(config, host.home);
  KJ_IF_MAYBE (problem, made.tryGet<Problem>()) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, storeAgentJson(config.getAgentJson())) {
    return kj::mv(*problem);
  }
  plan = kj::mv(made.get<kj::Own<LaunchPlan>>());
  hasTerminal = config.hasTerminal();
  columns = config.getTerminal().getColumns();
  rows = config.getTerminal().getRows();
  stateNow = State::CONFIGURED;
  return nullptr;
}

kj::Promise<Result<int32_t>> HelperInstance::start() {
  if (stateNow != State::CONFIGURED || starting) {
    co_return wrongState(stateNow == State::CREATED ? "it has not been configured"
                                                    : "it has been started already");
  }
  starting = true;
  auto done = whenStarted.addBranch();
  tasks.add(runStart());
  co_await done;
  KJ_IF_MAYBE (problem, failure) {
    co_return problem->clone();
  }
  co_return kj::cp(pid);
}

Outcome HelperInstance::openStreams(AgentStreams& streams, kj::Vector<kj::AutoCloseFd>& childEnds) {
  if (hasTerminal) {
    auto opened = openPty(columns, rows);
    KJ_IF_MAYBE (problem, opened.tryGet<Problem>()) {
      return kj::mv(*problem);
    }
    auto pty = kj::mv(opened.get<PtyPair>());
    kj::AutoCloseFd output(fcntl(pty.master, F_DUPFD_CLOEXEC, 3));
    kj::AutoCloseFd input(fcntl(pty.master, F_DUPFD_CLOEXEC, 3));
    if (output == nullptr || input == nullptr) return noDescriptors();
    int slave = childEnds.add(kj::mv(pty.slave)).get();
    streams = {slave, slave, slave, true};
    terminal = kj::mv(pty.master);
    stdinBuffer = kj::heap<StdinBuffer>(host.port, kj::mv(input), StdinBuffer::Kind::TERMINAL);
    addOutput(kj::mv(output), OutputStream::STDOUT);
    return nullptr;
  }
  kj::AutoCloseFd ours[3];
  int theirs[3];
  for (int i = 0; i < 3; ++i) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return noDescriptors();
    theirs[i] = ends[i == 0 ? 0 : 1];
    childEnds.add(kj::AutoCloseFd(theirs[i]));
    ours[i] = kj::AutoCloseFd(ends[i == 0 ? 1 : 0]);
    // The process may be further ahead than the usual 64 KiB, which saves wake-ups on both sides.
    // Only stdout, since the kernel bounds the pipes of one user; a refusal leaves it as it is.
    if (i == STDOUT_FILENO) fcntl(ours[i], F_SETPIPE_SZ, PIPE_BYTES);
    // Only our end: the process's own must stay as any program expects it.
    if (!setNonblocking(ours[i])) return noDescriptors();
  }
  streams = {theirs[0], theirs[1], theirs[2], false};
  stdinBuffer = kj::heap<StdinBuffer>(host.port, kj::mv(ours[0]), StdinBuffer::Kind::PIPE);
  addOutput(kj::mv(ours[1]), OutputStream::STDOUT);
  addOutput(kj::mv(ours[2]), OutputStream::STDERR);
  return nullptr;
}

kj::Promise<void> HelperInstance::runStart() {
  KJ_DEFER(startDone->fulfill());
  auto outputs = kj::newPromiseAndFulfiller<void>();
  outputsEnded = kj::mv(outputs.fulfiller);
  {
    AgentStreams streams;
    kj::Vector<kj::AutoCloseFd> childEnds;
    KJ_IF_MAYBE (problem, openStreams(streams, childEnds)) {
      fail(kj::mv(*problem));
      co_return;
    }
    auto forked = ReaperLink::fork(host.port, host.timer, host.children, *KJ_ASSERT_NONNULL(plan),
                                   streams, stopGraceMs, host.descriptorLimit, host.lifeline,
                                   makeCgroup(kj::str("capstan-", host.tag, '-', idText)));
    KJ_IF_MAYBE (problem, forked.tryGet<Problem>()) {
      fail(kj::mv(*problem));
      co_return;
    }
    link = kj::mv(forked.get<kj::Own<ReaperLink>>());
  }
  auto& reaper = *KJ_ASSERT_NONNULL(link);
  auto late = host.timer.afterDelay(START_LIMIT).then([]() -> Result<AgentStarted> {
    return Problem(ErrorCode::TIMEOUT, kj::str("the process did not start in time"));
  });
  auto result = co_await reaper.started().exclusiveJoin(kj::mv(late));
  plan = nullptr;  // Wiped: from here on only the process has its secrets.
  KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
    fail(kj::mv(*problem));
    if (!reaper.isEmpty()) co_await reaper.stop(0, true);
    co_return;
  }
  auto started = result.get<AgentStarted>();
  pid = started.pid;
  startTicks = started.startTicks;
  startedAtMs = wallClockMs();
  stateNow = State::RUNNING;
  tasks.add(supervise(kj::mv(outputs.promise)));
}

void HelperInstance::fail(Problem problem) {
  plan = nullptr;
  failure = kj::mv(problem);
  stateNow = State::FAILED;
  discarding = true;
  KJ_IF_MAYBE (buffer, stdinBuffer) {
    (*buffer)->close();
  }
  log.end();
  endDone->fulfill();
}

void HelperInstance::addOutput(kj::AutoCloseFd fd, OutputStream stream) {
  ++openOutputs;
  tasks.add(pump(kj::mv(fd), stream));
}

kj::Promise<void> HelperInstance::pump(kj::AutoCloseFd fd, OutputStream stream) {
  KJ_DEFER({
    if (--openOutputs == 0) outputsEnded->fulfill();
  });
  kj::UnixEventPort::FdObserver observer(host.port, fd,
                                         kj::UnixEventPort::FdObserver::OBSERVE_READ);
  int reads = 0;
  uint64_t stalledAt = UINT64_MAX;  // Where the readers stood when waiting for them was in vain.
  for (;;) {
    if (log.isAhead() && log.deliveredOffset() != stalledAt) {
      auto before = log.deliveredOffset();
      co_await pace();
      if (log.deliveredOffset() == before) stalledAt = before;
    }
    while (log.isFull()) {
      co_await log.drained();
    }
    auto place = discarding ? host.scratch.asPtr() : log.space();
    ssize_t n = read(fd, place.begin(), place.size());
    if (n > 0) {
      if (!discarding) log.appendInPlace(stream, static_cast<size_t>(n));
      if (++reads % READS_PER_TURN == 0) co_await host.timer.afterDelay(0 * kj::NANOSECONDS);
    } else if (n < 0 && errno == EAGAIN) {
      co_await observer.whenBecomesReadable();
    } else if (n == 0 || errno != EINTR) {
      co_return;  // End of file; a terminal says EIO when its last user is gone.
    }
  }
}

kj::Promise<void> HelperInstance::pace() {
  auto& timer = host.timer;
  auto until = timer.now() + PACE;
  while (log.isAhead() && timer.now() < until) {
    co_await log.drained().exclusiveJoin(timer.atTime(until));
  }
}

kj::Promise<void> HelperInstance::supervise(kj::Promise<void> outputs) {
  auto status = co_await KJ_ASSERT_NONNULL(link)->agentExit();
  exit.atMs = wallClockMs();
  KJ_IF_MAYBE (s, status) {
    if (WIFEXITED(*s)) {
      exit.kind = ExitRecord::Kind::CODE;
      exit.value = WEXITSTATUS(*s);
    } else if (WIFSIGNALED(*s)) {
      exit.kind = ExitRecord::Kind::SIGNAL;
      exit.value = WTERMSIG(*s);
    }
  }
  stateNow = State::EXITED;
  KJ_IF_MAYBE (buffer, stdinBuffer) {
    (*buffer)->close();
  }
  co_await outputs.exclusiveJoin(host.timer.afterDelay(OUTPUT_LIMIT));
  // Descendants that go on writing must not be killed by it: it is read and dropped.
  discarding = true;
  log.end();
  if (acknowledged) log.settle();
  endDone->fulfill();
}

kj::Promise<Outcome> HelperInstance::signal(kj::String name) {
  auto number = signalNumber(name);
  if (number == nullptr) {
    co_return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("there is no signal '", name, "'"))
        .at(kj::str("name"));
  }
  if (stateNow != State::RUNNING) co_return wrongState("the process is not running");
  auto self = kj::addRef(*this);
  co_return co_await KJ_ASSERT_NONNULL(link)->signal(KJ_ASSERT_NONNULL(number));
}

Outcome HelperInstance::resize(uint16_t newColumns, uint16_t newRows) {
  if (stateNow != State::RUNNING) return wrongState("the process is not running");
  if (!hasTerminal) return Problem(ErrorCode::UNSUPPORTED, kj::str("it has no terminal"));
  if (!resizePty(terminal, newColumns, newRows)) return wrongState("the terminal is gone");
  return nullptr;
}

kj::Promise<Result<ExitRecord>> HelperInstance::wait() {
  auto self = kj::addRef(*this);
  co_await whenEnded.addBranch();
  KJ_IF_MAYBE (problem, failure) {
    co_return problem->clone();
  }
  co_return kj::cp(exit);
}

kj::Promise<void> HelperInstance::whenIdle() {
  co_await whenEnded.addBranch();
  KJ_IF_MAYBE (reaper, link) {
    co_await (*reaper)->onEmpty();
  }
}

kj::Promise<uint32_t> HelperInstance::stop(uint64_t graceMs, bool force) {
  auto self = kj::addRef(*this);
  if (!starting) {
    // It never will be. A second stop has nothing to wait for.
    if (!hasEnded()) {
      fail(Problem(ErrorCode::CANCELLED, kj::str("it was stopped before it was started")));
    }
    co_return 0;
  }
  co_await whenStarted.addBranch();
  KJ_IF_MAYBE (reaper, link) {
    co_return co_await (*reaper)->stop(graceMs == 0 ? stopGraceMs : graceMs, force);
  }
  co_return 0;
}

kj::Maybe<StdinBuffer&> HelperInstance::input() {
  if (stateNow != State::RUNNING) return nullptr;
  KJ_IF_MAYBE (buffer, stdinBuffer) {
    return **buffer;
  }
  return nullptr;
}

}  // namespace capstan
