#include "agentctl/build-info.h"

#include <cstdio>

int main() {
  std::printf("%s", capstan::helperNoteText().cStr());
  return 0;
}
