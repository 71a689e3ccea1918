#include "base/nearest.h"

#include <kj/vector.h>

#include <algorithm>

namespace capstan {

namespace {

constexpr size_t LONGEST_WORD = 64;
constexpr size_t FARTHEST = 2;  // Further away it is a guess.

// Levenshtein's distance, for short words.
size_t distance(kj::StringPtr a, kj::StringPtr b) {
  kj::Vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row.add(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

kj::String letters(kj::StringPtr word) {
  kj::Vector<char> result;
  for (char c: word) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c != '-' && c != '_') result.add(c);
  }
  result.add('\0');
  return kj::String(result.releaseAsArray());
}

}  // namespace

kj::Maybe<kj::StringPtr> nearestWord(kj::StringPtr word, kj::ArrayPtr<const kj::StringPtr> known) {
  if (word.size() > LONGEST_WORD) return nullptr;
  kj::Maybe<kj::StringPtr> nearest;
  size_t best = FARTHEST + 1;
  auto plain = letters(word);
  for (auto each: known) {
    auto far = plain.size() > 0 && plain == letters(each) ? 0 : distance(word, each);
    if (far < best) {
      best = far;
      nearest = each;
    }
  }
  return nearest;
}

}  // namespace capstan
