#pragma once
// Why the helper of an earlier daemon could not be taken over: the upstreamCode of the Problem, in
// the order in which it is found out.

#include <kj/string.h>

namespace capstan::takeover {

inline constexpr kj::StringPtr NO_SERVER = "no_server"_kj;
inline constexpr kj::StringPtr IDENTITY_MISMATCH = "identity_mismatch"_kj;
inline constexpr kj::StringPtr CREDENTIAL_UNAVAILABLE = "credential_unavailable"_kj;
inline constexpr kj::StringPtr AUTHENTICATION_FAILED = "authentication_failed"_kj;
inline constexpr kj::StringPtr CAPABILITY_INCOMPATIBLE = "capability_incompatible"_kj;
inline constexpr kj::StringPtr CREDENTIAL_ROTATION_FAILED = "credential_rotation_failed"_kj;

}  // namespace capstan::takeover
