#pragma once
// What this build of the helper is: the same facts as its ELF note (base/helper-note.h).

#include <kj/string.h>
#include <kj/vector.h>

namespace capstan {

kj::StringPtr helperBuild();     // "0.1.0"
kj::StringPtr helperPlatform();  // "linux/amd64"

// What a running helper offers: every capability of the note, but "reaper=no" instead of "reaper"
// where the kernel refuses PR_SET_CHILD_SUBREAPER.
enum class SubreaperSupport { AVAILABLE, REFUSED };
kj::Vector<kj::String> helperCapabilities(SubreaperSupport subreaper);

// The note's descriptor text.
kj::StringPtr helperNoteText();

}  // namespace capstan
