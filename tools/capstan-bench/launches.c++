#include "client/launch.h"
#include "tools/capstan-bench/bare-sqlite.h"
#include "tools/capstan-bench/bench.h"

#include <kj/debug.h>
#include <kj/vector.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace capstan::bench {

namespace {

// Of each process, so that neither a cold cache nor a first connection counts.
constexpr uint32_t WARM = 3;

// What a new environment may cost beside the launch.
constexpr uint32_t COMMITS_OF_A_PLACE = 8;

template <typename T>
T orThrow(Result<T> result) {
  if (result.template is<Problem>()) {
    KJ_FAIL_REQUIRE("a call failed", result.template get<Problem>());
  }
  return kj::mv(result.template get<T>());
}

void printTimes(kj::Vector<uint64_t>& times) {
  std::sort(times.begin(), times.end());
  std::printf("{\"p50\": %.3f, \"p90\": %.3f}\n", times[times.size() / 2] / 1e3,
              times[times.size() * 9 / 10] / 1e3);
}

// From the call until its exit is known.
void launchTrue(kj::AsyncIoContext& io, rpc::TaskEnvironment::Client environment) {
  auto launched = orThrow(launch(kj::mv(environment), Command{"true"_kj}).wait(io.waitScope));
  auto exit = orThrow(exitOf(launched.run).wait(io.waitScope));
  KJ_REQUIRE(exit.succeeded(), exit);
}

// The same without Capstan: its stdout is read to the end, its exit waited for.
void forkTrue() {
  int ends[2];
  KJ_SYSCALL(pipe2(ends, O_CLOEXEC));
  kj::AutoCloseFd from(ends[0]), to(ends[1]);
  pid_t child;
  KJ_SYSCALL(child = fork());
  if (child == 0) {
    dup2(to, STDOUT_FILENO);
    execlp("true", "true", static_cast<char*>(nullptr));
    _exit(127);
  }
  to = nullptr;
  char octets[512];
  ssize_t n;
  do {
    KJ_SYSCALL(n = read(from, octets, sizeof(octets)));
  } while (n > 0);
  int status;
  KJ_SYSCALL(waitpid(child, &status, 0));
  KJ_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, status);
}

// A fork copies the page tables, so the peer is made as large as the daemon.
kj::Array<kj::byte> growToSizeOf(pid_t other) {
  auto wanted = residentOctets(other);
  auto own = residentOctets(getpid());
  auto ballast = kj::heapArray<kj::byte>(wanted > own ? wanted - own : 1);
  std::memset(ballast.begin(), 1, ballast.size());
  return ballast;
}

kj::Vector<uint64_t> timesOf(uint32_t count, kj::Function<void()> work) {
  for (uint32_t i = 0; i < WARM; ++i)
    work();
  kj::Vector<uint64_t> times(count);
  for (uint32_t i = 0; i < count; ++i) {
    auto begin = nowNs();
    work();
    times.add(nowNs() - begin);
  }
  return times;
}

}  // namespace

void measureLaunch(Side side, kj::StringPtr socket, uint32_t count) {
  if (side == Side::PEER) {
    auto ballast = growToSizeOf(daemonOf(socket));
    auto times = timesOf(count, forkTrue);
    printTimes(times);
    return;
  }
  auto io = kj::setupAsyncIo();
  OwnEnvironment own(io, socket);
  auto times = timesOf(count, [&]() { launchTrue(io, own.get()); });
  own.remove();
  printTimes(times);
}

void measureLaunchNew(Side side, kj::StringPtr socket, uint32_t count) {
  auto io = kj::setupAsyncIo();
  if (side == Side::PEER) {
    OwnEnvironment own(io, socket);
    BareSqlite bare(folderOf(socket));
    auto times = timesOf(count, [&]() {
      launchTrue(io, own.get());
      for (uint32_t i = 0; i < COMMITS_OF_A_PLACE; ++i)
        bare.commit();
    });
    own.remove();
    printTimes(times);
    return;
  }
  auto connection = ClientConnection::connectUnix(io, kj::str(socket)).wait(io.waitScope);
  kj::Vector<uint64_t> times(count);
  for (uint32_t i = 0; i < count + WARM; ++i) {
    auto task = kj::str("bench-", getpid(), '-', i);
    auto begin = nowNs();
    auto environment =
        orThrow(ensureEnvironment(connection->supervisor(), kj::mv(task)).wait(io.waitScope));
    launchTrue(io, environment);
    if (i >= WARM) times.add(nowNs() - begin);
    removeEnvironment(io, environment);
  }
  printTimes(times);
}

}  // namespace capstan::bench
