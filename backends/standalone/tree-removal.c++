#include "backends/standalone/tree-removal.h"

#include <kj/io.h>
#include <kj/map.h>
#include <kj/vector.h>

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr size_t BATCH = 1000;         // Names of one folder held at a time.
constexpr size_t MOST_REPORTED = 20;   // Lines.
constexpr size_t MOST_FAILED = 10000;  // Entries of one folder; then it is given up.
constexpr mode_t OPEN_TO_OWNER = S_IRWXU;

// Which folder it is, whatever its name.
struct Identity {
  uint64_t device = 0;
  uint64_t inode = 0;

  bool operator==(const Identity& other) const {
    return device == other.device && inode == other.inode;
  }
};

struct Folder {
  kj::AutoCloseFd handle;  // O_PATH
  Identity identity;
  uid_t owner = 0;
  mode_t mode = 0;
  bool mounted = false;
};

// Returns an errno.
int openFolder(int parent, kj::StringPtr name, Folder& result) {
  int fd = openat(parent, name.cStr(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno;
  result.handle = kj::AutoCloseFd(fd);
  struct statx info;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &info) < 0) return errno;
  result.identity = Identity{makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino};
  result.owner = info.stx_uid;
  result.mode = info.stx_mode;
  // Also one of the same file system.
  result.mounted = (info.stx_attributes & info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
  return 0;
}

// One walk over a tree. Holds the descriptor of one folder, however deep that is: the way back is
// "..", which is taken only if it leads where the walk came from.
class Removal {
public:
  kj::Vector<kj::String> tree(kj::StringPtr path) {
    auto slash = path.findLast('/').orDefault(0);
    if (!enterFirst(slash == 0 ? kj::str("/") : kj::str(path.slice(0, slash)))) return finish();
    levels[0].names.add(kj::str(path.slice(slash + 1)));
    levels[0].rescan = false;
    walk();
    return finish();
  }
  kj::Vector<kj::String> within(kj::StringPtr path, kj::ArrayPtr<const kj::StringPtr> kept) {
    if (!enterFirst(path)) return finish();
    open(current);
    for (auto& name: kept)
      levels[0].skipped.insert(kj::str(name));
    walk();
    return finish();
  }

private:
  struct Level {
    kj::String name;  // In the folder above; of the first, its path.
    Identity identity;
    kj::Vector<kj::String> names;     // Still to be removed.
    kj::HashSet<kj::String> skipped;  // Stay.
    bool rescan = true;               // When `names` is used up.
    bool failed = false;              // Something of ours stays in it.
  };

  kj::Vector<Level> levels;
  Folder current;  // That of the last level.
  kj::Vector<kj::String> left;
  size_t unreported = 0;

  bool enterFirst(kj::StringPtr path) {
    int error = openFolder(AT_FDCWD, path, current);
    if (error != 0) {
      if (error != ENOENT) report(path, strerror(error));
      return false;
    }
    Level first;
    first.name = kj::str(path);
    first.identity = current.identity;
    levels.add(kj::mv(first));
    return true;
  }

  void walk() {
    for (;;) {
      auto& level = levels.back();
      if (level.names.empty() && level.rescan) scan(level);
      if (level.names.empty()) {
        if (levels.size() == 1 || !leave()) return;
        continue;
      }
      auto name = kj::mv(level.names.back());
      level.names.removeLast();
      remove(kj::mv(name));
    }
  }

  void remove(kj::String name) {
    if (unlinkat(current.handle, name.cStr(), 0) == 0 || errno == ENOENT) return;
    // Linux says EISDIR, POSIX would have EPERM: who it is decides.
    int error = errno;
    Folder next;
    int opened = openFolder(current.handle, name, next);
    if (opened == ENOENT) return;
    if (opened != 0) return skip(kj::mv(name), opened == ENOTDIR ? error : opened);
    if (next.mounted || next.identity.device != levels[0].identity.device) {
      return skip(kj::mv(name), "another file system is mounted there, left alone"_kj);
    }
    open(next);
    Level level;
    level.name = kj::mv(name);
    level.identity = next.identity;
    current = kj::mv(next);
    levels.add(kj::mv(level));
  }

  // Lets us in, by the descriptor: the name may lead elsewhere by now. A refusal shows in what is
  // done next.
  static void open(const Folder& folder) {
    if (folder.owner != geteuid() || (folder.mode & OPEN_TO_OWNER) == OPEN_TO_OWNER) return;
    auto path = kj::str("/proc/self/fd/", folder.handle.get());
    int ignored = chmod(path.cStr(), (folder.mode & 07777) | OPEN_TO_OWNER);
    (void)ignored;
  }

  void scan(Level& level) {
    level.rescan = false;  // Whatever comes into being later keeps the folder: no endless race.
    int fd = openat(current.handle, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* stream = fd < 0 ? nullptr : fdopendir(fd);
    if (stream == nullptr) {
      int error = errno;
      if (fd >= 0) close(fd);
      return fail(level, error);
    }
    KJ_DEFER(closedir(stream));
    for (;;) {
      errno = 0;
      auto* entry = readdir(stream);
      if (entry == nullptr) {
        if (errno != 0) fail(level, errno);
        return;
      }
      kj::StringPtr name = entry->d_name;
      if (name == "." || name == ".." || level.skipped.contains(name)) continue;
      level.names.add(kj::str(name));
      if (level.names.size() < BATCH) continue;
      level.rescan = true;
      return;
    }
  }

  // Back to the folder above, and away with this one. False: the way back is not there any more.
  bool leave() {
    auto level = kj::mv(levels.back());
    levels.removeLast();
    auto& above = levels.back();
    Folder parent;
    int error = openFolder(current.handle, "..", parent);
    if (error != 0 || !(parent.identity == above.identity)) {
      levels.add(kj::mv(level));
      report(pathOf(nullptr), error != 0 ? kj::StringPtr(strerror(error))
                                         : "it was moved while it was being removed"_kj);
      return false;
    }
    current = kj::mv(parent);
    if (level.failed) {
      // Each thing that stays in it was reported.
      above.failed = true;
      above.skipped.insert(kj::mv(level.name));
      return true;
    }
    if (unlinkat(current.handle, level.name.cStr(), AT_REMOVEDIR) < 0 && errno != ENOENT) {
      skip(kj::mv(level.name), errno);
    }
    return true;
  }

  kj::String pathOf(kj::Maybe<kj::StringPtr> name) {
    auto parts = KJ_MAP(level, levels)->kj::StringPtr { return level.name; };
    auto path = kj::strArray(parts, "/");
    KJ_IF_MAYBE (last, name) {
      return kj::str(path, '/', *last);
    }
    return path;
  }
  void skip(kj::String name, int error) { skip(kj::mv(name), kj::StringPtr(strerror(error))); }
  void skip(kj::String name, kj::StringPtr why) {
    report(pathOf(kj::StringPtr(name)), why);
    auto& level = levels.back();
    level.failed = true;
    if (level.skipped.size() >= MOST_FAILED) {
      level.names.clear();
      level.rescan = false;
    } else {
      level.skipped.upsert(kj::mv(name), [](kj::String&, kj::String&&) {});
    }
  }
  void fail(Level& level, int error) {
    level.failed = true;
    report(pathOf(nullptr), strerror(error));
  }
  void report(kj::StringPtr path, kj::StringPtr why) {
    if (left.size() < MOST_REPORTED) {
      left.add(kj::str(path, ": ", why));
    } else {
      ++unreported;
    }
  }
  kj::Vector<kj::String> finish() {
    if (unreported > 0) left.add(kj::str("and ", unreported, " more"));
    return kj::mv(left);
  }
};

}  // namespace

kj::Vector<kj::String> removeTree(kj::StringPtr path) { return Removal().tree(path); }

kj::Vector<kj::String> removeTreesIn(kj::StringPtr path, kj::ArrayPtr<const kj::StringPtr> kept) {
  return Removal().within(path, kept);
}

}  // namespace capstan
