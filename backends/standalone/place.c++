#include "backends/standalone/place.h"

#include "backends/standalone/tree-removal.h"

#include <kj/debug.h>
#include <kj/io.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

namespace fs = std::filesystem;

kj::String markPath(kj::StringPtr directory, const PlaceFolder& folder) {
  return kj::str(directory, "/.capstan-", folder.mark);
}
// Its name until it is complete.
kj::String unfinishedPath(const PlaceFolder& folder) {
  return kj::str(folder.path, ".", folder.mark);
}

Problem failure(kj::StringPtr what, int error) {
  bool full = error == ENOSPC || error == EDQUOT;
  return Problem(full ? ErrorCode::RESOURCE_EXHAUSTED : ErrorCode::DENIED, kj::str(what))
      .because(kj::str(strerror(error)))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

Outcome makeFolder(kj::StringPtr path) {
  if (mkdir(path.cStr(), 0700) == 0) return nullptr;
  int error = errno;
  struct stat info;
  // One of an earlier try is ours if it is a real folder of this user.
  if (error == EEXIST && lstat(path.cStr(), &info) == 0 && S_ISDIR(info.st_mode) &&
      info.st_uid == geteuid()) {
    return nullptr;
  }
  return failure(kj::str("cannot make the folder ", path), error);
}

Outcome makeMark(kj::StringPtr path) {
  int fd = open(path.cStr(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return failure(kj::str("cannot make ", path), errno);
  kj::AutoCloseFd closing(fd);
  return nullptr;
}

// Names made in `path` survive a loss of power.
Outcome sync(kj::StringPtr path) {
  int fd = open(path.cStr(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failure(kj::str("cannot open the folder ", path), errno);
  kj::AutoCloseFd closing(fd);
  if (fsync(fd) < 0) return failure(kj::str("cannot write the folder ", path), errno);
  return nullptr;
}

// A mark is an entry of a folder, not the text of a file: a file system that loses the last
// seconds loses neither without the other.
Outcome fill(kj::StringPtr directory, const PlaceFolder& folder) {
  KJ_IF_MAYBE (problem, makeMark(markPath(directory, folder))) {
    return kj::mv(*problem);
  }
  for (auto name: {"/runs", "/workspace"}) {
    KJ_IF_MAYBE (problem, makeFolder(kj::str(directory, name))) {
      return kj::mv(*problem);
    }
  }
  return sync(directory);
}

Problem foreign(const PlaceFolder& folder) {
  return Problem(ErrorCode::OWNERSHIP_MISMATCH,
                 kj::str(folder.path, " is not the folder that was made for this environment"))
      .because(kj::str("it lacks the mark .capstan-", folder.mark))
      .advise(kj::str("move it away, or put the right one back"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

void addAll(kj::Vector<kj::String>& to, kj::Vector<kj::String> lines) {
  for (auto& line: lines)
    to.add(kj::mv(line));
}

kj::String parentOf(const PlaceFolder& folder) {
  return kj::str(fs::path(folder.path.cStr()).parent_path().c_str());
}

}  // namespace

Result<PlaceState> lookAtPlace(PlaceFolder folder) {
  struct stat info;
  if (lstat(folder.path.cStr(), &info) < 0) {
    if (errno == ENOENT) return PlaceState::ABSENT;
    return failure(kj::str("cannot look at ", folder.path), errno);
  }
  if (!S_ISDIR(info.st_mode)) return PlaceState::FOREIGN;
  if (lstat(markPath(folder.path, folder).cStr(), &info) == 0) return PlaceState::OURS;
  if (errno == ENOENT) return PlaceState::FOREIGN;
  return failure(kj::str("cannot look into ", folder.path), errno);
}

Outcome makePlace(PlaceFolder folder) {
  auto looked = lookAtPlace(folder.clone());
  if (looked.is<Problem>()) return kj::mv(looked.get<Problem>());
  switch (looked.get<PlaceState>()) {
    case PlaceState::OURS:
      return fill(folder.path, folder);
    case PlaceState::FOREIGN:
      return foreign(folder);
    case PlaceState::ABSENT:
      break;
  }
  auto unfinished = unfinishedPath(folder);
  KJ_IF_MAYBE (problem, makeFolder(unfinished)) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, fill(unfinished, folder)) {
    return kj::mv(*problem);
  }
  if (renameat2(AT_FDCWD, unfinished.cStr(), AT_FDCWD, folder.path.cStr(), RENAME_NOREPLACE) < 0) {
    if (errno == EEXIST) return foreign(folder);
    return failure(kj::str("cannot name the folder ", folder.path), errno);
  }
  return sync(parentOf(folder));
}

Outcome checkKept(PlaceFolder folder, bool ownWorkspace) {
  auto looked = lookAtPlace(folder.clone());
  if (looked.is<Problem>()) return kj::mv(looked.get<Problem>());
  if (looked.get<PlaceState>() == PlaceState::FOREIGN) return foreign(folder);
  bool stands = looked.get<PlaceState>() == PlaceState::OURS;
  auto path = kj::str(folder.path);
  if (stands && ownWorkspace) {
    path = kj::str(folder.path, "/workspace");
    struct stat info;
    if (stat(path.cStr(), &info) < 0) {
      if (errno != ENOENT) return failure(kj::str("cannot look at ", path), errno);
      stands = false;
    } else {
      stands = S_ISDIR(info.st_mode);
    }
  }
  if (stands) return nullptr;
  return Problem(ErrorCode::WORKSPACE_LOST, kj::str("the environment's folder ", path, " is gone"))
      .advise(kj::str("put it back, or remove the environment: capstan env destroy"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

Outcome checkGivenWorkspace(kj::String directory) {
  struct stat info;
  int error = stat(directory.cStr(), &info) < 0 ? errno : 0;
  if (error == 0 && !S_ISDIR(info.st_mode)) error = ENOTDIR;
  if (error == 0 && access(directory.cStr(), X_OK) < 0) error = errno;
  if (error == 0) return nullptr;
  return Problem(ErrorCode::WORKSPACE_LOST, kj::str("no folder ", directory))
      .because(kj::str(strerror(error)))
      .at(kj::str("spec.workspace.directory"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

kj::Vector<kj::String> takeBackPlace(PlaceFolder folder) {
  auto looked = lookAtPlace(folder.clone());
  if (!looked.is<PlaceState>() || looked.get<PlaceState>() != PlaceState::FOREIGN) {
    return removePlace(kj::mv(folder), false);
  }
  return removeTree(unfinishedPath(folder));
}

kj::Vector<kj::String> removePlace(PlaceFolder folder, bool keepWorkspace) {
  auto unfinished = unfinishedPath(folder);
  auto left = removeTree(unfinished);  // Its name holds the mark.
  auto looked = lookAtPlace(folder.clone());
  if (looked.is<Problem>()) {
    left.add(kj::str(looked.get<Problem>()));
    return left;
  }
  switch (looked.get<PlaceState>()) {
    case PlaceState::ABSENT:
      return left;
    case PlaceState::FOREIGN:
      left.add(kj::str(foreign(folder), ", left alone"));
      return left;
    case PlaceState::OURS:
      break;
  }
  if (keepWorkspace) {
    auto mark = kj::str(".capstan-", folder.mark);
    kj::StringPtr kept[] = {"workspace"_kj, mark};
    addAll(left, removeTreesIn(folder.path, kept));
    return left;
  }
  if (left.size() > 0) return left;  // The name is not free.
  // Back to the name that proves whose it is: however far the removal gets, it can be taken up.
  if (renameat2(AT_FDCWD, folder.path.cStr(), AT_FDCWD, unfinished.cStr(), RENAME_NOREPLACE) < 0) {
    left.add(kj::str(folder.path, ": ", strerror(errno)));
    return left;
  }
  KJ_IF_MAYBE (problem, sync(parentOf(folder))) {
    left.add(kj::str(*problem));
    return left;
  }
  addAll(left, removeTree(unfinished));
  return left;
}

Outcome releasePlace(PlaceFolder folder) {
  auto mark = markPath(folder.path, folder);
  if (unlink(mark.cStr()) == 0 || errno == ENOENT) return nullptr;
  return failure(kj::str("cannot remove ", mark), errno);
}

}  // namespace capstan
