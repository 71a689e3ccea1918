#include "agentctl/cgroup.h"

#include <kj/vector.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

using Text = kj::ArrayPtr<const char>;

// Calls `body` with each non-empty piece of `text` between `separator`s.
template <typename Body>
void split(Text text, char separator, Body body) {
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != separator) continue;
    if (i > begin) body(text.slice(begin, i));
    begin = i + 1;
  }
}

kj::String readText(kj::StringPtr path) {
  int fd = open(path.cStr(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  kj::AutoCloseFd owned(fd);
  kj::Vector<char> text;
  char buffer[4096];
  ssize_t n;
  while (text.size() < (1 << 20) && (n = read(fd, buffer, sizeof(buffer))) > 0) {
    text.addAll(buffer, buffer + n);
  }
  return kj::str(text);
}

}  // namespace

kj::Maybe<kj::String> ownCgroupFolder(kj::StringPtr mountinfo, kj::StringPtr cgroup) {
  // proc(5), cgroups(7): the v2 line is "0::/path".
  kj::Maybe<kj::String> own;
  split(cgroup, '\n', [&](Text line) {
    auto text = kj::str(line);
    if (text.startsWith("0::/")) own = kj::str(text.slice(3));
  });
  kj::Maybe<kj::String> result;
  split(mountinfo, '\n', [&](Text line) {
    // proc(5): id parent major:minor root mountpoint options... - type source superoptions
    kj::Vector<kj::String> words;
    split(line, ' ', [&](Text word) { words.add(kj::str(word)); });
    size_t dash = 0;
    while (dash < words.size() && words[dash] != "-") {
      ++dash;
    }
    if (dash < 6 || dash + 1 >= words.size() || words[dash + 1] != "cgroup2") return;
    KJ_IF_MAYBE (path, own) {
      kj::StringPtr root = words[3], place = words[4], below = *path;
      if (root != "/") {
        // Only part of the hierarchy is mounted here.
        if (!below.startsWith(root)) return;
        below = below.slice(root.size());
      }
      if (below == "/") below = "";
      if (result == nullptr) result = kj::str(place, below);
    }
  });
  return result;
}

kj::Maybe<CgroupFds> makeCgroup(kj::StringPtr name) {
  KJ_IF_MAYBE (folder,
               ownCgroupFolder(readText("/proc/self/mountinfo"), readText("/proc/self/cgroup"))) {
    auto path = kj::str(*folder, '/', name);
    if (mkdir(path.cStr(), 0755) < 0) return nullptr;
    int processes = open(kj::str(path, "/cgroup.procs").cStr(), O_WRONLY | O_CLOEXEC);
    int kill = open(kj::str(path, "/cgroup.kill").cStr(), O_WRONLY | O_CLOEXEC);
    CgroupFds fds{kj::mv(path), kj::AutoCloseFd(processes), kj::AutoCloseFd(kill)};
    if (processes < 0 || kill < 0) {
      rmdir(fds.path.cStr());
      return nullptr;
    }
    return kj::mv(fds);
  }
  return nullptr;
}

}  // namespace capstan
