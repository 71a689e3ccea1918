#include "real/daemon.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan::test {

namespace {

constexpr kj::Duration LOOK_AGAIN = 10 * kj::MILLISECONDS;

// The children of a process as descriptors, so that no other process can be meant later.
kj::Vector<kj::AutoCloseFd> childrenOf(pid_t parent) {
  kj::Vector<kj::AutoCloseFd> found;
  std::istringstream pids(contentOf(kj::str("/proc/", parent, "/task/", parent, "/children")));
  for (pid_t pid; pids >> pid;) {
    int fd = syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0) found.add(fd);
  }
  return found;
}

bool signalThrough(int pidfd, int number) {
  return syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0) == 0;
}

}  // namespace

kj::StringPtr setting(const char* name) {
  const char* value = std::getenv(name);
  KJ_REQUIRE(value != nullptr, "run this through Meson: a variable is not set", name);
  return value;
}

Child::Child(kj::ArrayPtr<const kj::StringPtr> words, kj::ArrayPtr<const kj::String> variables,
             Streams streams) {
  std::vector<char*> argv, envp;
  for (auto word: words)
    argv.push_back(const_cast<char*>(word.cStr()));
  for (auto& variable: variables)
    envp.push_back(const_cast<char*>(variable.cStr()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  KJ_DEFER(posix_spawn_file_actions_destroy(&actions));
  int number = 0;
  for (int fd: {streams.in, streams.out, streams.err}) {
    if (fd < 0) {
      posix_spawn_file_actions_addopen(&actions, number, "/dev/null", O_RDWR, 0);
    } else {
      posix_spawn_file_actions_adddup2(&actions, fd, number);
    }
    ++number;
  }
  // kj ignores SIGPIPE in this process; a program started by hand has it at its default.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  KJ_DEFER(posix_spawnattr_destroy(&attributes));
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  int error = posix_spawnp(&process, argv[0], &actions, &attributes, argv.data(), envp.data());
  KJ_REQUIRE(error == 0, "cannot start", argv[0], error);
}

Child::~Child() noexcept(false) {
  if (status != nullptr) return;
  ::kill(-process, SIGKILL);
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Child::signal(int number) {
  if (status == nullptr) ::kill(-process, number);
}

kj::Maybe<int> Child::ends(IoLoop& loop, kj::Duration limit) {
  auto deadline = loop.timer.now() + limit;
  while (status == nullptr) {
    int seen;
    if (waitpid(process, &seen, WNOHANG) == process) {
      status = seen;
      break;
    }
    if (loop.timer.now() > deadline) break;
    loop.timer.afterDelay(LOOK_AGAIN).wait(loop.waitScope);
  }
  return status;
}

kj::Vector<kj::String> plainVariables(kj::StringPtr home) {
  kj::Vector<kj::String> variables;
  variables.add(kj::str("PATH=", setting("PATH")));
  variables.add(kj::str("HOME=", home));
  variables.add(kj::str("LANG=C.UTF-8"));
  return variables;
}

Daemon::Daemon(IoLoop& loop, kj::StringPtr home): loop(loop) {
  auto socket = directory / "socket", state = directory / "state", log = directory / "log";
  auto variables = plainVariables(home);
  variables.add(kj::str("XDG_RUNTIME_DIR=", directory.path()));
  int fd;
  KJ_SYSCALL(fd = open(log.cStr(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  kj::AutoCloseFd logFile(fd);
  Child::Streams streams;
  streams.err = fd;
  process =
      kj::heap<Child>(kj::arr(setting("CAPSTAND"), "--socket"_kj, socket.asPtr(), "--state-dir"_kj,
                              state.asPtr(), "--agentctl-dir"_kj, setting("AGENTCTL_DIR")),
                      variables, streams);
}

Daemon::~Daemon() noexcept(false) {
  // The helper outlives a daemon by design; this one has nobody to come back to.
  auto helpers = childrenOf(process->pid());
  connection = nullptr;
  process->signal(SIGTERM);
  bool clean = false;
  KJ_IF_MAYBE (status, process->ends(loop)) {
    clean = WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  }
  for (auto& helper: helpers)
    signalThrough(helper, SIGTERM);
  auto deadline = loop.timer.now() + 5 * kj::SECONDS;
  for (auto& helper: helpers) {
    while (signalThrough(helper, 0) && loop.timer.now() < deadline)
      loop.timer.afterDelay(LOOK_AGAIN).wait(loop.waitScope);
    signalThrough(helper, SIGKILL);
  }
  if (!clean) UNSCOPED_INFO("the daemon's log:\n" << contentOf(directory / "log"));
  CHECK(clean);
}

ClientConnection& Daemon::connect() {
  KJ_IF_MAYBE (present, connection) {
    return **present;
  }
  auto socket = directory / "socket";
  auto deadline = loop.timer.now() + 20 * kj::SECONDS;
  while (access(socket.cStr(), F_OK) != 0 && loop.timer.now() < deadline &&
         process->ends(loop, 0 * kj::SECONDS) == nullptr) {
    loop.timer.afterDelay(LOOK_AGAIN).wait(loop.waitScope);
  }
  INFO("the daemon's log:\n" << contentOf(directory / "log"));
  REQUIRE(access(socket.cStr(), F_OK) == 0);
  return *connection.emplace(await(loop, ClientConnection::connectUnix(loop.io, kj::mv(socket))));
}

rpc::TaskEnvironment::Client Daemon::environment(kj::StringPtr taskId) {
  return awaitResult(loop, ensureEnvironment(connect().supervisor(), kj::str(taskId)));
}

DirectProcess::DirectProcess(IoLoop& loop, kj::ArrayPtr<const kj::StringPtr> words,
                             kj::StringPtr home) {
  int toChild[2], fromChild[2], errors;
  KJ_SYSCALL(pipe2(toChild, O_CLOEXEC));
  kj::AutoCloseFd childIn(toChild[0]), ownOut(toChild[1]);
  KJ_SYSCALL(pipe2(fromChild, O_CLOEXEC));
  kj::AutoCloseFd ownIn(fromChild[0]), childOut(fromChild[1]);
  KJ_SYSCALL(errors = open((directory / "stderr").cStr(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  kj::AutoCloseFd childErr(errors);
  process = kj::heap<Child>(words, plainVariables(home), Child::Streams{childIn, childOut, errors});
  in = loop.io.lowLevelProvider->wrapOutputFd(kj::mv(ownOut));
  out = loop.io.lowLevelProvider->wrapInputFd(kj::mv(ownIn));
}

std::string DirectProcess::errors() const { return contentOf(directory / "stderr"); }

kj::Promise<std::string> converse(kj::AsyncOutputStream& in, kj::AsyncInputStream& out,
                                  std::vector<Step> steps) {
  std::string all;
  size_t lineBegin = 0;  // The first line that no step has looked at.
  auto buffer = kj::heapArray<char>(65'536);
  for (auto& step: steps) {
    if (!step.say.empty()) {
      auto line = step.say + "\n";
      co_await in.write(line.data(), line.size());
    }
    for (bool found = step.await.empty(); !found;) {
      auto lineEnd = all.find('\n', lineBegin);
      if (lineEnd == std::string::npos) {
        auto n = co_await out.tryRead(buffer.begin(), 1, buffer.size());
        KJ_REQUIRE(n > 0, "the output ended before this came", step.await.c_str(), all.c_str());
        all.append(buffer.begin(), n);
        continue;
      }
      auto at = all.find(step.await, lineBegin);
      found = at < lineEnd;
      lineBegin = lineEnd + 1;
    }
  }
  co_return kj::mv(all);
}

std::string contentOf(kj::StringPtr path) {
  std::ifstream file(path.cStr(), std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace capstan::test
