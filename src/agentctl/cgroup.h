#pragma once
// A cgroup v2 of an instance's own, where the kernel and our rights allow one: its `cgroup.kill`
// ends even a tree that forks faster than a walk can follow.

#include <kj/io.h>
#include <kj/string.h>

namespace capstan {

struct CgroupFds {
  kj::String path;
  kj::AutoCloseFd processes;  // cgroup.procs, for writing
  kj::AutoCloseFd kill;       // cgroup.kill, for writing
};

// The folder of the cgroup v2 in which a process is, from the texts of /proc/self/mountinfo and
// /proc/self/cgroup; null when no v2 hierarchy is mounted where we can reach it.
kj::Maybe<kj::String> ownCgroupFolder(kj::StringPtr mountinfo, kj::StringPtr cgroup);

// Makes `name` below our own cgroup. Null where that is not possible: no reason to fail a start.
kj::Maybe<CgroupFds> makeCgroup(kj::StringPtr name);

}  // namespace capstan
