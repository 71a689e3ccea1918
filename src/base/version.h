#pragma once

namespace capstan {

// The release this source belongs to; all programs of one build share it.
inline constexpr char VERSION[] = CAPSTAN_VERSION;

}  // namespace capstan
