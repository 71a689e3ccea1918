// Linked into the static helpers only. A static glibc program must not reach NSS: it would load
// libraries of whatever machine it was copied to. kj-async names getaddrinfo in its network code;
// these definitions come before libc's, so that its members are never linked. All addresses the
// helper dials are literal.

#include <netdb.h>

extern "C" int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo** result) {
  *result = nullptr;
  return EAI_NONAME;
}

extern "C" void freeaddrinfo(addrinfo*) {}
