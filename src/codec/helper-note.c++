#include "codec/helper-note.h"

#include "base/helper-note.h"

#include <kj/debug.h>
#include <kj/vector.h>

#include <cstring>
#include <elf.h>

namespace capstan {

namespace {

constexpr size_t MOST_PROGRAM_HEADERS = 256;  // Ours have about ten.

// A value at `offset`, or null when it does not lie in `bytes`.
template <typename T>
kj::Maybe<T> valueAt(kj::ArrayPtr<const kj::byte> bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return nullptr;
  T value;
  std::memcpy(&value, bytes.begin() + offset, sizeof(T));
  return value;
}

kj::Maybe<kj::ArrayPtr<const kj::byte>> part(kj::ArrayPtr<const kj::byte> bytes, uint64_t offset,
                                             uint64_t size) {
  if (offset > bytes.size() || bytes.size() - offset < size) return nullptr;
  return bytes.slice(offset, offset + size);
}

uint64_t aligned(uint64_t size) { return (size + 3) & ~uint64_t(3); }

kj::Array<kj::String> splitWords(kj::ArrayPtr<const char> text) {
  kj::Vector<kj::String> words;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == ',') {
      if (i > begin) words.add(kj::heapString(text.slice(begin, i)));
      begin = i + 1;
    }
  }
  return words.releaseAsArray();
}

HelperNote readText(kj::ArrayPtr<const char> text) {
  HelperNote note;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') continue;
    auto line = text.slice(begin, i);
    begin = i + 1;
    auto* equals = static_cast<const char*>(std::memchr(line.begin(), '=', line.size()));
    if (equals == nullptr) continue;
    auto key = kj::heapString(kj::arrayPtr(line.begin(), equals));
    auto value = kj::arrayPtr(equals + 1, line.end());
    if (key == "build") note.build = kj::heapString(value);
    if (key == "capabilities") note.capabilities = splitWords(value);
    if (key == "platform") note.platform = kj::heapString(value);
  }
  return note;
}

// Looks through one PT_NOTE segment.
kj::Maybe<HelperNote> searchSegment(kj::ArrayPtr<const kj::byte> segment) {
  uint64_t at = 0;
  for (;;) {
    HelperNoteHeader header;
    KJ_IF_MAYBE (found, valueAt<HelperNoteHeader>(segment, at)) {
      header = *found;
    } else {
      return nullptr;
    }
    uint64_t name = at + sizeof(header);
    uint64_t descriptor = name + aligned(header.nameSize);
    auto nameBytes = part(segment, name, header.nameSize);
    auto textBytes = part(segment, descriptor, header.descriptorSize);
    if (nameBytes == nullptr || textBytes == nullptr) return nullptr;
    auto& owner = KJ_ASSERT_NONNULL(nameBytes);
    if (header.type == HELPER_NOTE_TYPE && owner.size() == HELPER_NOTE_NAME_SIZE &&
        std::memcmp(owner.begin(), CAPSTAN_NOTE_NAME, HELPER_NOTE_NAME_SIZE) == 0) {
      if (header.descriptorSize > HELPER_NOTE_DESCRIPTOR_MAX) return nullptr;
      return readText(KJ_ASSERT_NONNULL(textBytes).asChars());
    }
    at = descriptor + aligned(header.descriptorSize);
  }
}

}  // namespace

kj::Maybe<HelperNote> readHelperNote(kj::ArrayPtr<const kj::byte> file) {
  Elf64_Ehdr header;
  KJ_IF_MAYBE (found, valueAt<Elf64_Ehdr>(file, 0)) {
    header = *found;
  } else {
    return nullptr;
  }
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_phnum > MOST_PROGRAM_HEADERS) {
    return nullptr;
  }
  for (size_t i = 0; i < header.e_phnum; ++i) {
    if (header.e_phoff > file.size()) return nullptr;
    auto entry = valueAt<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    KJ_IF_MAYBE (program, entry) {
      if (program->p_type != PT_NOTE) continue;
      KJ_IF_MAYBE (segment, part(file, program->p_offset, program->p_filesz)) {
        KJ_IF_MAYBE (note, searchSegment(*segment)) {
          return kj::mv(*note);
        }
      }
    } else {
      return nullptr;
    }
  }
  return nullptr;
}

}  // namespace capstan
