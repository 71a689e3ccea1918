#include "codec/helper-note.h"

#include "base/helper-note.h"
#include "support/test.h"

#include <cstring>
#include <elf.h>

namespace capstan {

namespace {

void append(kj::Vector<kj::byte>& out, const void* bytes, size_t size) {
  out.addAll(kj::arrayPtr(static_cast<const kj::byte*>(bytes), size));
}

void appendNote(kj::Vector<kj::byte>& out, kj::StringPtr name, uint32_t type, kj::StringPtr text) {
  HelperNoteHeader header{static_cast<uint32_t>(name.size() + 1),
                          static_cast<uint32_t>(text.size()), type};
  append(out, &header, sizeof(header));
  append(out, name.begin(), name.size() + 1);
  while (out.size() % 4 != 0)
    out.add(0);
  append(out, text.begin(), text.size());
  while (out.size() % 4 != 0)
    out.add(0);
}

// An ELF file that is nothing but one PT_NOTE segment.
kj::Vector<kj::byte> elfWith(kj::ArrayPtr<const kj::byte> notes) {
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
  program.p_filesz = notes.size();
  kj::Vector<kj::byte> out;
  append(out, &header, sizeof(header));
  append(out, &program, sizeof(program));
  out.addAll(notes);
  return out;
}

const kj::StringPtr TEXT =
    "build=1.2.3\nfuture=x\ncapabilities=agent-survival.v1,pty\nplatform=linux/amd64\n"_kj;

}  // namespace

TEST_CASE("a helper's note is read behind other notes") {
  kj::Vector<kj::byte> notes;
  appendNote(notes, "GNU", 3, "0123456789abcdef0123");
  appendNote(notes, "Capstan", 2, "build=other type\n");
  appendNote(notes, "Capstan", 1, TEXT);

  auto found = readHelperNote(elfWith(notes));
  auto& note = KJ_ASSERT_NONNULL(found);
  CHECK(note.build == "1.2.3");
  CHECK(note.platform == "linux/amd64");
  CHECK(kj::strArray(note.capabilities, " ") == "agent-survival.v1 pty");
}

TEST_CASE("a file cut anywhere is no helper and no crash") {
  kj::Vector<kj::byte> notes;
  appendNote(notes, "Capstan", 1, TEXT);
  auto whole = elfWith(notes);
  REQUIRE(readHelperNote(whole) != nullptr);
  for (size_t size = 0; size < whole.size(); ++size) {
    // A copy of exactly this size, so that a sanitizer sees any read beyond it.
    auto cut = kj::heapArray<kj::byte>(whole.begin(), size);
    CHECK(readHelperNote(cut) == nullptr);
  }
}

TEST_CASE("sizes that reach beyond the file are refused") {
  kj::Vector<kj::byte> notes;
  appendNote(notes, "Capstan", 1, TEXT);
  auto broken = elfWith(notes);
  auto* program = reinterpret_cast<Elf64_Phdr*>(broken.begin() + sizeof(Elf64_Ehdr));
  program->p_filesz = ~0ull;
  CHECK(readHelperNote(broken) == nullptr);
  program->p_filesz = notes.size();
  program->p_offset = ~0ull - 3;
  CHECK(readHelperNote(broken) == nullptr);

  notes.clear();
  HelperNoteHeader huge{0xffffffff, 0xffffffff, 1};
  append(notes, &huge, sizeof(huge));
  CHECK(readHelperNote(elfWith(notes)) == nullptr);
}

TEST_CASE("what is no ELF file of ours has no note") {
  CHECK(readHelperNote("#!/bin/sh\n"_kj.asBytes()) == nullptr);
  kj::Vector<kj::byte> notes;
  appendNote(notes, "GNU", 1, "x");
  CHECK(readHelperNote(elfWith(notes)) == nullptr);
}

}  // namespace capstan
