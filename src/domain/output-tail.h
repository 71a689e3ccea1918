#pragma once
// The end of a process's output as it may be shown to people and kept.

#include <kj/array.h>
#include <kj/string.h>
#include <kj/vector.h>

#include <bitset>

namespace capstan {

// Takes output piece by piece and keeps its tail as valid text. Secrets become "***" also where
// they lie across two pieces; of a secret with several lines every longer line is one too. Terminal
// sequences and control characters go, and a line that is written over ("\r") is kept as it was
// last. Needs some three times `limit` of memory and the length of the longest secret.
class OutputTail final {
public:
  // Empty secrets are passed over. `limit` in octets, at least 4.
  OutputTail(kj::ArrayPtr<const kj::String> secrets, size_t limit);
  KJ_DISALLOW_COPY_AND_MOVE(OutputTail);

  void add(kj::ArrayPtr<const kj::byte> bytes);
  // So many octets of the output were lost.
  void gap(uint64_t octets);
  // Nothing follows: what could have been the beginning of a secret is shown.
  void finish();

  // Valid UTF-8, at most `limit` octets, cut between characters.
  kj::String text() const;
  // The last line that is not blank, at most 300 octets: most programs put their reason there.
  kj::String lastLine() const;

private:
  enum class Mode : uint8_t { TEXT, ESCAPE, SEQUENCE, STRING };

  kj::Vector<kj::String> secrets;  // The longest first.
  std::bitset<256> firsts;         // Octets with which one begins.
  size_t limit;
  kj::Vector<char> pending;  // May be the beginning of a secret.
  kj::Vector<char> kept;
  size_t lineBegin = 0;  // In `kept`.
  bool carriage = false;
  bool finished = false;
  Mode mode = Mode::TEXT;

  void unmask();
  void take(char c);
  void trim();
};

}  // namespace capstan
