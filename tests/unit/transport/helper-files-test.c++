#include "transport/helper-files.h"

#include "support/test.h"

#include <kj/io.h>

#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

namespace capstan {

namespace {

// A file that is an ELF header with our note and nothing else.
void writeHelper(kj::StringPtr path, kj::StringPtr platform) {
  auto text = kj::str("build=9.9\ncapabilities=pty\nplatform=", platform, "\n");
  uint32_t note[3] = {8, static_cast<uint32_t>(text.size()), 1};
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr program = {};
  program.p_type = PT_NOTE;
  program.p_offset = sizeof(header) + sizeof(program);
  program.p_filesz = sizeof(note) + 8 + text.size();
  int fd = open(path.cStr(), O_WRONLY | O_CREAT | O_TRUNC, 0755);
  KJ_REQUIRE(fd >= 0);
  kj::FdOutputStream out{kj::AutoCloseFd(fd)};
  out.write(&header, sizeof(header));
  out.write(&program, sizeof(program));
  out.write(note, sizeof(note));
  out.write("Capstan", 8);
  out.write(text.begin(), text.size());
}

}  // namespace

TEST_CASE("the helper is taken from the first folder that has one for the platform") {
  test::TempDir first, second;
  writeHelper(first / "agentctl-linux-arm64", "linux/arm64");
  writeHelper(second / "agentctl", "linux/amd64");
  auto files = HelperFiles::ofInstallation(first.path(), second.path(), "/nowhere/capstand");

  auto own = files.find("linux/amd64");
  CHECK(own.get<HelperFile>().path == second / "agentctl");
  CHECK(own.get<HelperFile>().note.build == "9.9");
  CHECK(files.find("linux/arm64").get<HelperFile>().path == first / "agentctl-linux-arm64");
}

TEST_CASE("a file with the right name and the wrong platform is not taken") {
  test::TempDir folder;
  writeHelper(folder / "agentctl-linux-amd64", "linux/arm64");
  auto files = HelperFiles::ofInstallation(folder.path(), nullptr, "/nowhere/capstand");

  auto refused = files.find("linux/amd64");

  auto& problem = refused.get<Problem>();
  CHECK(problem.code == ErrorCode::UNSUPPORTED_PLATFORM);
  CHECK(problem.cause ==
        kj::str("no usable agentctl-linux-amd64 in ", folder.path(), ", /nowhere, /lib/capstan"));
}

TEST_CASE("a platform without any helper is refused by name") {
  test::TempDir folder;
  auto files = HelperFiles::ofInstallation(folder.path(), nullptr, "/nowhere/capstand");
  auto refused = files.find("darwin/arm64");
  CHECK(refused.get<Problem>().message == "no helper for darwin/arm64");
}

}  // namespace capstan
