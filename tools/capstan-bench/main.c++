// capstan-bench: one side of one measure of tools/bench.

#include "base/memory.h"
#include "tools/capstan-bench/bench.h"

#include <kj/debug.h>
#include <kj/exception.h>

#include <cstdio>
#include <cstdlib>

namespace capstan::bench {
namespace {

constexpr kj::StringPtr USAGE =
    "usage: capstan-bench call|calls|output|input AMOUNT peer|peer-heap|SOCKET\n"
    "       capstan-bench produce OCTETS\n"
    "       capstan-bench consume\n"
    "AMOUNT is a count of calls or of MiB. SOCKET is a daemon's: our side. peer-heap is the peer\n"
    "with Capstan's allocator settings.\n"_kj;

int run(kj::ArrayPtr<const kj::StringPtr> words) {
  if (words.size() == 1 && words[0] == "consume") {
    consume();
    return 0;
  }
  if (words.size() == 2 && words[0] == "produce") {
    produce(std::strtoull(words[1].cStr(), nullptr, 10));
    return 0;
  }
  uint64_t amount = words.size() == 3 ? std::strtoull(words[1].cStr(), nullptr, 10) : 0;
  if (amount == 0 || amount > 10'000'000) {
    std::fputs(USAGE.cStr(), stderr);
    return 2;
  }
  auto side = words[2] == "peer" || words[2] == "peer-heap" ? Side::PEER : Side::OURS;
  if (words[2] != "peer") keepHeapForStreams();
  if (words[0] == "call") {
    measureCall(side, words[2], static_cast<uint32_t>(amount));
  } else if (words[0] == "calls") {
    measureCallsInFlight(side, words[2], static_cast<uint32_t>(amount));
  } else if (words[0] == "output") {
    measureOutput(side, words[2], amount << 20);
  } else if (words[0] == "input") {
    measureInput(side, words[2], amount << 20);
  } else {
    std::fputs(USAGE.cStr(), stderr);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace capstan::bench

int main(int argc, char** argv) {
  kj::Vector<kj::StringPtr> words;
  for (int i = 1; i < argc; ++i)
    words.add(argv[i]);
  try {
    return capstan::bench::run(words);
  } catch (const kj::Exception& exception) {
    std::fprintf(stderr, "capstan-bench: %s\n", kj::str(exception).cStr());
    return 1;
  }
}
