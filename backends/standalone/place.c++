#include "backends/standalone/place.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

Outcome makeFolder(kj::StringPtr path) {
  if (mkdir(path.cStr(), 0700) == 0) return nullptr;
  int error = errno;
  struct stat info;
  // One of an earlier try is ours if it is a real folder of this user.
  if (error == EEXIST && lstat(path.cStr(), &info) == 0 && S_ISDIR(info.st_mode) &&
      info.st_uid == geteuid()) {
    return nullptr;
  }
  return Problem(error == ENOSPC ? ErrorCode::RESOURCE_EXHAUSTED : ErrorCode::DENIED,
                 kj::str("cannot make the folder ", path))
      .because(kj::str(strerror(error)))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

void removeTree(const std::filesystem::path& path, kj::Vector<kj::String>& left) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) left.add(kj::str(path.c_str(), ": ", error.message().c_str()));
}

}  // namespace

Result<kj::String> makePlace(kj::String environment, kj::Maybe<kj::String> given) {
  KJ_IF_MAYBE (problem, makeFolder(environment)) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (problem, makeFolder(kj::str(environment, "/runs"))) {
    return kj::mv(*problem);
  }
  KJ_IF_MAYBE (directory, given) {
    struct stat info;
    int error = stat(directory->cStr(), &info) < 0 ? errno : 0;
    if (error == 0 && !S_ISDIR(info.st_mode)) error = ENOTDIR;
    if (error != 0) {
      return Problem(ErrorCode::WORKSPACE_LOST, kj::str("no folder ", *directory))
          .because(kj::str(strerror(error)))
          .at(kj::str("spec.workspace.directory"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    }
    return kj::mv(*directory);
  }
  auto workspace = kj::str(environment, "/workspace");
  KJ_IF_MAYBE (problem, makeFolder(workspace)) {
    return kj::mv(*problem);
  }
  return kj::mv(workspace);
}

kj::Vector<kj::String> removePlace(kj::String environment, bool keepWorkspace) {
  kj::Vector<kj::String> left;
  std::filesystem::path root(environment.cStr());
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(root, error))) return left;
  if (!keepWorkspace) {
    removeTree(root, left);
    return left;
  }
  for (std::filesystem::directory_iterator each(root, error), end; !error && each != end;
       each.increment(error)) {
    if (each->path().filename() != "workspace") removeTree(each->path(), left);
  }
  if (error) left.add(kj::str(environment, ": ", error.message().c_str()));
  return left;
}

}  // namespace capstan
