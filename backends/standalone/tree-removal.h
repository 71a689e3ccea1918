#pragma once
// Removing folders that hold whatever their users left there. Blocking: called on the worker pool.

#include <kj/string.h>
#include <kj/vector.h>

namespace capstan {

// Removes what stands at the absolute `path`, of any kind, with all below it. Absent counts as
// removed. Works by descriptors: no symbolic link is followed, nothing outside the tree is touched
// even if somebody moves its folders about meanwhile. Folders of this user that may not be read or
// written are opened up first. Other file systems, mounted anywhere in it, are left alone. What
// stays is returned, one a line with its path and reason, a bounded number of them.
kj::Vector<kj::String> removeTree(kj::StringPtr path);

// As removeTree(), for all in the folder `path` but the entries named in `kept`; the folder stays.
kj::Vector<kj::String> removeTreesIn(kj::StringPtr path, kj::ArrayPtr<const kj::StringPtr> kept);

}  // namespace capstan
