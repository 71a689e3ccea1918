#include "agentctl/terminal.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace capstan {

namespace {

Problem noPty(kj::StringPtr step) {
  int error = errno;
  auto code = error == ENOENT || error == ENOSYS || error == ENODEV ? ErrorCode::UNSUPPORTED
                                                                    : ErrorCode::RESOURCE_EXHAUSTED;
  const char* name = strerrorname_np(error);
  return Problem(code, kj::str("no terminal: ", step, " failed"))
      .at(kj::str("terminal"))
      .from("agentctl", kj::str(name == nullptr ? "unknown" : name));
}

}  // namespace

Result<PtyPair> openPty(uint16_t columns, uint16_t rows) {
  int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (master < 0) return noPty("posix_openpt");
  kj::AutoCloseFd owned(master);
  char name[64];
  if (grantpt(master) < 0 || unlockpt(master) < 0 || ptsname_r(master, name, sizeof(name)) != 0) {
    return noPty("unlockpt");
  }
  int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return noPty("open");
  PtyPair pair{kj::mv(owned), kj::AutoCloseFd(slave)};
  resizePty(pair.master, columns, rows);
  return kj::mv(pair);
}

bool resizePty(int master, uint16_t columns, uint16_t rows) {
  winsize size{};
  size.ws_col = columns == 0 ? 80 : columns;
  size.ws_row = rows == 0 ? 24 : rows;
  return ioctl(master, TIOCSWINSZ, &size) == 0;
}

char endOfFileCharacter(int master) {
  termios modes;
  if (tcgetattr(master, &modes) < 0 || modes.c_cc[VEOF] == 0) return 4;
  return static_cast<char>(modes.c_cc[VEOF]);
}

}  // namespace capstan
