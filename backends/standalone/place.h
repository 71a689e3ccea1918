#pragma once
// The folder of one environment on this machine. Blocking: called on the worker pool.

#include "base/problem.h"

#include <kj/vector.h>

namespace capstan {

// Where an environment's folder stands and what tells it from any other: a mark in it, made before
// the folder gets its name. Nothing without the mark is ever changed.
struct PlaceFolder {
  kj::String path;  // Absolute.
  kj::String mark;  // Letters and digits, chosen at random when the folder was first wanted.

  PlaceFolder clone() const { return PlaceFolder{kj::str(path), kj::str(mark)}; }
};

enum class PlaceState {
  ABSENT,
  OURS,
  FOREIGN,  // Something stands there that does not have the mark.
};

// Reads only. A Problem when it cannot be told.
Result<PlaceState> lookAtPlace(PlaceFolder folder);

// Makes the folder (mode 0700) with its mark, `workspace` and `runs`, durably; whole or not at all
// under its name. One that is there with the mark is completed. FOREIGN: ownershipMismatch.
Outcome makePlace(PlaceFolder folder);

// What makePlace made once is still there: workspaceLost when the folder is gone, or, where the work
// is done in it (`ownWorkspace`), its workspace. FOREIGN: ownershipMismatch. Reads only.
Outcome checkKept(PlaceFolder folder, bool ownWorkspace);

// The user's workspace, checked: workspaceLost when it is no folder that can be entered.
Outcome checkGivenWorkspace(kj::String directory);

// Removes what makePlace made, also half made: the whole folder, or all but its workspace and its
// mark. The whole folder first takes back the name it had until it was complete, so that an
// interrupted removal can be taken up. Never follows symbolic links; absent things count as
// removed; a FOREIGN folder stays. What stays is returned, one a line.
kj::Vector<kj::String> removePlace(PlaceFolder folder, bool keepWorkspace);

// Takes the mark from a folder whose workspace is kept, once nobody will ask for it any more. An
// absent one is fine.
Outcome releasePlace(PlaceFolder folder);

// removePlace() after a makePlace() that failed: something FOREIGN under the name means that ours
// never got it, and is no failure.
kj::Vector<kj::String> takeBackPlace(PlaceFolder folder);

}  // namespace capstan
