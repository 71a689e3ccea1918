// What only a real file system shows: one that is full.

#include "backends/standalone/standalone-backend.h"
#include "conformance/backend/memory-book.h"
#include "conformance/backend/memory-log.h"
#include "support/local-helper.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan::test {

namespace {

// A file system in memory with room for `files` files; gone at its end.
class SmallDisk {
public:
  SmallDisk(kj::StringPtr path, int files): path(kj::str(path)) {
    auto options = kj::str("size=1m,mode=0700,nr_inodes=", files);
    mounted = mount("tmpfs", this->path.cStr(), "tmpfs", 0, options.cStr()) == 0;
    if (!mounted) why = errno;
  }
  ~SmallDisk() noexcept(false) {
    if (mounted) umount2(path.cStr(), MNT_DETACH);
  }
  KJ_DISALLOW_COPY_AND_MOVE(SmallDisk);

  void enlarge() {
    KJ_SYSCALL(mount("tmpfs", path.cStr(), "tmpfs", MS_REMOUNT, "size=1m,nr_inodes=1000"));
  }
  bool mounted;
  int why = 0;

private:
  kj::String path;
};

}  // namespace

TEST_CASE("standalone: a full disk leaves nothing unnoted, and heals") {
  LogWatch logs;
  TempDir folder, runtime;
  int refused = 0;
  for (int files = 2;; ++files) {
    INFO("room for " << files << " files");
    REQUIRE(files < 100);
    SmallDisk disk(folder.path(), files);
    if (!disk.mounted) SKIP("no file system can be mounted here: " << strerror(disk.why));
    REQUIRE(mkdir((folder / "environments").cStr(), 0700) == 0);
    IoLoop loop;
    UvLoop uv(loop.io.unixEventPort);
    Offload offload(uv);
    SystemEntropy entropy;
    auto program = builtAgentctl();
    auto tools = std::filesystem::path(program.cStr()).parent_path();
    auto helpers = HelperFiles::ofInstallation(kj::StringPtr(tools.c_str()), nullptr, "/nowhere/x");
    StandaloneOptions options;
    options.stateDirectory = kj::str(folder.path());
    options.runtimeDirectory = kj::str(runtime.path());
    MemoryBook book;
    StandaloneBackend backend(loop.io, uv, offload, helpers, entropy, book, kj::mv(options));
    MemoryLog log;
    StepList steps;
    auto create = [&]() {
      CreateRequest request;
      request.place.environmentId = kj::str("env-full");
      request.place.inventory = log.clone();
      return loop.timer
          .timeoutAfter(30 * kj::SECONDS, backend.createInstance(kj::mv(request), steps, log))
          .wait(loop.waitScope);
    };
    auto entries = [&]() {
      size_t count = 0;
      for (auto& each: std::filesystem::directory_iterator((folder / "environments").cStr())) {
        (void)each;
        ++count;
      }
      return count;
    };
    auto result = create();
    bool placed = entries() > 0;
    KJ_IF_MAYBE (problem, result.tryGet<Problem>()) {
      CHECK(problem->code ==
            (placed ? ErrorCode::RUNTIME_UNAVAILABLE : ErrorCode::RESOURCE_EXHAUSTED));
      CHECK(log.items().size() == (placed ? 1 : 0));
      ++refused;
    }
    bool enough = result.is<kj::Own<Attachment>>();
    disk.enlarge();
    CHECK(create().is<kj::Own<Attachment>>());
    CHECK(entries() == 1);
    for (auto& each: book.entries())
      ::kill(static_cast<pid_t>(each.pid), SIGKILL);
    if (enough) break;
  }
  CHECK(refused > 0);
}

}  // namespace capstan::test
