// The removal of an environment's folder, whatever stands in it and wherever it is interrupted.

#include "backends/standalone/place.h"
#include "support/test.h"

#include <kj/debug.h>
#include <kj/function.h>
#include <kj/io.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace capstan::test {

namespace {

namespace fs = std::filesystem;

constexpr uid_t NOBODY = 65534;
constexpr int FINE = 0, LEFT = 1, NOT_MADE = 2, NOT_ALLOWED = 3;

PlaceFolder folderIn(const TempDir& parent) {
  return PlaceFolder{parent / "env-place", kj::str("0123456789abcdef")};
}
kj::String unfinished(const PlaceFolder& folder) { return kj::str(folder.path, '.', folder.mark); }

void write(const fs::path& path) {
  std::ofstream file(path);
  file << "precious\n";
  KJ_REQUIRE(file.good(), path.c_str());
}

// A place with files, a folder in a folder, and a link to `outside`.
void fillPlace(const PlaceFolder& folder, kj::StringPtr outside) {
  KJ_IF_MAYBE (problem, makePlace(folder.clone())) {
    FAIL(kj::str(*problem).cStr());
  }
  auto workspace = fs::path(folder.path.cStr()) / "workspace";
  fs::create_directories(workspace / "deep" / "deeper");
  write(workspace / "file");
  write(workspace / "deep" / "deeper" / "file");
  fs::create_directory_symlink(outside.cStr(), workspace / "deep" / "link");
}

void checkNothingLeft(kj::ArrayPtr<const kj::String> lines) {
  for (auto& line: lines)
    FAIL_CHECK(line.cStr());
}

// Runs `body` in a child, under ptrace if it is to be killed at its `stops`-th entry into or return
// from the kernel. Null = it was killed.
kj::Maybe<int> inChild(kj::Function<int()> body, kj::Maybe<size_t> stops) {
  pid_t child = fork();
  KJ_REQUIRE(child >= 0);
  if (child == 0) {
    if (stops != nullptr) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) < 0) _exit(NOT_ALLOWED);
      raise(SIGSTOP);
    }
    _exit(body());
  }
  int status = 0;
  KJ_IF_MAYBE (count, stops) {
    for (size_t i = 0; i <= *count; ++i) {
      KJ_SYSCALL(waitpid(child, &status, 0));
      if (!WIFSTOPPED(status)) break;
      if (i == *count) break;
      KJ_SYSCALL(ptrace(PTRACE_SYSCALL, child, nullptr, nullptr));
    }
    if (WIFSTOPPED(status)) {
      ::kill(child, SIGKILL);
      KJ_SYSCALL(waitpid(child, &status, 0));
    }
  } else {
    KJ_SYSCALL(waitpid(child, &status, 0));
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return nullptr;
}

int removeThere(const PlaceFolder& folder) {
  return removePlace(folder.clone(), false).size() == 0 ? FINE : LEFT;
}

}  // namespace

TEST_CASE("standalone: a removal that was killed anywhere is taken up") {
  TempDir parent, outside;
  write((outside / "file").cStr());
  auto folder = folderIn(parent);
  bool done = false;
  for (size_t stops = 1; !done; ++stops) {
    INFO("killed after " << stops << " stops");
    REQUIRE(stops < 5000);
    fillPlace(folder, outside.path());
    auto exit = inChild([&]() { return removeThere(folder); }, stops);
    KJ_IF_MAYBE (code, exit) {
      if (*code == NOT_ALLOWED) SKIP("no process can be traced here");
      REQUIRE(*code == FINE);
      done = true;
    }
    checkNothingLeft(removePlace(folder.clone(), false));
    REQUIRE_FALSE(fs::exists(folder.path.cStr()));
    REQUIRE_FALSE(fs::exists(unfinished(folder).cStr()));
  }
  CHECK(fs::exists((outside / "file").cStr()));
}

TEST_CASE("standalone: a place that was kept is whole, or lost") {
  TempDir parent;
  auto folder = folderIn(parent);
  CHECK(KJ_ASSERT_NONNULL(checkKept(folder.clone(), true)).code == ErrorCode::WORKSPACE_LOST);
  REQUIRE(makePlace(folder.clone()) == nullptr);
  CHECK(checkKept(folder.clone(), true) == nullptr);
  auto workspace = kj::str(folder.path, "/workspace");
  fs::remove(workspace.cStr());
  auto lost = checkKept(folder.clone(), true);
  CHECK(KJ_ASSERT_NONNULL(lost).code == ErrorCode::WORKSPACE_LOST);
  CHECK_FALSE(fs::exists(workspace.cStr()));
  // Nothing is missed by those who work in a folder of their own.
  CHECK(checkKept(folder.clone(), false) == nullptr);
  write(workspace.cStr());
  CHECK(KJ_ASSERT_NONNULL(checkKept(folder.clone(), true)).code == ErrorCode::WORKSPACE_LOST);
  fs::remove_all(folder.path.cStr());
  fs::create_directory(folder.path.cStr());
  CHECK(KJ_ASSERT_NONNULL(checkKept(folder.clone(), true)).code == ErrorCode::OWNERSHIP_MISMATCH);
}

