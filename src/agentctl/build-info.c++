#include "agentctl/build-info.h"

#include "base/helper-note.h"

#ifndef CAPSTAN_BUILD
#error "the build must define CAPSTAN_BUILD"
#endif

#if defined(__x86_64__)
#define CAPSTAN_PLATFORM "linux/amd64"
#elif defined(__aarch64__)
#define CAPSTAN_PLATFORM "linux/arm64"
#else
#error "agentctl is built for amd64 and arm64 only"
#endif

#define CAPSTAN_CAPABILITIES "agent-survival.v1,reaper,pty,dial,output-log,rotation"

#define CAPSTAN_NOTE_TEXT \
  "build=" CAPSTAN_BUILD "\ncapabilities=" CAPSTAN_CAPABILITIES "\nplatform=" CAPSTAN_PLATFORM "\n"

namespace capstan {

namespace {

constexpr size_t TEXT_SIZE = sizeof(CAPSTAN_NOTE_TEXT) - 1;
constexpr size_t PADDED_SIZE = (TEXT_SIZE + 3) / 4 * 4;

struct HelperNote {
  HelperNoteHeader header;
  char name[HELPER_NOTE_NAME_SIZE];
  char descriptor[PADDED_SIZE];
};

constexpr HelperNote makeNote() {
  HelperNote note{{HELPER_NOTE_NAME_SIZE, TEXT_SIZE, HELPER_NOTE_TYPE}, CAPSTAN_NOTE_NAME, {}};
  for (size_t i = 0; i < TEXT_SIZE; ++i) {
    note.descriptor[i] = CAPSTAN_NOTE_TEXT[i];
  }
  return note;
}

// `used` keeps it past the compiler; the linker keeps every note section.
[[gnu::used, gnu::aligned(4), gnu::section(CAPSTAN_NOTE_SECTION)]]
constexpr HelperNote NOTE = makeNote();

}  // namespace

kj::StringPtr helperBuild() { return CAPSTAN_BUILD; }

kj::StringPtr helperPlatform() { return CAPSTAN_PLATFORM; }

kj::StringPtr helperNoteText() { return CAPSTAN_NOTE_TEXT; }

kj::Vector<kj::String> helperCapabilities(SubreaperSupport subreaper) {
  kj::Vector<kj::String> result;
  kj::StringPtr rest = CAPSTAN_CAPABILITIES;
  for (;;) {
    kj::String word;
    bool last = true;
    KJ_IF_MAYBE (comma, rest.findFirst(',')) {
      word = kj::heapString(rest.slice(0, *comma));
      rest = rest.slice(*comma + 1);
      last = false;
    } else {
      word = kj::heapString(rest);
    }
    if (word == "reaper" && subreaper == SubreaperSupport::REFUSED) word = kj::str("reaper=no");
    result.add(kj::mv(word));
    if (last) return result;
  }
}

}  // namespace capstan
