#include "client/auto-start.h"

#include "base/async.h"
#include "client/paths.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace capstan {

namespace {

constexpr kj::Duration LOOK_AGAIN = 20 * kj::MILLISECONDS;
// Between two tries while another daemon has the state and does not listen: it starts or ends.
constexpr kj::Duration START_AGAIN = 250 * kj::MILLISECONDS;

using Connected = Result<kj::Own<ClientConnection>>;

kj::Maybe<Problem> checkOwner(kj::AsyncIoStream& stream, kj::StringPtr socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  int fd = KJ_REQUIRE_NONNULL(stream.getFd(), "a unix socket has a descriptor");
  KJ_SYSCALL(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size));
  if (peer.uid == geteuid() || peer.uid == 0) return nullptr;
  return Problem(ErrorCode::DENIED, kj::str("the daemon at ", socket, " is user ", peer.uid, "'s"))
      .advise(kj::str("if you mean that one, name it with --socket; else remove the file"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

kj::Promise<kj::Maybe<Connected>> tryConnect(kj::AsyncIoContext& io, kj::String socket,
                                             AutoStart::Owner owner) {
  kj::Maybe<kj::Exception> failure;
  try {
    auto address = co_await io.provider->getNetwork().parseAddress(kj::str("unix:", socket));
    auto stream = co_await address->connect();
    if (owner == AutoStart::Owner::US_OR_ROOT) {
      KJ_IF_MAYBE (problem, checkOwner(*stream, socket)) {
        co_return Connected(kj::mv(*problem));
      }
    }
    co_return Connected(ClientConnection::over(io.provider->getTimer(), kj::mv(stream)));
  } catch (const kj::Exception& e) {
    failure = kj::Exception(e);
  }
  // Nobody there, or a socket file that nobody listens on any more.
  co_return nullptr;
}

// Starts the daemon in a session of its own; it outlives us. Its standard error goes to
// `errorPipe` until it has its own log. Returns errno, 0 = fine.
int spawnDaemon(const AutoStart& options, int errorPipe, pid_t& pid) {
  kj::Vector<kj::String> words;
  words.add(kj::str(options.daemon));
  words.add(kj::str("--socket"));
  words.add(kj::str(options.socket));
  words.add(kj::str("--auto-started"));
  KJ_IF_MAYBE (directory, options.stateDirectory) {
    words.add(kj::str("--state-dir"));
    words.add(kj::str(*directory));
  }
  kj::Vector<char*> argv;
  for (auto& word: words)
    argv.add(word.begin());
  argv.add(nullptr);
  // An access token is the client's: the daemon must not inherit it.
  kj::Vector<char*> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::strncmp(*each, "CAPSTAN_TOKEN=", 14) != 0) variables.add(*each);
  }
  variables.add(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  KJ_DEFER(posix_spawn_file_actions_destroy(&actions));
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errorPipe, 2);
  // It outlives us: it must hold neither our caller's descriptors nor our folder.
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawn_file_actions_addchdir_np(&actions, "/");
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  KJ_DEFER(posix_spawnattr_destroy(&attributes));
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  return posix_spawn(&pid, options.daemon.cStr(), &actions, &attributes, argv.begin(),
                     variables.begin());
}

// What the daemon said before it gave up; empty while it lives.
kj::String lastWords(int fd) {
  char buffer[4096];
  ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n <= 0) return kj::String();
  while (n > 0 && (buffer[n - 1] == '\n' || buffer[n - 1] == ' '))
    --n;
  return kj::heapString(buffer, n);
}

}  // namespace

kj::Promise<Result<kj::Own<ClientConnection>>> connectOrStart(kj::AsyncIoContext& io,
                                                              AutoStart options) {
  KJ_IF_MAYBE (connection, co_await tryConnect(io, kj::str(options.socket), options.owner)) {
    co_return kj::mv(*connection);
  }

  auto& timer = io.provider->getTimer();
  auto deadline = Deadline::after(timer, options.patience);
  kj::AutoCloseFd errors;
  pid_t pid = 0;  // 0 = none of ours runs
  auto startAt = timer.now();
  kj::String words;
  bool failed = false;
  while (!failed && !deadline.passed(timer.now())) {
    if (pid == 0 && timer.now() >= startAt) {
      int fds[2];
      KJ_SYSCALL(pipe2(fds, O_CLOEXEC | O_NONBLOCK));
      errors = kj::AutoCloseFd(fds[0]);
      kj::AutoCloseFd errorsIn(fds[1]);
      if (int error = spawnDaemon(options, errorsIn, pid); error != 0) {
        co_return Problem(ErrorCode::UNREACHABLE,
                          kj::str("cannot start the daemon ", options.daemon))
            .because(kj::str(strerror(error)))
            .advise(kj::str("install capstand beside capstan, or start one and pass --socket"))
            .retryable(RetryHint::AFTER_USER_ACTION);
      }
    }
    KJ_IF_MAYBE (connection, co_await tryConnect(io, kj::str(options.socket), options.owner)) {
      co_return kj::mv(*connection);
    }
    int status;
    if (pid != 0 && waitpid(pid, &status, WNOHANG) == pid) {
      pid = 0;
      words = lastWords(errors.get());
      startAt = timer.now() + START_AGAIN;
      failed = !WIFEXITED(status) || WEXITSTATUS(status) != DAEMON_GAVE_WAY;
    }
    // The socket's appearance has no event that would also cover a folder not made yet.
    if (!failed) co_await timer.afterDelay(LOOK_AGAIN);
  }
  auto problem = Problem(ErrorCode::UNREACHABLE,
                         failed ? kj::str("the daemon for ", options.socket, " did not start")
                                : kj::str("no daemon answers at ", options.socket, " within ",
                                          options.patience / kj::SECONDS, " s"))
                     .advise(kj::str("start it by hand to see why: ", options.daemon))
                     .retryable(RetryHint::AFTER_USER_ACTION);
  if (words.size() > 0) problem.cause = kj::mv(words);
  co_return kj::mv(problem);
}

}  // namespace capstan