TEST_CASE("standalone: folders that were made read-only go too") {
  if (geteuid() != 0) SKIP("another user is needed, which only root can become");
  TempDir parent;
  KJ_SYSCALL(chown(parent.path().cStr(), NOBODY, NOBODY));
  auto folder = folderIn(parent);
  auto exit = inChild(
      [&]() {
        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0) return NOT_ALLOWED;
        if (makePlace(folder.clone()) != nullptr) return NOT_MADE;
        auto cache = fs::path(folder.path.cStr()) / "workspace" / "cache";
        fs::create_directories(cache / "module" / "shut");
        write(cache / "module" / "file");
        write(cache / "module" / "shut" / "file");
        if (chmod((cache / "module" / "shut").c_str(), 0) < 0) return NOT_MADE;
        for (auto& path: {cache / "module", cache}) {
          if (chmod(path.c_str(), 0555) < 0) return NOT_MADE;
        }
        return removeThere(folder);
      },
      nullptr);
  REQUIRE(exit != nullptr);
  CHECK(KJ_ASSERT_NONNULL(exit) == FINE);
  CHECK_FALSE(fs::exists(folder.path.cStr()));
  CHECK_FALSE(fs::exists(unfinished(folder).cStr()));
}

TEST_CASE("standalone: what another user shut is reported") {
  if (geteuid() != 0) SKIP("another user is needed, which only root can become");
  TempDir parent;
  KJ_SYSCALL(chown(parent.path().cStr(), NOBODY, NOBODY));
  auto folder = folderIn(parent);
  fillPlace(folder, "/nowhere");
  // The folder and its workspace are the other user's, but for what is deep in it.
  for (auto name: {"", "/workspace", "/runs"})
    KJ_SYSCALL(chown(kj::str(folder.path, name).cStr(), NOBODY, NOBODY));
  auto exit = inChild(
      [&]() {
        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0) return NOT_ALLOWED;
        return removeThere(folder);
      },
      nullptr);
  CHECK(KJ_ASSERT_NONNULL(exit) == LEFT);
  auto rest = fs::path(unfinished(folder).cStr()) / "workspace";
  CHECK(fs::exists(rest / "deep" / "deeper" / "file"));
  CHECK_FALSE(fs::exists(rest / "file"));
  checkNothingLeft(removePlace(folder.clone(), false));
  CHECK_FALSE(fs::exists(unfinished(folder).cStr()));
}

TEST_CASE("standalone: what is mounted in a place is left alone and reported") {
  TempDir parent, outside;
  write((outside / "file").cStr());
  auto folder = folderIn(parent);
  fillPlace(folder, outside.path());
  auto point = kj::str(folder.path, "/workspace/deep/mounted");
  fs::create_directory(point.cStr());
  // Of the same file system, so that its device tells nothing.
  if (mount(outside.path().cStr(), point.cStr(), nullptr, MS_BIND, nullptr) < 0) {
    SKIP("nothing can be mounted here: " << strerror(errno));
  }
  auto left = removePlace(folder.clone(), false);
  auto moved = kj::str(unfinished(folder), "/workspace/deep/mounted");
  REQUIRE(left.size() == 1);
  CHECK(left[0].startsWith(kj::str(moved, ": ")));
  CHECK(fs::exists((outside / "file").cStr()));
  CHECK_FALSE(fs::exists(kj::str(unfinished(folder), "/workspace/file").cStr()));
  CHECK(umount2(fs::exists(moved.cStr()) ? moved.cStr() : point.cStr(), MNT_DETACH) == 0);
  checkNothingLeft(removePlace(folder.clone(), false));
  CHECK_FALSE(fs::exists(unfinished(folder).cStr()));
  CHECK(fs::exists((outside / "file").cStr()));
}

TEST_CASE("standalone: a tree deeper than a path may be long, and a wide one, go") {
  constexpr int DEPTH = 3000, WIDTH = 2500;
  TempDir parent;
  auto folder = folderIn(parent);
  fillPlace(folder, "/nowhere");
  int fd;
  KJ_SYSCALL(fd = open(kj::str(folder.path, "/workspace").cStr(), O_PATH | O_CLOEXEC));
  kj::AutoCloseFd at(fd);
  for (int i = 0; i < WIDTH; ++i)
    KJ_SYSCALL(mkdirat(at, kj::str("wide-", i).cStr(), 0700));
  for (int i = 0; i < DEPTH; ++i) {
    KJ_SYSCALL(mkdirat(at, "down", 0700));
    KJ_SYSCALL(fd = openat(at, "down", O_PATH | O_CLOEXEC));
    at = kj::AutoCloseFd(fd);
  }
  checkNothingLeft(removePlace(folder.clone(), false));
  CHECK_FALSE(fs::exists(folder.path.cStr()));
  CHECK_FALSE(fs::exists(unfinished(folder).cStr()));
}

TEST_CASE("standalone: a kept workspace is ours until it is released") {
  TempDir parent;
  auto folder = folderIn(parent);
  fillPlace(folder, "/nowhere");
  for (int i = 0; i < 2; ++i) {
    checkNothingLeft(removePlace(folder.clone(), true));
    auto looked = lookAtPlace(folder.clone());
    REQUIRE(looked.is<PlaceState>());
    CHECK(looked.get<PlaceState>() == PlaceState::OURS);
    CHECK_FALSE(fs::exists(kj::str(folder.path, "/runs").cStr()));
    CHECK(fs::exists(kj::str(folder.path, "/workspace/file").cStr()));
  }
  for (int i = 0; i < 2; ++i)
    CHECK(releasePlace(folder.clone()) == nullptr);
  auto looked = lookAtPlace(folder.clone());
  REQUIRE(looked.is<PlaceState>());
  CHECK(looked.get<PlaceState>() == PlaceState::FOREIGN);
  CHECK(fs::exists(kj::str(folder.path, "/workspace/file").cStr()));
}

}  // namespace capstan::test
