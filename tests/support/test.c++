#include "support/test.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace capstan::test {

namespace {

bool contains(kj::StringPtr text, kj::StringPtr part) {
  return std::string_view(text.begin(), text.size())
             .find(std::string_view(part.begin(), part.size())) != std::string_view::npos;
}

}  // namespace

LogWatch::~LogWatch() noexcept(false) {
  for (auto& line: unexpected) {
    UNSCOPED_INFO("unexpected log line: " << line.cStr());
  }
  CHECK(unexpected.size() == 0);
  for (auto& part: expected) {
    UNSCOPED_INFO("announced, never logged: " << part.cStr());
  }
  CHECK(expected.size() == 0);
}

void LogWatch::expect(kj::StringPtr part) { expected.add(kj::heapString(part)); }

void LogWatch::logMessage(kj::LogSeverity severity, const char* file, int line, int,
                          kj::String&& text) {
  if (severity >= kj::LogSeverity::ERROR) {
    bool announced = false;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (contains(text, expected[i])) {
        expected[i] = kj::mv(expected.back());
        expected.removeLast();
        announced = true;
        break;
      }
    }
    if (!announced) unexpected.add(kj::str(file, ':', line, ": ", text));
  }
  seen.add(kj::mv(text));
}

TempDir::TempDir() {
  const char* root = std::getenv("TMPDIR");
  auto pattern = kj::str(root == nullptr || *root == 0 ? "/tmp" : root, "/capstan-test-XXXXXX");
  KJ_REQUIRE(mkdtemp(pattern.begin()) != nullptr, "cannot make a temporary folder", pattern);
  name = kj::mv(pattern);
}

TempDir::~TempDir() noexcept(false) {
  std::error_code ignored;
  std::filesystem::remove_all(name.cStr(), ignored);
}

}  // namespace capstan::test
