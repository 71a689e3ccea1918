// Hostile messages of the corpus of fuzz-rpc-message and why each must be refused: an amplifying
// list, a far pointer to nowhere, a cycle, sizes that lie (Cap'n Proto's "security
// considerations"). The fuzz target shows that they do no harm; this, that they are seen.

#include <capnp/any.h>
#include <capnp/serialize.h>
#include <kj/debug.h>
#include <kj/exception.h>
#include <kj/io.h>
#include <kj/string.h>

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace capstan {
namespace {

struct Hostile {
  const char* file;
  const char* reason;  // Part of what the reader says.
};

constexpr Hostile HOSTILE[] = {
    {"cycle", "too deeply-nested or contains cycles"},
    {"far-oob", "far pointer to unknown segment"},
    {"huge-size", "ends prematurely in first segment"},
    {"many-segments", "segment count too large"},
    {"void-list", "Exceeded message traversal limit"},
    {"zero-size-list", "Exceeded message traversal limit"},
};

kj::Array<capnp::word> readWords(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) KJ_FAIL_SYSCALL("open", errno, path);
  kj::FdInputStream in{kj::AutoCloseFd(fd)};
  auto bytes = in.readAllBytes();
  auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), bytes.begin(), words.size() * sizeof(capnp::word));
  return words;
}

// What reading every element with the default limits says; empty = nothing.
kj::String refusal(kj::ArrayPtr<const capnp::word> words) {
  kj::String said;
  auto refused = kj::runCatchingExceptions([&]() {
    capnp::FlatArrayMessageReader reader(words);
    auto root = reader.getRoot<capnp::AnyStruct>();
    // Comparing walks both sides to the last element.
    KJ_ASSERT(root.equals(root) == capnp::Equality::EQUAL);
  });
  KJ_IF_MAYBE (exception, refused) said = kj::str(exception->getDescription());
  return said;
}

int run(kj::StringPtr corpus) {
  int failed = 0, number = 0;
  for (auto& hostile: HOSTILE) {
    auto words = readWords(kj::str(corpus, '/', hostile.file).cStr());
    auto said = refusal(words);
    bool right = std::string_view(said.cStr()).find(hostile.reason) != std::string_view::npos;
    std::printf("%sok %d - %s is refused: %s\n", right ? "" : "not ", ++number, hostile.file,
                hostile.reason);
    if (!right) std::printf("# it said: '%s'\n", said.cStr());
    failed += !right;
  }
  std::printf("1..%d\n", number);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
    return 2;
  }
  return capstan::run(argv[1]);
}
