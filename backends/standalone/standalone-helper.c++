// The one helper of all environments on this machine: found, started, forgotten.
#include "backends/standalone/standalone-backend.h"
#include "base/encoding.h"
#include "base/unix-socket.h"
#include "domain/takeover.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr size_t NONCE_BYTES = 32;
constexpr size_t ADDRESS_LINE_BYTES = 4096;
// A helper whose process is not known may have been started a moment before its daemon was killed.
constexpr kj::Duration COMES_UP = 3 * kj::SECONDS;
constexpr kj::Duration LOOK_AGAIN = 200 * kj::MILLISECONDS;
// A kill takes a moment, too.
constexpr kj::Duration KILL_TIME = 2 * kj::SECONDS;
constexpr int NONCE_FD = 3;

// Reads one line; rejects as disconnected when the stream ends before.
kj::Promise<kj::String> readLine(kj::Own<kj::AsyncInputStream> from) {
  kj::Vector<char> line;
  for (;;) {
    char buffer[512];
    size_t n = co_await from->tryRead(buffer, 1, sizeof(buffer));
    for (char c: kj::arrayPtr(buffer, n)) {
      if (c == '\n') co_return kj::heapString(line.asPtr());
      line.add(c);
    }
    if (n == 0) {
      kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "the helper ended before it listened"));
    }
    KJ_REQUIRE(line.size() <= ADDRESS_LINE_BYTES, "the helper's first line has no end");
  }
}

struct Pipe {
  kj::AutoCloseFd read;
  kj::AutoCloseFd write;
};
Pipe makePipe() {
  int fds[2];
  KJ_SYSCALL(pipe2(fds, O_CLOEXEC));
  return Pipe{kj::AutoCloseFd(fds[0]), kj::AutoCloseFd(fds[1])};
}

// A file that a helper and its reapers hold locked as long as they live, and no agent does.
kj::String lifelineOf(const HelperEntry& entry) { return kj::str(entry.endpoint, ".lock"); }

Problem lifelineProblem(kj::StringPtr path) {
  return Problem(ErrorCode::INTERNAL, kj::str("cannot lock ", path))
      .because(kj::str(strerror(errno)))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

void removeFiles(const HelperEntry& entry) {
  unlink(entry.endpoint.cStr());
  unlink(lifelineOf(entry).cStr());
}

}  // namespace

kj::Promise<Outcome> StandaloneBackend::ensureHelper() {
  KJ_IF_MAYBE (present, helper) {
    if (present->running()) co_return nullptr;
  }
  co_await starting.run([this]() { return helperWork.with([this]() { return startHelper(); }); });
  KJ_IF_MAYBE (problem, startFailure) {
    co_return problem->clone();
  }
  co_return nullptr;
}

kj::Promise<void> StandaloneBackend::startHelper() {
  startFailure = co_await findHelpers();
  if (startFailure != nullptr || helper != nullptr) co_return;
  auto found = files.find(HelperFiles::ownPlatform());
  if (found.is<Problem>()) {
    startFailure = kj::mv(found.get<Problem>());
    co_return;
  }
  auto executable = kj::mv(found.get<HelperFile>().path);
  startFailure = co_await launchHelper(kj::mv(executable));
}

// ---- those that are there

kj::Promise<Outcome> StandaloneBackend::refreshHelpers() {
  Outcome outcome = nullptr;
  co_await helperWork.with([this, &outcome]() {
    return findHelpers().then([&outcome](Outcome&& found) { outcome = kj::mv(found); });
  });
  co_return kj::mv(outcome);
}

kj::Promise<Outcome> StandaloneBackend::findHelpers() {
  KJ_IF_MAYBE (present, helper) {
    if (!present->running()) helper = nullptr;
  }
  if (helper != nullptr && otherHelpers.size() == 0) co_return nullptr;
  auto known = co_await book.current();
  if (known.is<Problem>()) co_return kj::mv(known.get<Problem>());
  auto older = co_await book.draining();
  if (older.is<Problem>()) co_return kj::mv(older.get<Problem>());
  kj::HashMap<kj::String, Problem> others;
  for (auto& entry: older.get<kj::Vector<HelperEntry>>()) {
    auto name = kj::str(entry.name);
    KJ_IF_MAYBE (problem, co_await examine(kj::mv(entry), Role::DRAINING)) {
      others.insert(kj::mv(name), kj::mv(*problem));
    }
  }
  if (helper == nullptr && known.get<kj::Maybe<HelperEntry>>() != nullptr) {
    auto entry = kj::mv(KJ_ASSERT_NONNULL(known.get<kj::Maybe<HelperEntry>>()));
    auto name = kj::str(entry.name);
    KJ_IF_MAYBE (problem, co_await examine(kj::mv(entry), Role::CURRENT)) {
      if (problem->upstreamCode != takeover::CREDENTIAL_UNAVAILABLE) co_return kj::mv(*problem);
      // It is left alone, with what runs under it; new work goes to a new one.
      if (otherHelpers.find(name) == nullptr) {
        KJ_LOG(ERROR, "a helper cannot be taken over", *problem);
      }
      others.insert(kj::mv(name), kj::mv(*problem));
    }
  }
  otherHelpers = kj::mv(others);
  co_return nullptr;
}

