#include "base/unix-socket.h"

#include "support/test.h"

#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

ErrorCode refusal(kj::StringPtr path) { return listenUnix(path).get<Problem>().code; }

}  // namespace

TEST_CASE("a socket is open to its user only") {
  test::TempDir temp;
  auto path = temp / "s";
  auto made = listenUnix(path);
  REQUIRE(made.is<kj::AutoCloseFd>());
  struct stat info;
  REQUIRE(lstat(path.cStr(), &info) == 0);
  CHECK(S_ISSOCK(info.st_mode));
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("a socket somebody listens on is left alone, a stale one replaced") {
  test::TempDir temp;
  auto path = temp / "s";
  {
    auto first = listenUnix(path);
    REQUIRE(first.is<kj::AutoCloseFd>());
    CHECK(refusal(path) == ErrorCode::PORT_IN_USE);
  }
  CHECK(listenUnix(path).is<kj::AutoCloseFd>());
}

TEST_CASE("what is no socket is never removed") {
  test::TempDir temp;
  auto file = temp / "file";
  close(open(file.cStr(), O_CREAT | O_WRONLY, 0600));
  CHECK(refusal(file) == ErrorCode::PORT_IN_USE);
  auto link = temp / "link";
  REQUIRE(symlink("nowhere", link.cStr()) == 0);
  CHECK(refusal(link) == ErrorCode::PORT_IN_USE);
  struct stat info;
  CHECK(lstat(file.cStr(), &info) == 0);
  CHECK(lstat(link.cStr(), &info) == 0);
}

TEST_CASE("a path that a kernel would cut is refused") {
  auto name = kj::heapString(UNIX_PATH_BYTES);
  std::memset(name.begin(), 'x', name.size());
  CHECK(refusal(kj::str("/", name)) == ErrorCode::INVALID_ARGUMENT);
  CHECK(refusal("relative") == ErrorCode::INVALID_ARGUMENT);
}

}  // namespace capstan
