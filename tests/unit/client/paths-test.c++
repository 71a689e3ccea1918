#include "client/paths.h"

#include "support/test.h"

#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

GetVariable variables(std::initializer_list<std::pair<kj::StringPtr, kj::StringPtr>> set) {
  kj::Vector<std::pair<kj::String, kj::String>> copy;
  for (auto& each: set)
    copy.add(kj::str(each.first), kj::str(each.second));
  return [copy = kj::mv(copy)](kj::StringPtr name) -> kj::Maybe<kj::String> {
    for (auto& each: copy) {
      if (each.first == name) return kj::str(each.second);
    }
    return nullptr;
  };
}

}  // namespace

TEST_CASE("sockets stand in the runtime folder of the user") {
  auto withRuntime = variables({{"XDG_RUNTIME_DIR"_kj, "/run/user/7"_kj}});
  CHECK(defaultSocket(withRuntime, 7) == "/run/user/7/capstan/capstan.sock");
  auto none = variables({});
  CHECK(defaultSocket(none, 0) == "/run/capstan/capstan.sock");
  CHECK(defaultSocket(none, 7) == "/tmp/.capstan-7/capstan.sock");
  auto tooLong = variables({{"XDG_RUNTIME_DIR"_kj,
                             "/run/user/0123456789012345678901234567890123456789012345678901"_kj}});
  CHECK(runtimeDirectory(tooLong, 7) == "/tmp/.capstan-7");
  auto relative = variables({{"XDG_RUNTIME_DIR"_kj, "run"_kj}});
  CHECK(runtimeDirectory(relative, 7) == "/tmp/.capstan-7");
}

TEST_CASE("state is kept where XDG says") {
  auto state = [](GetVariable get) {
    return kj::str(defaultStateDirectory(get).get<kj::String>());
  };
  CHECK(state(variables({{"XDG_STATE_HOME"_kj, "/s"_kj}, {"HOME"_kj, "/h"_kj}})) == "/s/capstan");
  CHECK(state(variables({{"HOME"_kj, "/h"_kj}})) == "/h/.local/state/capstan");
  auto none = variables({});
  CHECK(defaultStateDirectory(none).get<Problem>().code == ErrorCode::INVALID_ARGUMENT);
}

TEST_CASE("a private folder is made, closed to others, and never a link") {
  test::TempDir temp;
  auto fresh = temp / "a/b";
  CHECK(ensurePrivateDirectory(fresh) == nullptr);
  struct stat info;
  REQUIRE(stat(fresh.cStr(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0700);

  REQUIRE(chmod(fresh.cStr(), 0755) == 0);
  CHECK(ensurePrivateDirectory(fresh) == nullptr);
  REQUIRE(stat(fresh.cStr(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0700);

  auto link = temp / "link";
  REQUIRE(symlink(fresh.cStr(), link.cStr()) == 0);
  CHECK(KJ_ASSERT_NONNULL(ensurePrivateDirectory(link)).code == ErrorCode::DENIED);
  CHECK(ensurePrivateDirectory("relative") != nullptr);
}

}  // namespace capstan
