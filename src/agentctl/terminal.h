#pragma once
// Pseudo-terminals, opened by hand: uv_spawn and forkpty cannot give what the reaper needs.

#include "base/problem.h"

#include <kj/io.h>

namespace capstan {

struct PtyPair {
  kj::AutoCloseFd master;  // Non-blocking
  kj::AutoCloseFd slave;   // Becomes the agent's streams and controlling terminal.
};

// Both ends close-on-exec, the window as for resizePty(). Problems: resourceExhausted, unsupported.
Result<PtyPair> openPty(uint16_t columns, uint16_t rows);

// Sets the window's size; 0 = 80 columns, 24 rows. The kernel tells the foreground group
// (SIGWINCH). False when the terminal is gone.
bool resizePty(int master, uint16_t columns, uint16_t rows);

// The end-of-file character of the terminal's present line discipline.
char endOfFileCharacter(int master);

}  // namespace capstan
