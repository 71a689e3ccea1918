#pragma once
// "Did you mean": the known word that a mistyped one stands for.

#include <kj/array.h>
#include <kj/string.h>

namespace capstan {

// The word of `known` that is at most two letters from `word`, or differs only in case, dashes and
// underscores; null when none is near, or `word` has more than 64 octets.
kj::Maybe<kj::StringPtr> nearestWord(kj::StringPtr word, kj::ArrayPtr<const kj::StringPtr> known);

}  // namespace capstan
