#pragma once
// Everything a process is started with, laid out so that nothing has to be allocated between fork
// and execve, and so that its secrets can be wiped in every process that ever held them.

#include "agentctl.capnp.h"
#include "base/problem.h"

#include <kj/array.h>
#include <kj/string.h>

namespace capstan {

// One shared mapping, kept out of core dumps: wiping it wipes it in the reaper, too. Strings are
// NUL-terminated, lists end with a null pointer.
class LaunchPlan {
public:
  // Reads all of `config`. `home` becomes HOME unless a variable has that name. Later entries of
  // one key win, secrets over plain ones. Problems: invalidArgument (`field` says which part).
  static Result<kj::Own<LaunchPlan>> from(agentctl::InstanceConfig::Reader config,
                                          kj::StringPtr home);
  ~LaunchPlan() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(LaunchPlan);

  char* const* candidates() const { return paths; }  // Files to try, in order.
  char* const* arguments() const { return argv; }
  char* const* variables() const { return envp; }
  const char* workingDirectory() const { return directory; }

  // Overwrites everything with zeros, in every process that shares the mapping. Idempotent.
  void wipe();

private:
  LaunchPlan(void* mapping, size_t size): mapping(mapping), size(size) {}

  void* mapping;
  size_t size;
  char** paths = nullptr;
  char** argv = nullptr;
  char** envp = nullptr;
  char* directory = nullptr;
};

// The home directory of `uid` by /etc/passwd (read as text: no NSS); empty when it has none.
kj::String homeOf(unsigned uid, kj::StringPtr passwdFile = "/etc/passwd"_kj);

// Overwrites the secrets' values inside the message that carried them.
void wipeSecrets(agentctl::InstanceConfig::Reader config);

}  // namespace capstan
