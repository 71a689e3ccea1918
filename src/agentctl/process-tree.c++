#include "agentctl/process-tree.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr int FREEZE_WALKS = 4;
constexpr size_t MOST_PROCESSES = 100'000;  // A bound for the walk, above any pid limit in use.

size_t readSmallFile(const char* path, char* buffer, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t filled = 0;
  while (filled < size) {
    ssize_t n = read(fd, buffer + filled, size - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    filled += static_cast<size_t>(n);
  }
  close(fd);
  return filled;
}

struct Stat {
  char state = 0;  // 0 = no such process
  pid_t parent = 0;
  uint64_t startTicks = 0;
};

Stat statOf(pid_t pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  size_t size = readSmallFile(path, text, sizeof(text) - 1);
  text[size] = 0;
  // The name may hold anything; the fields go on after the last parenthesis.
  char* at = std::strrchr(text, ')');
  Stat result;
  if (at == nullptr || at[1] != ' ') return result;
  result.state = at[2];
  at += 3;
  for (int field = 4; field <= 22; ++field) {
    char* end;
    uint64_t value = std::strtoull(at, &end, 10);
    if (end == at) return Stat();
    if (field == 4) result.parent = static_cast<pid_t>(value);
    if (field == 22) result.startTicks = value;
    at = end;
  }
  return result;
}

bool isDigits(const char* name) { return *name >= '0' && *name <= '9'; }

template <typename Body>
void forEachNumber(const char* path, Body body) {
  DIR* folder = opendir(path);
  if (folder == nullptr) return;
  while (dirent* entry = readdir(folder)) {
    if (isDigits(entry->d_name)) body(static_cast<pid_t>(std::atoi(entry->d_name)));
  }
  closedir(folder);
}

// Whether the kernel shows /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN).
bool kernelListsChildren() {
  static const bool known = access("/proc/thread-self/children", R_OK) == 0;
  return known;
}

void childrenOf(pid_t pid, std::vector<pid_t>& out) {
  char tasks[64];
  std::snprintf(tasks, sizeof(tasks), "/proc/%d/task", pid);
  forEachNumber(tasks, [&](pid_t thread) {
    char path[96], text[65536];
    std::snprintf(path, sizeof(path), "%s/%d/children", tasks, thread);
    size_t size = readSmallFile(path, text, sizeof(text) - 1);
    text[size] = 0;
    for (char* at = text;;) {
      char* end;
      auto child = std::strtol(at, &end, 10);
      if (end == at) break;
      // A number cut off at the buffer's end is found in the next round.
      if (*end == ' ') out.push_back(static_cast<pid_t>(child));
      at = end;
    }
  });
}

void descendByParents(pid_t root, std::vector<pid_t>& out) {
  std::vector<std::pair<pid_t, pid_t>> all;  // parent, child
  forEachNumber("/proc", [&](pid_t pid) {
    auto stat = statOf(pid);
    if (stat.state != 0) all.emplace_back(stat.parent, pid);
  });
  std::sort(all.begin(), all.end());
  auto addChildren = [&](pid_t parent) {
    auto it = std::lower_bound(all.begin(), all.end(), std::make_pair(parent, pid_t{0}));
    for (; it != all.end() && it->first == parent; ++it) {
      out.push_back(it->second);
    }
  };
  addChildren(root);
  for (size_t i = 0; i < out.size() && out.size() < MOST_PROCESSES; ++i) {
    addChildren(out[i]);
  }
}

int openPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// Descendants of `root` outside the trees of `spared`.
std::vector<pid_t> walk(pid_t root, const std::vector<pid_t>& spared) {
  if (spared.empty()) return descendantsOf(root);
  std::vector<pid_t> result;
  std::vector<pid_t> all = descendantsOf(root), hidden = spared;
  std::sort(hidden.begin(), hidden.end());
  for (pid_t pid: all) {  // Parents stand before children.
    bool skip = std::binary_search(hidden.begin(), hidden.end(), pid);
    if (!skip) {
      auto parent = parentOf(pid);
      skip = parent != root && std::binary_search(hidden.begin(), hidden.end(), parent);
    }
    if (skip) {
      hidden.insert(std::upper_bound(hidden.begin(), hidden.end(), pid), pid);
    } else {
      result.push_back(pid);
    }
  }
  return result;
}

}  // namespace

