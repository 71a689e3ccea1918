#pragma once

#include "base/problem.h"

#include <kj/io.h>

namespace capstan {

// The exclusive ownership of a state directory: a lock on an open file, which the kernel gives
// back however the process ends. Two daemons never own the same state.
class StateLock {
public:
  // Takes the lock of `directory`, which must exist, before anything else in it is touched.
  // stateLocked with the owner's pid and start time when another process has it; denied when the
  // lock's file is a symbolic link or not ours.
  static Result<StateLock> take(kj::StringPtr directory);

  StateLock(StateLock&&) = default;
  StateLock& operator=(StateLock&&) = default;

private:
  explicit StateLock(kj::AutoCloseFd file): file(kj::mv(file)) {}
  kj::AutoCloseFd file;
};

}  // namespace capstan
