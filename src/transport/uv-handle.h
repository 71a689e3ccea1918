#pragma once
// For the .c++ files of transport/ that call libuv; not for others.

#include <kj/debug.h>

#include <uv.h>

namespace capstan {

// What the `data` of every handle of ours points to, or null. It holds the handle's memory, which
// belongs to libuv until its close callback has run.
class UvHandle {
public:
  virtual ~UvHandle() noexcept(false) = default;
  static void freeClosed(uv_handle_t* handle) { delete static_cast<UvHandle*>(handle->data); }
};

inline void checkUv(int rc, kj::StringPtr call) {
  if (rc < 0) KJ_FAIL_REQUIRE("a libuv call failed", call, uv_err_name(rc), uv_strerror(rc));
}

}  // namespace capstan
