#pragma once
// What an environment works on: a directory of Capstan's, the user's own, or clones.

#include "base/problem.h"
#include "domain/limits.h"

#include <kj/array.h>
#include <kj/string.h>

namespace capstan {

// One repository to clone into the workspace.
struct Repository {
  kj::String path;  // Below the workspace, its parts joined by '/'; empty = its root.
  kj::String url;
  kj::String ref;  // A branch, tag or commit; empty = the remote's default branch.

  Repository clone() const;
  bool operator==(const Repository& other) const;
};

struct WorkspaceSpec {
  enum class Kind {
    DEFAULT,       // A directory of ours.
    DIRECTORY,     // The user's; never deleted.
    REPOSITORIES,  // A directory of ours with clones in it.
  };
  Kind kind = Kind::DEFAULT;
  kj::String directory;                // Of DIRECTORY: absolute.
  kj::Array<Repository> repositories;  // Of REPOSITORIES: at least one.
  kj::Array<kj::String> sourceRoots;   // Absolute; kept and shown, not used by Capstan.
  bool reuseRequired = false;          // Attach to what is there or fail; never provision.

  static WorkspaceSpec ofDirectory(kj::String path);
  WorkspaceSpec clone() const;

  // True when nothing in particular was asked for: any workspace will do.
  bool isLeftOut() const { return kind == Kind::DEFAULT && sourceRoots.size() == 0; }
  // The same place with the same content. `reuseRequired` is of the request, not of the place.
  bool isSamePlace(const WorkspaceSpec& other) const;
};

// For people: "a directory of Capstan's", "/srv/work", "clones of URL at REF in PATH, ...".
kj::String KJ_STRINGIFY(const WorkspaceSpec& spec);

// Who asks: some things are only for administrators.
enum class Caller { ORDINARY, ADMINISTRATOR };

// Refuses a workspace that cannot be made, is not safe to make, or would store a password; null =
// fine. Fields are named below "spec.workspace".
Outcome checkWorkspace(const WorkspaceSpec& spec, const Limits& limits, Caller caller);

// A repository alone, its fields named below `field`: what git would take for an option or run as a
// command is refused, and so are passwords. Only an administrator may clone file:///...
Outcome checkRepository(const Repository& repository, kj::StringPtr field, Caller caller);

// The folder that git would choose: the last part of the url without ".git"; empty when there is
// none that can be used.
kj::String folderOfUrl(kj::StringPtr url);

}  // namespace capstan
