#include "transport/helper-files.h"

#include <kj/io.h>
#include <kj/vector.h>

#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>

namespace capstan {

namespace {

constexpr off_t MOST_BYTES = 64 << 20;  // A sanitised helper has about 30 MiB.

// The note of the file at `path`, null when it is not there or is no helper.
kj::Maybe<HelperNote> noteOf(kj::StringPtr path) {
  int fd = open(path.cStr(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  kj::AutoCloseFd closing(fd);
  struct stat info;
  if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode)) return nullptr;
  if (info.st_size <= 0 || info.st_size > MOST_BYTES) return nullptr;
  // Mapped: only the few pages with the headers and the note are read.
  void* memory = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  KJ_DEFER(munmap(memory, info.st_size));
  return readHelperNote(kj::arrayPtr(static_cast<const kj::byte*>(memory), info.st_size));
}

// "linux/amd64" -> "agentctl-linux-amd64"
kj::String fileName(kj::StringPtr platform) {
  auto name = kj::str("agentctl-", platform);
  for (char& c: name) {
    if (c == '/') c = '-';
  }
  return name;
}

// The helper is started in another working directory.
kj::String absolute(kj::StringPtr path) {
  std::error_code error;
  auto whole = std::filesystem::absolute(path.cStr(), error);
  return error ? kj::str(path) : kj::str(whole.c_str());
}

kj::String folderOf(kj::StringPtr path) {
  KJ_IF_MAYBE (slash, path.findLast('/')) {
    return kj::str(path.slice(0, *slash));
  }
  return kj::str(".");
}

}  // namespace

HelperFiles HelperFiles::ofInstallation(kj::Maybe<kj::StringPtr> option,
                                        kj::Maybe<kj::StringPtr> variable,
                                        kj::StringPtr executable) {
  kj::Vector<kj::String> folders;
  KJ_IF_MAYBE (folder, option) {
    if (folder->size() > 0) folders.add(absolute(*folder));
  }
  KJ_IF_MAYBE (folder, variable) {
    if (folder->size() > 0) folders.add(absolute(*folder));
  }
  auto own = folderOf(executable);
  folders.add(kj::str(own));
  folders.add(kj::str(folderOf(own), "/lib/capstan"));
  return HelperFiles(folders.releaseAsArray());
}

Result<HelperFile> HelperFiles::find(kj::StringPtr platform) const {
  auto wanted = fileName(platform);
  kj::StringPtr names[] = {wanted, "agentctl"_kj};
  for (auto& folder: folders) {
    for (auto& name: names) {
      auto path = kj::str(folder, '/', name);
      KJ_IF_MAYBE (note, noteOf(path)) {
        if (note->platform == platform) return HelperFile{kj::mv(path), kj::mv(*note)};
      }
    }
  }
  return Problem(ErrorCode::UNSUPPORTED_PLATFORM,
                 kj::str("no helper for ", platform.size() > 0 ? platform : "this machine"_kj))
      .because(kj::str("no usable ", wanted, " in ", kj::strArray(folders, ", ")))
      .advise(kj::str("install Capstan's helpers, or name their folder with --agentctl-dir"))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

kj::StringPtr HelperFiles::ownPlatform() {
#if defined(__linux__) && defined(__x86_64__)
  return "linux/amd64"_kj;
#elif defined(__linux__) && defined(__aarch64__)
  return "linux/arm64"_kj;
#else
  return ""_kj;
#endif
}

}  // namespace capstan