kj::Promise<Outcome> StandaloneBackend::examine(HelperEntry entry, Role role) {
  // Whether it lives comes first: what opens a dead one is of no interest.
  auto located = co_await locate(kj::str(entry.endpoint),
                                 ProcessName{entry.pid, entry.startTicks, kj::str(entry.bootId)});
  if (located.is<Problem>()) co_return kj::mv(located.get<Problem>());
  KJ_IF_MAYBE (process, located.get<kj::Maybe<kj::Own<WatchedProcess>>>()) {
    if (role == Role::DRAINING || entry.credential == nullptr) {
      co_return outOfReach(entry, (*process)->pid());
    }
    KJ_LOG(INFO, "helper of an earlier daemon found", (*process)->pid(), entry.endpoint);
    helper = Helper{kj::mv(entry), nullptr, kj::mv(*process)};
    co_return nullptr;
  }
  co_return co_await forgetHelper(kj::mv(entry));
}

Problem StandaloneBackend::outOfReach(const HelperEntry& entry, int64_t pid) const {
  Problem problem(ErrorCode::RUNTIME_UNAVAILABLE,
                  kj::str("the helper ", entry.name, ", process ", pid, ", cannot be taken over"));
  KJ_IF_MAYBE (why, entry.locked) {
    return kj::mv(problem)
        .because(kj::str(*why))
        .advise(kj::str("restore secret.key in ", options.stateDirectory, ", or end process ", pid,
                        " and with it what runs under it"))
        .from("agentctl", kj::str(takeover::CREDENTIAL_UNAVAILABLE))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  return kj::mv(problem)
      .because(kj::str("another one has taken its place, and what runs under it goes on"))
      .advise(kj::str("wait until that has ended, or end process ", pid, " and with it that"))
      .from("agentctl", kj::String())
      .retryable(RetryHint::AFTER_USER_ACTION);
}

kj::Promise<Result<kj::Maybe<kj::Own<WatchedProcess>>>> StandaloneBackend::locate(
    kj::String endpoint, ProcessName name) {
  if (name.pid != 0) co_return WatchedProcess::find(io.unixEventPort, name);
  // Its daemon was killed before it could write down which process it is: whoever listens there
  // is. Only its user can have made the socket, and it must prove itself later.
  auto& timer = io.provider->getTimer();
  auto until = timer.now() + COMES_UP;
  for (;;) {
    KJ_IF_MAYBE (pid, listenerOf(endpoint)) {
      auto named = nameOfProcess(*pid);
      if (named.is<Problem>()) co_return kj::mv(named.get<Problem>());
      KJ_IF_MAYBE (found, named.get<kj::Maybe<ProcessName>>()) {
        co_return WatchedProcess::find(io.unixEventPort, *found);
      }
    }
    if (timer.now() >= until) co_return kj::Maybe<kj::Own<WatchedProcess>>(nullptr);
    co_await timer.afterDelay(LOOK_AGAIN);
  }
}

kj::Promise<Outcome> StandaloneBackend::forgetHelper(HelperEntry entry) {
  // Its reapers end its runs: before that, nothing may begin in the same workspaces.
  KJ_IF_MAYBE (problem, co_await awaitReapers(lifelineOf(entry))) {
    co_return kj::mv(*problem);
  }
  KJ_LOG(INFO, "the helper is gone", entry.pid, entry.endpoint);
  // One that was killed leaves its files.
  removeFiles(entry);
  co_return co_await book.remove(kj::mv(entry.name));
}

kj::Promise<Outcome> StandaloneBackend::awaitReapers(kj::String lifeline) {
  int fd = open(lifeline.cStr(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) co_return nullptr;
    co_return lifelineProblem(lifeline);
  }
  kj::AutoCloseFd closing(fd);
  auto& timer = io.provider->getTimer();
  auto until = timer.now() + options.stopGrace + KILL_TIME;
  for (;;) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) co_return nullptr;
    if (errno != EWOULDBLOCK && errno != EINTR) co_return lifelineProblem(lifeline);
    if (timer.now() >= until) {
      // Only what nobody may kill is left, and agents may be.
      KJ_LOG(ERROR, "some process of a helper that died does not end", lifeline);
      co_return nullptr;
    }
    co_await timer.afterDelay(LOOK_AGAIN);
  }
}

// ---- a new one

