// The main() of a fuzz target without libFuzzer: runs the target on every file of a corpus folder
// and prints one TAP case a file. The file's name is printed before it runs, so that a crash names
// its input.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (auto& entry: std::filesystem::directory_iterator(argv[1]))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "%s: no corpus file\n", argv[1]);
    return 1;
  }
  std::printf("1..%zu\n", files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    auto name = files[i].filename().string();
    std::printf("# running %s\n", name.c_str());
    std::fflush(stdout);
    std::ifstream in(files[i], std::ios::binary);
    std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (in.bad()) {
      std::printf("not ok %zu - %s\n# cannot be read\n", i + 1, name.c_str());
      continue;
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    std::printf("ok %zu - %s\n", i + 1, name.c_str());
  }
  return 0;
}
