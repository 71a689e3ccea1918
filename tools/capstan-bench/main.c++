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
    "usage: capstan-bench MEASURE AMOUNT SIDE\n"
    "       capstan-bench MEASURE AMOUNT peer SOCKET\n"
    "       capstan-bench produce OCTETS\n"
    "       capstan-bench consume\n"
    "call, calls, output, input: SIDE is SOCKET, peer, or peer-heap: the peer with Capstan's\n"
    "  allocator settings.\n"
    "launch, launch-new, memory-connections, store-1, store-64: SIDE is SOCKET; the peer needs\n"
    "  SOCKET too, for the daemon's size or its disk.\n"
    "memory-environments: SIDE is SOCKET.\n"
    "AMOUNT is a count of calls, launches, commits, connections or environments, or of MiB.\n"
    "SOCKET is a daemon's: our side.\n"_kj;

struct Arguments {
  Side side;
  kj::StringPtr socket;  // Empty for a peer that needs none.
  uint64_t amount;
};

struct Measure {
  kj::StringPtr name;
  void (*run)(const Arguments&);
};

uint32_t count(const Arguments& all) { return static_cast<uint32_t>(all.amount); }

constexpr Measure MEASURES[] = {
    {"call"_kj, [](const Arguments& all) { measureCall(all.side, all.socket, count(all)); }},
    {"calls"_kj,
     [](const Arguments& all) { measureCallsInFlight(all.side, all.socket, count(all)); }},
    {"output"_kj,
     [](const Arguments& all) { measureOutput(all.side, all.socket, all.amount << 20); }},
    {"input"_kj,
     [](const Arguments& all) { measureInput(all.side, all.socket, all.amount << 20); }},
    {"launch"_kj, [](const Arguments& all) { measureLaunch(all.side, all.socket, count(all)); }},
    {"launch-new"_kj,
     [](const Arguments& all) { measureLaunchNew(all.side, all.socket, count(all)); }},
    {"memory-connections"_kj,
     [](const Arguments& all) { measureConnectionMemory(all.side, all.socket, count(all)); }},
    {"memory-environments"_kj,
     [](const Arguments& all) { measureEnvironmentMemory(all.socket, count(all)); }},
    {"store-1"_kj,
     [](const Arguments& all) { measureStore(all.side, folderOf(all.socket), 1, count(all)); }},
    {"store-64"_kj,
     [](const Arguments& all) { measureStore(all.side, folderOf(all.socket), 64, count(all)); }},
};

int run(kj::ArrayPtr<const kj::StringPtr> words) {
  if (words.size() == 1 && words[0] == "consume") {
    consume();
    return 0;
  }
  if (words.size() == 2 && words[0] == "produce") {
    produce(std::strtoull(words[1].cStr(), nullptr, 10));
    return 0;
  }
  if (words.size() == 3 || words.size() == 4) {
    bool peer = words[2] == "peer" || words[2] == "peer-heap";
    Arguments all{peer ? Side::PEER : Side::OURS, words[words.size() - 1],
                  std::strtoull(words[1].cStr(), nullptr, 10)};
    bool valid = all.amount > 0 && all.amount <= 10'000'000 && (peer || words.size() == 3);
    for (auto& measure: MEASURES) {
      if (!valid || measure.name != words[0]) continue;
      if (words[2] != "peer") keepHeapForStreams();
      measure.run(all);
      return 0;
    }
  }
  std::fputs(USAGE.cStr(), stderr);
  return 2;
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