kj::Promise<Outcome> StandaloneBackend::launchHelper(kj::String executable) {
  kj::FixedArray<kj::byte, 8> random;
  entropy.fill(random);
  auto nonce = kj::heapArray<kj::byte>(NONCE_BYTES);
  entropy.fill(nonce);
  Credential credential(Credential::Kind::NONCE, kj::mv(nonce));
  auto name = encodeHex(random);
  auto newEntry = [&]() {
    return HelperEntry{kj::str(name),
                       kj::str(options.runtimeDirectory, "/agentctl-", name, ".sock"),
                       0,
                       0,
                       kj::String(),
                       nullptr,
                       credential.clone(),
                       0,
                       kj::str(options.stateDirectory, "/agentctl.log"),
                       nullptr};
  };
  // Before it exists, so that none is ever lost.
  KJ_IF_MAYBE (problem, co_await book.add(newEntry())) {
    co_return kj::mv(*problem);
  }
  auto spawned = spawnHelper(kj::mv(executable), newEntry());
  auto outcome = spawned.is<Problem>() ? Outcome(kj::mv(spawned.get<Problem>())) : nullptr;
  if (outcome == nullptr) {
    auto& launched = spawned.get<Launched>();
    outcome = co_await awaitHelper(kj::mv(launched.process), kj::mv(launched.address), newEntry());
  }
  if (outcome != nullptr) {
    removeFiles(newEntry());
    KJ_IF_MAYBE (problem, co_await book.remove(kj::mv(name))) {
      KJ_LOG(WARNING, "a helper that did not come up stays written down", *problem);
    }
  }
  co_return kj::mv(outcome);
}

Result<StandaloneBackend::Launched> StandaloneBackend::spawnHelper(kj::String executable,
                                                                   HelperEntry entry) {
  auto secret = makePipe();
  auto address = makePipe();
  // Fits the pipe's buffer, so it never waits.
  auto key = KJ_ASSERT_NONNULL(entry.credential).key();
  kj::FdOutputStream(secret.write.get()).write(key.begin(), key.size());
  secret.write = nullptr;

  ChildOptions child;
  child.argv = kj::arr(kj::mv(executable), kj::str("serve"), kj::str("--socket"),
                       kj::str(entry.endpoint), kj::str("--nonce-fd"), kj::str(NONCE_FD),
                       kj::str("--lifeline"), lifelineOf(entry), kj::str("--unowned-period"),
                       kj::str(options.unowned / kj::SECONDS), kj::str("--idle-period"),
                       kj::str(options.idle / kj::SECONDS), kj::str("--agent-descriptors"),
                       kj::str(options.agentDescriptors), kj::str("--log"), kj::str(entry.logPath));
  child.environment = kj::Array<kj::String>();
  child.directory = kj::str("/");
  child.descriptors = kj::arr(ChildOptions::Descriptor{1, address.write.get()},
                              ChildOptions::Descriptor{NONCE_FD, secret.read.get()});
  child.session = ChildOptions::Session::OWN;
  child.onDrop = ChildOptions::OnDrop::LEAVE;
  auto spawned = Child::spawn(uv, kj::mv(child));
  if (spawned.is<Problem>()) return kj::mv(spawned.get<Problem>());
  return Launched{kj::mv(spawned.get<kj::Own<Child>>()), kj::mv(address.read)};
}

kj::Promise<Outcome> StandaloneBackend::awaitHelper(kj::Own<Child> process, kj::AutoCloseFd address,
                                                    HelperEntry entry) {
  // It has nothing of anybody's yet: a start that fails or is dropped takes it back.
  bool taken = false;
  KJ_DEFER({
    if (!taken) {
      process->signal(SIGKILL, Child::To::GROUP);
      removeFiles(entry);
    }
  });
  auto explain = [&](kj::StringPtr cause) {
    return Problem(ErrorCode::RUNTIME_UNAVAILABLE, kj::str("the helper did not come up"))
        .because(kj::str(cause))
        .advise(kj::str("see ", entry.logPath))
        .from("agentctl", kj::String())
        .retryable(RetryHint::SAME_REQUEST_LATER);
  };
  auto line = readLine(io.lowLevelProvider->wrapInputFd(kj::mv(address)))
                  .then([](kj::String&& text) -> kj::Maybe<kj::String> { return kj::mv(text); },
                        [](kj::Exception&&) -> kj::Maybe<kj::String> { return nullptr; });
  kj::Maybe<kj::String> said;
  auto waited =
      co_await within(io.provider->getTimer(), options.helperStart,
                      line.then([&said](kj::Maybe<kj::String>&& text) { said = kj::mv(text); }));
  if (waited == Waited::TOO_LATE) co_return explain("it did not say that it listens");
  if (said == nullptr) co_return explain("it ended at once");
  auto named = nameOfProcess(process->pid());
  if (named.is<Problem>()) co_return kj::mv(named.get<Problem>());
  KJ_IF_MAYBE (self, named.get<kj::Maybe<ProcessName>>()) {
    entry.pid = self->pid;
    entry.startTicks = self->startTicks;
    entry.bootId = kj::mv(self->bootId);
  } else {
    co_return explain("it ended at once");
  }
  KJ_IF_MAYBE (problem, co_await book.started(kj::str(entry.name), entry.pid, entry.startTicks,
                                              kj::str(entry.bootId))) {
    co_return kj::mv(*problem);
  }
  taken = true;
  KJ_LOG(INFO, "helper started", process->pid(), entry.endpoint);
  helper = Helper{kj::mv(entry), kj::mv(process), nullptr};
  co_return nullptr;
}

}  // namespace capstan