std::vector<pid_t> descendantsOf(pid_t root) {
  std::vector<pid_t> result;
  if (!kernelListsChildren()) {
    descendByParents(root, result);
    return result;
  }
  childrenOf(root, result);
  for (size_t i = 0; i < result.size() && result.size() < MOST_PROCESSES; ++i) {
    childrenOf(result[i], result);
  }
  return result;
}

uint64_t startTicksOf(pid_t pid) { return statOf(pid).startTicks; }

pid_t parentOf(pid_t pid) { return statOf(pid).parent; }

int signalRelative(pid_t pid, int signal, const std::vector<pid_t>& family) {
  int pidfd = openPidfd(pid);
  if (pidfd < 0 && errno == ESRCH) return ESRCH;
  // The descriptor (where there are any) pins the process, so what is checked now is what is hit.
  bool ours = std::binary_search(family.begin(), family.end(), parentOf(pid));
  int error = ESRCH;
  if (ours) {
    int rc = pidfd >= 0
                 ? static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0))
                 : kill(pid, signal);
    error = rc == 0 ? 0 : errno;
  }
  if (pidfd >= 0) close(pidfd);
  return error;
}

uint32_t countOutside(pid_t root, const std::vector<pid_t>& spared) {
  uint32_t count = 0;
  for (pid_t pid: walk(root, spared)) {
    char state = statOf(pid).state;
    if (state != 0 && state != 'Z' && state != 'X') ++count;
  }
  return count;
}

KillRound killRound(pid_t root, const std::vector<pid_t>& spared) {
  std::vector<pid_t> seen, family;
  for (int i = 0; i < FREEZE_WALKS; ++i) {
    auto now = walk(root, spared);
    std::sort(now.begin(), now.end());
    family = now;
    family.insert(std::upper_bound(family.begin(), family.end(), root), root);
    std::vector<pid_t> fresh;
    std::set_difference(now.begin(), now.end(), seen.begin(), seen.end(),
                        std::back_inserter(fresh));
    seen = kj::mv(now);
    if (fresh.empty()) break;
    // Frozen first: what is stopped can no longer fork out of the walk.
    for (pid_t pid: fresh) {
      signalRelative(pid, SIGSTOP, family);
    }
  }
  KillRound round;
  for (pid_t pid: seen) {
    char state = statOf(pid).state;
    if (state == 0 || state == 'Z' || state == 'X') continue;
    int error = signalRelative(pid, SIGKILL, family);
    if (error == ESRCH) continue;
    ++round.alive;
    if (error != 0) ++round.refused;
  }
  return round;
}

void closeAllExcept(kj::ArrayPtr<const int> kept) {
  auto closeRange = [](unsigned from, unsigned to) {
    if (from > to) return;
    if (syscall(SYS_close_range, from, to, 0) == 0) return;
    // Before Linux 5.9. Collected first: closing while reading the folder would skip some.
    std::vector<int> open;
    forEachNumber("/proc/self/fd", [&](pid_t fd) {
      if (static_cast<unsigned>(fd) >= from && static_cast<unsigned>(fd) <= to) open.push_back(fd);
    });
    for (int fd: open) {
      close(fd);
    }
  };
  unsigned from = 3;
  for (int fd: kept) {
    if (fd < 3) continue;
    auto number = static_cast<unsigned>(fd);
    if (number > 0) closeRange(from, number - 1);
    from = number + 1;
  }
  closeRange(from, ~0u);
}

}  // namespace capstan
