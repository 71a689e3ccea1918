#pragma once

#include "base/problem.h"
#include "codec/helper-note.h"

#include <kj/array.h>

namespace capstan {

// An agentctl executable of this installation.
struct HelperFile {
  kj::String path;
  HelperNote note;
};

// Finds agentctl executables. Reads files when asked; keeps nothing.
class HelperFiles {
public:
  // `folders` in order of preference.
  explicit HelperFiles(kj::Array<kj::String> folders): folders(kj::mv(folders)) {}

  // The folders of an installation: the option's, $CAPSTAN_AGENTCTL_DIR, the executable's own,
  // ../lib/capstan beside that. Null or empty ones are left out.
  static HelperFiles ofInstallation(kj::Maybe<kj::StringPtr> option,
                                    kj::Maybe<kj::StringPtr> variable, kj::StringPtr executable);

  // The helper for `platform` ("linux/amd64"). unsupportedPlatform naming the folders when none
  // of them holds a readable one whose note says that platform.
  Result<HelperFile> find(kj::StringPtr platform) const;

  // The platform of this machine; empty when it is none that agentctl exists for.
  static kj::StringPtr ownPlatform();

private:
  kj::Array<kj::String> folders;
};

}  // namespace capstan
