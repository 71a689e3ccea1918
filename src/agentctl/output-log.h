#pragma once
// The output log of one run: every octet of its streams, numbered from 0 across all streams, so
// that order is kept and a reader that comes back names the offset it wants next. The newest
// 256 KiB lie in memory, older ones in a spool, the oldest go.

#include "agentctl/spool.h"

#include <kj/async.h>
#include <kj/one-of.h>

#include <vector>

namespace capstan {

struct OutputLogOptions {
  // Where the spool files go; empty = memory only. Files are named after `name`.
  kj::String directory;
  kj::String name;
  uint64_t spoolLimitBytes = 64 << 20;
  // Whether isFull() ever says yes: then the reader of the process is to stop rather than lose
  // octets that nobody has taken yet.
  bool pauseWhenFull = false;
};

// Append on one side, any number of readers with positions of their own on the other. No I/O but
// the spool's; everything is synchronous except the two wake-ups.
class OutputLog {
public:
  static constexpr size_t RING_BYTES = 256 << 10;
  static constexpr size_t MAX_PIECE_BYTES = 65536;
  static constexpr size_t NEAR_BYTES = RING_BYTES / 2;  // How close isAhead() calls near.

  explicit OutputLog(OutputLogOptions options);
  ~OutputLog() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(OutputLog);

  // Adds octets (any number). Never fails: what the disk refuses becomes a gap and is remembered
  // in lost(). Requires !ended().
  void append(OutputStream stream, kj::ArrayPtr<const kj::byte> bytes);
  // The same without a copy: a place for the next octets, 1 to 64 KiB, good until the next call on
  // the log; then `size` of it are there. Making the place may move older octets to the spool.
  kj::ArrayPtr<kj::byte> space();
  void appendInPlace(OutputStream stream, size_t size);
  // No more output. Idempotent.
  void end();
  bool ended() const { return isEnded; }

  uint64_t beginOffset() const;                    // Of the oldest octet still kept.
  uint64_t endOffset() const { return endOfLog; }  // After the newest.

  struct Piece {
    uint64_t offset;
    OutputStream stream;
    kj::ArrayPtr<const kj::byte> bytes;  // Good until the next call on the log.
  };
  struct Gap {
    uint64_t from;
    uint64_t to;
  };
  struct Nothing {};  // `offset` is the end; wait for changed() unless ended().
  using Read = kj::OneOf<Nothing, Gap, Piece>;

  // What stands at `offset` (<= endOffset()): octets of one stream, at most `maxBytes`, or the gap
  // that begins there.
  Read read(uint64_t offset, size_t maxBytes = MAX_PIECE_BYTES);

  // A reader that is being served; how far the furthest one has come is known from delivered().
  void beginReading() { ++readers; }
  void endReading() {
    --readers;
    drain.notify();
  }
  // Whether octets are about to leave the memory before a reader that is being served has got them.
  bool isAhead() const { return readers > 0 && !isEnded && endOfLog - readOffset > NEAR_BYTES; }
  uint64_t deliveredOffset() const { return readOffset; }

  // While it lives, isFull() also speaks for a reader who wants every octet: it stands at
  // `*offset`, which the reader moves on and tells by delivered(). The log and the offset must
  // outlive it.
  class Hold {
  public:
    Hold(OutputLog& log, const uint64_t& offset): log(log), offset(offset) {
      log.holders.push_back(&offset);
    }
    ~Hold() noexcept(false) {
      std::erase(log.holders, &offset);
      log.drain.notify();
    }
    KJ_DISALLOW_COPY_AND_MOVE(Hold);

  private:
    OutputLog& log;
    const uint64_t& offset;
  };

  // A reader has delivered everything before `offset`; only what lies beyond the furthest reader
  // counts as unread for isFull().
  void delivered(uint64_t offset);

  // Resolves at the next append() or end(). Dropping it leaves nothing.
  kj::Promise<void> changed();

  // Whether appending 64 KiB now would throw away unread octets; false unless pauseWhenFull or a
  // Hold says that they are wanted.
  bool isFull() const;
  // Resolves when isFull() or isAhead() may have become false. Dropping it leaves nothing.
  kj::Promise<void> drained();

  struct Lost {
    uint64_t bytes = 0;  // Which the disk refused.
    int error = 0;       // The first errno; 0 = nothing was lost.
  };
  Lost lost() const { return losses; }

  // Moves everything to the spool, if there is one, and gives the memory back. For ended logs.
  void settle();
  // Deletes the spool files and everything kept.
  void remove();

private:
  struct Mark {  // Where a run of one stream begins.
    uint64_t offset;
    OutputStream stream;
  };
  class Signal {  // A broadcast without memory.
  public:
    kj::Promise<void> wait();
    void notify();

  private:
    kj::Maybe<kj::ForkedPromise<void>> promise;
    kj::Own<kj::PromiseFulfiller<void>> fulfiller;
  };

  OutputLogOptions options;
  kj::Maybe<kj::Own<Spool>> spool;
  kj::Array<kj::byte> ring;  // Its size is a power of two; grows up to RING_BYTES.
  uint64_t ringBegin = 0;    // Octets [ringBegin, endOfLog) are in the ring.
  uint64_t endOfLog = 0;
  uint64_t readOffset = 0;
  bool filled = false;     // The last append in place took all of its place.
  std::deque<Mark> marks;  // Covers the ring; the first may begin before ringBegin.
  uint32_t readers = 0;
  std::vector<const uint64_t*> holders;
  bool isEnded = false;
  Lost losses;
  Signal change;
  Signal drain;

  // What may not be dropped begins here; null = nothing is wanted.
  kj::Maybe<uint64_t> wantedFrom() const;
  size_t inRing() const { return static_cast<size_t>(endOfLog - ringBegin); }
  kj::ArrayPtr<const kj::byte> contiguous(uint64_t offset, size_t size) const;
  void grow(size_t atLeast);
  void added(OutputStream stream, size_t size);
  void evict(size_t bytes);
  void forgetMarks();
};

}  // namespace capstan
