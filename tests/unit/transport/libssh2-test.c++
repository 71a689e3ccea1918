// The wrapped libssh2 builds, links and is the release that its patches belong to.
#include "support/test.h"

#include <libssh2.h>

namespace capstan {

TEST_CASE("the wrapped libssh2 is 1.11.1 on OpenSSL") {
  CHECK(LIBSSH2_VERSION_NUM == 0x010b01);
  REQUIRE(libssh2_version(LIBSSH2_VERSION_NUM) != nullptr);
  CHECK(libssh2_version(LIBSSH2_VERSION_NUM + 1) == nullptr);
  CHECK(libssh2_crypto_engine() == libssh2_openssl);

  REQUIRE(libssh2_init(0) == 0);
  auto* session = libssh2_session_init();
  REQUIRE(session != nullptr);
  CHECK(libssh2_session_free(session) == 0);
  libssh2_exit();
}

}  // namespace capstan
