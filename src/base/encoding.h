#pragma once
// Octets as text and back: lower-case hexadecimal and lower-case base32 without padding.

#include <kj/array.h>
#include <kj/string.h>

namespace capstan {

kj::String encodeHex(kj::ArrayPtr<const kj::byte> bytes);
// Null unless `text` is an even number of hexadecimal digits (either case).
kj::Maybe<kj::Array<kj::byte>> decodeHex(kj::StringPtr text);

// RFC 4648 section 6 with the alphabet a-z2-7 and no padding.
kj::String encodeBase32(kj::ArrayPtr<const kj::byte> bytes);
// Null unless `text` is exactly what encodeBase32() makes: lower case, a possible length, and no
// bit set beyond the last octet. So equal octets have one spelling.
kj::Maybe<kj::Array<kj::byte>> decodeBase32(kj::StringPtr text);
// Whether every character is one of the alphabet.
bool isBase32(kj::ArrayPtr<const char> text);

}  // namespace capstan
