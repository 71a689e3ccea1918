// The suite on the standalone backend: real folders, below a long path with a space and more than
// ASCII, and a real agentctl.

#include "backends/standalone/standalone-backend.h"
#include "conformance/backend/backend-fixture.h"
#include "conformance/backend/memory-book.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace capstan::test {

namespace {

namespace fs = std::filesystem;

constexpr kj::StringPtr MARK = ".capstan-"_kj;
constexpr size_t STATE_PATH_BYTES = 90;
constexpr int WAITS = 1;
constexpr int MOST_LOOKS = 1000;

HelperFiles helperFiles() {
  const char* folder = std::getenv("AGENTCTL_DIR");
  KJ_REQUIRE(folder != nullptr, "the test needs AGENTCTL_DIR, the folder of the built agentctl");
  return HelperFiles::ofInstallation(kj::StringPtr(folder), nullptr, "/nowhere/test");
}

class StandaloneFixture final: public BackendFixture {
public:
  StandaloneFixture(): uv(loop.io.unixEventPort), offload(uv), files(helperFiles()) {
    auto path = state / "an état";
    while (path.size() < STATE_PATH_BYTES)
      path = kj::str(path, '-');
    stateDirectory = kj::mv(path);
    fs::create_directories(environments());
    restart();
  }
  ~StandaloneFixture() noexcept(false) {
    daemon = nullptr;
    spin([this]() { return offload.inProgress() == 0; });
    countHelpers(SIGKILL);
  }

  Backend& backend() override { return *daemon; }
  // The helper lives on. Also waits for what the old one left on the pool, which a killed daemon
  // would not finish.
  void restart() override {
    daemon = nullptr;
    spin([this]() { return offload.inProgress() == 0; });
    // A daemon that finds a helper whose start was interrupted gives it seconds to come up: real
    // ones are waited for a few times only.
    if (waitedFor >= WAITS) {
      book.dropUnknown();
    } else {
      for (auto& each: book.entries())
        waitedFor += each.pid == 0;
    }
    KJ_REQUIRE(countHelpers(0) <= 1, "more helpers run than one");
    StandaloneOptions options;
    options.stateDirectory = kj::str(stateDirectory);
    options.runtimeDirectory = kj::str(runtime.path());
    options.variables = kj::arr(ProcessVariable{kj::str("PATH"), kj::str("/usr/bin:/bin")});
    daemon =
        kj::heap<StandaloneBackend>(loop.io, uv, offload, files, entropy, book, kj::mv(options));
  }
  kj::WaitScope& waitScope() override { return loop.waitScope; }
  kj::Timer& timer() override { return loop.timer; }
  void turn() override {
    if (loop.waitScope.poll(1) == 0) loop.io.unixEventPort.wait();
  }

  // Work of a dropped call may still go on on the pool: a folder that is renamed or removed while it
  // is described is no answer, and all is looked at again.
  kj::Vector<Thing> things() override {
    for (int tries = 0; tries < MOST_LOOKS; ++tries) {
      KJ_IF_MAYBE (seen, lookOnce()) {
        return kj::mv(*seen);
      }
    }
    KJ_FAIL_REQUIRE("the folders never stand still");
  }
  Thing plant() override {
    auto path = environments() / "env-somebody";
    fs::create_directories(path / "workspace");
    return describe(path);
  }
  Thing replace(const InventoryItem& item) override {
    fs::path path(item.name.cStr());
    fs::remove_all(path);
    fs::create_directories(path / "workspace");
    std::ofstream(path / ".capstan-0123456789abcdef0123") << "another mark\n";
    return describe(path);
  }
  void vanish(const InventoryItem& item) override { fs::remove_all(item.name.cStr()); }
  kj::StringPtr workspaceKind() override { return "directory"_kj; }

  void writeFile(Attachment& attachment) override {
    std::ofstream file(fileOf(attachment));
    file << "precious\n";
    KJ_REQUIRE(file.good());
  }
  bool fileStands(Attachment& attachment) override { return fs::exists(fileOf(attachment)); }

