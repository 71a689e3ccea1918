#include "agentctl/output-log.h"

#include <kj/debug.h>

#include <algorithm>
#include <cstring>

namespace capstan {

namespace {

constexpr size_t SMALLEST_RING = 4096;
// Bounds the index when a process alternates between its streams octet by octet.
constexpr size_t MAX_MARKS = 8192;

}  // namespace

kj::Promise<void> OutputLog::Signal::wait() {
  KJ_IF_MAYBE (p, promise) {
    return p->addBranch();
  }
  auto paf = kj::newPromiseAndFulfiller<void>();
  fulfiller = kj::mv(paf.fulfiller);
  return promise.emplace(paf.promise.fork()).addBranch();
}

void OutputLog::Signal::notify() {
  if (promise == nullptr) return;
  fulfiller->fulfill();
  promise = nullptr;
}

OutputLog::OutputLog(OutputLogOptions optionsParam): options(kj::mv(optionsParam)) {
  if (options.directory.size() > 0) {
    spool = kj::heap<Spool>(options.directory, options.name, options.spoolLimitBytes);
  }
}

OutputLog::~OutputLog() noexcept(false) {}

kj::ArrayPtr<const kj::byte> OutputLog::contiguous(uint64_t offset, size_t size) const {
  size_t at = offset & (ring.size() - 1);
  return ring.slice(at, at + std::min(size, ring.size() - at));
}

void OutputLog::grow(size_t atLeast) {
  size_t size = std::max(ring.size(), SMALLEST_RING);
  while (size < atLeast && size < RING_BYTES) {
    size *= 2;
  }
  if (size == ring.size()) return;
  auto bigger = kj::heapArray<kj::byte>(size);
  for (uint64_t at = ringBegin; at < endOfLog;) {
    // Cut at the ends of both rings.
    auto piece = contiguous(at, static_cast<size_t>(endOfLog - at));
    size_t to = at & (size - 1);
    size_t taken = std::min(piece.size(), size - to);
    std::memcpy(bigger.begin() + to, piece.begin(), taken);
    at += taken;
  }
  ring = kj::mv(bigger);
}

void OutputLog::append(OutputStream stream, kj::ArrayPtr<const kj::byte> bytes) {
  KJ_REQUIRE(!isEnded, "append to a log that has ended");
  if (bytes.size() == 0) return;
  while (bytes.size() > 0) {
    if (inRing() + bytes.size() > ring.size() && ring.size() < RING_BYTES) {
      grow(inRing() + bytes.size());
    }
    size_t free = ring.size() - inRing();
    if (free < std::min(bytes.size(), MAX_PIECE_BYTES) || marks.size() >= MAX_MARKS) {
      evict(std::min(inRing(), MAX_PIECE_BYTES));
      continue;
    }
    size_t taken = std::min(bytes.size(), free);
    size_t at = endOfLog & (ring.size() - 1);
    size_t untilWrap = std::min(taken, ring.size() - at);
    std::memcpy(ring.begin() + at, bytes.begin(), untilWrap);
    if (taken > untilWrap) {
      std::memcpy(ring.begin(), bytes.begin() + untilWrap, taken - untilWrap);
    }
    added(stream, taken);
    bytes = bytes.slice(taken, bytes.size());
  }
  change.notify();
}

void OutputLog::added(OutputStream stream, size_t size) {
  if (marks.empty() || marks.back().stream != stream) marks.push_back(Mark{endOfLog, stream});
  endOfLog += size;
}

kj::ArrayPtr<kj::byte> OutputLog::space() {
  KJ_REQUIRE(!isEnded, "append to a log that has ended");
  // Small as long as the process writes little at a time.
  if (ring.size() < RING_BYTES && (filled || inRing() == ring.size())) grow(ring.size() * 2);
  filled = false;
  while (marks.size() >= MAX_MARKS ||
         (ring.size() == RING_BYTES && inRing() + MAX_PIECE_BYTES > RING_BYTES)) {
    evict(std::min(inRing(), MAX_PIECE_BYTES));
  }
  size_t at = endOfLog & (ring.size() - 1);
  size_t free = std::min(ring.size() - inRing(), MAX_PIECE_BYTES);
  return ring.slice(at, at + std::min(free, ring.size() - at));
}

void OutputLog::appendInPlace(OutputStream stream, size_t size) {
  if (size == 0) return;
  filled = size == std::min(std::min(ring.size() - inRing(), MAX_PIECE_BYTES),
                            ring.size() - (endOfLog & (ring.size() - 1)));
  added(stream, size);
  change.notify();
}

void OutputLog::end() {
  if (isEnded) return;
  isEnded = true;
  change.notify();
  drain.notify();
}

void OutputLog::forgetMarks() {
  while (marks.size() > 1 && marks[1].offset <= ringBegin) {
    marks.pop_front();
  }
  if (ringBegin == endOfLog) marks.clear();
}

// Moves the oldest `bytes` octets out of the ring.
void OutputLog::evict(size_t bytes) {
  if (bytes == 0) return;
  KJ_IF_MAYBE (disk, spool) {
    uint64_t end = ringBegin + bytes;
    kj::Vector<OutputRun> runs;
    for (size_t i = 0; i < marks.size() && marks[i].offset < end; ++i) {
      uint64_t from = std::max(marks[i].offset, ringBegin);
      uint64_t to = i + 1 < marks.size() ? std::min(marks[i + 1].offset, end) : end;
      if (to > from) runs.add(OutputRun{static_cast<uint32_t>(to - from), marks[i].stream});
    }
    auto first = contiguous(ringBegin, bytes);
    auto second = contiguous(ringBegin + first.size(), bytes - first.size());
    int error = (*disk)->write(ringBegin, runs, first, second);
    if (error != 0) {
      losses.bytes += bytes;
      if (losses.error == 0) losses.error = error;
    }
  }
  ringBegin += bytes;
  forgetMarks();
}

uint64_t OutputLog::beginOffset() const {
  KJ_IF_MAYBE (disk, spool) {
    KJ_IF_MAYBE (kept, (*disk)->firstKept(0)) {
      return *kept;
    }
  }
  return ringBegin;
}

OutputLog::Read OutputLog::read(uint64_t offset, size_t maxBytes) {
  KJ_REQUIRE(offset <= endOfLog, "read beyond the end of an output log");
  maxBytes = std::min(maxBytes, MAX_PIECE_BYTES);
  if (offset == endOfLog) return Nothing();
  if (offset < ringBegin) {
    KJ_IF_MAYBE (disk, spool) {
      KJ_IF_MAYBE (piece, (*disk)->read(offset, maxBytes)) {
        return Piece{piece->offset, piece->stream, piece->bytes};
      }
      // A block that is there but can no longer be read counts as lost, too.
      KJ_IF_MAYBE (kept, (*disk)->firstKept(offset)) {
        if (*kept > offset) return Gap{offset, *kept};
        return Gap{offset, std::min(ringBegin, (*disk)->endOfBlock(offset))};
      }
    }
    return Gap{offset, ringBegin};
  }
  auto after = std::upper_bound(marks.begin(), marks.end(), offset,
                                [](uint64_t o, const Mark& mark) { return o < mark.offset; });
  uint64_t end = after == marks.end() ? endOfLog : after->offset;
  return Piece{offset, std::prev(after)->stream,
               contiguous(offset, std::min<size_t>(end - offset, maxBytes))};
}

void OutputLog::delivered(uint64_t offset) {
  if (offset <= readOffset && holders.empty()) return;
  readOffset = std::max(readOffset, offset);
  drain.notify();
}

kj::Maybe<uint64_t> OutputLog::wantedFrom() const {
  kj::Maybe<uint64_t> from;
  if (options.pauseWhenFull) from = readOffset;
  for (auto* offset: holders) {
    KJ_IF_MAYBE (known, from) {
      from = std::min(*known, *offset);
    } else {
      from = *offset;
    }
  }
  return from;
}

kj::Promise<void> OutputLog::changed() { return change.wait(); }

bool OutputLog::isFull() const {
  auto wanted = wantedFrom();
  if (wanted == nullptr || isEnded) return false;
  auto from = KJ_ASSERT_NONNULL(wanted);
  if (inRing() + MAX_PIECE_BYTES <= RING_BYTES && marks.size() < MAX_MARKS / 2) return false;
  KJ_IF_MAYBE (disk, spool) {
    return !(*disk)->hasRoom() && from < (*disk)->endOfOldestSegment();
  }
  return from < std::min(endOfLog, ringBegin + MAX_PIECE_BYTES);
}

kj::Promise<void> OutputLog::drained() { return drain.wait(); }

void OutputLog::settle() {
  if (spool != nullptr) {
    while (inRing() > 0) {
      evict(std::min(inRing(), MAX_PIECE_BYTES));
    }
    ring = nullptr;
  }
}

void OutputLog::remove() {
  KJ_IF_MAYBE (disk, spool) {
    (*disk)->removeFiles();
  }
  ringBegin = endOfLog;
  marks.clear();
  ring = nullptr;
}

}  // namespace capstan
