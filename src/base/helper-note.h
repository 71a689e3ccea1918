#pragma once
// What every agentctl executable says about itself without being run: an ELF note, kept by
// --gc-sections and strip. agentctl writes it, the daemon reads it before it uploads a helper.
//
// Section `.note.capstan` of type SHT_NOTE (also covered by a PT_NOTE segment), in the file's byte
// order (both platforms: little-endian), aligned to 4:
//
//   uint32 nameSize        8
//   uint32 descriptorSize  octets of the text, its final newline included; no NUL
//   uint32 type            1
//   char   name[8]         "Capstan\0"
//   char   descriptor[]    text, padded with NULs to a multiple of 4
//
// The text is lines of key=value, each ended by '\n', in this order; a reader skips unknown keys:
//
//   build=0.1.0                                      what ServerInfo.build says
//   capabilities=agent-survival.v1,reaper,pty,...    what this build can do at best; a running
//                                                    helper may offer less
//                                                    (ServerInfo.capabilities)
//   platform=linux/amd64                             as ServerInfo.platform

#include <cstdint>

namespace capstan {

#define CAPSTAN_NOTE_SECTION ".note.capstan"
#define CAPSTAN_NOTE_NAME "Capstan"

// The three words at the note's beginning.
struct HelperNoteHeader {
  uint32_t nameSize;
  uint32_t descriptorSize;
  uint32_t type;
};

constexpr uint32_t HELPER_NOTE_TYPE = 1;
constexpr uint32_t HELPER_NOTE_NAME_SIZE = sizeof(CAPSTAN_NOTE_NAME);
constexpr uint32_t HELPER_NOTE_DESCRIPTOR_MAX = 4096;  // A longer one is refused by readers.

static_assert(sizeof(HelperNoteHeader) == 12 && HELPER_NOTE_NAME_SIZE == 8);

}  // namespace capstan