  kj::String userDirectory() override {
    auto path = state / "the user's";
    fs::create_directories(path.cStr());
    return path;
  }
  bool userDirectoryStands() override { return fs::exists((state / "the user's").cStr()); }
  void removeUserDirectory() override { fs::remove_all((state / "the user's").cStr()); }

  // A file where a folder is expected stops root too, whom a mode does not.
  kj::Maybe<kj::StringPtr> obstruct(const InventoryItem&) override { return refuseAll(); }
  kj::Maybe<kj::StringPtr> refuseAll() override {
    fs::rename(environments(), away());
    std::ofstream(environments()) << "in the way\n";
    return nullptr;
  }
  void makeUnhealthy() override { fs::rename(stateDirectory.cStr(), away()); }
  void heal() override {
    if (!fs::exists(away())) return;
    bool whole = !fs::exists(stateDirectory.cStr());
    if (!whole) fs::remove(environments());
    fs::rename(away(), whole ? fs::path(stateDirectory.cStr()) : environments());
  }

  // The kernel's own sockets.
  bool cutConnections(kj::StringPtr) override { return false; }
  bool oneHelperForAll() override { return true; }

private:
  IoLoop loop;
  TempDir state, runtime;
  kj::String stateDirectory;
  UvLoop uv;
  Offload offload;
  SystemEntropy entropy;
  HelperFiles files;
  MemoryBook book;
  int waitedFor = 0;
  kj::Own<StandaloneBackend> daemon;

  fs::path environments() { return fs::path(stateDirectory.cStr()) / "environments"; }
  fs::path away() { return fs::path((state / "away").cStr()); }
  static fs::path fileOf(Attachment& attachment) {
    return fs::path(attachment.workspace().cStr()) / "file";
  }

  // Nothing: something moved meanwhile.
  kj::Maybe<kj::Vector<Thing>> lookOnce() {
    kj::Vector<Thing> result;
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator each(environments(), error), end; !error && each != end;
         each.increment(error)) {
      paths.push_back(each->path());
    }
    for (auto& path: paths)
      result.add(describe(path));
    for (auto& path: paths) {
      if (!fs::exists(path)) return nullptr;
    }
    return kj::mv(result);
  }

  // By the mark in it. An unfinished one has its final name, a dot and its mark as its name.
  static Thing describe(const fs::path& path) {
    std::string name = path.native(), mark;
    std::error_code error;
    for (fs::directory_iterator each(path, error), end; !error && each != end;
         each.increment(error)) {
      auto entry = each->path().filename().native();
      if (entry.starts_with(MARK.cStr())) mark = entry.substr(MARK.size());
    }
    auto dot = path.filename().native().find('.');
    if (dot != std::string::npos) {
      auto file = path.filename().native();
      mark = file.substr(dot + 1);
      name = (path.parent_path() / file.substr(0, dot)).native();
    }
    return Thing{kj::str("directory"), kj::str(name.c_str()), kj::str(mark.c_str())};
  }

  // Helpers, found by this fixture's own folder in their command line; each gets `signal`, unless
  // that is 0.
  size_t countHelpers(int signal) {
    size_t count = 0;
    std::error_code error;
    for (fs::directory_iterator each("/proc", error), end; !error && each != end;
         each.increment(error)) {
      auto number = each->path().filename().native();
      if (number.find_first_not_of("0123456789") != std::string::npos) continue;
      char words[4096];
      int fd = ::open((each->path() / "cmdline").c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      auto length = ::read(fd, words, sizeof(words));
      ::close(fd);
      // Nothing: it ended meanwhile.
      if (length <= 0) continue;
      std::string_view text(words, length);
      if (text.find(runtime.path().cStr()) == std::string_view::npos) continue;
      ++count;
      if (signal != 0) ::kill(std::stoi(number), signal);
    }
    return count;
  }
};

}  // namespace

kj::Own<BackendFixture> newBackendFixture() { return kj::heap<StandaloneFixture>(); }

}  // namespace capstan::test
