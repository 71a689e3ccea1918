#pragma once
// The on-disk part of an output log: blocks of at most 64 KiB, appended to a few segment files,
// the oldest segment deleted when the limit is reached. Not a store: it lives and dies with its
// helper, nothing is synced.

#include "stream.capnp.h"

#include <kj/array.h>
#include <kj/io.h>
#include <kj/string.h>
#include <kj/vector.h>

#include <cstdint>
#include <deque>

namespace capstan {

using rpc::OutputStream;

// `size` octets of one stream, in the order they were read.
struct OutputRun {
  uint32_t size;
  OutputStream stream;
};

// Blocks of consecutive output on disk. All calls are synchronous (page cache). Errors of the disk
// are values: a log must survive a full one.
class Spool {
public:
  static constexpr size_t MAX_BLOCK_BYTES = 65536;

  // Files are named `directory`/`name`.N.spool (0600) and made when the first block is written;
  // one that is already there is overwritten. `limitBytes` bounds all of them together, at least
  // four blocks.
  Spool(kj::StringPtr directory, kj::StringPtr name, uint64_t limitBytes);
  ~Spool() noexcept(false);  // Closes, deletes nothing: that is removeFiles().
  KJ_DISALLOW_COPY_AND_MOVE(Spool);

  // Writes the octets that begin at `offset`: `runs` cut them up, `parts` are the octets, in at
  // most two pieces. Offsets never decrease; a hole is what could not be written. Returns 0, or the
  // errno with which the block was lost.
  int write(uint64_t offset, kj::ArrayPtr<const OutputRun> runs, kj::ArrayPtr<const kj::byte> first,
            kj::ArrayPtr<const kj::byte> second);

  struct Piece {
    uint64_t offset;
    OutputStream stream;
    kj::ArrayPtr<const kj::byte> bytes;  // Good until the next call on the spool.
  };
  // The octets of one stream from `offset` on, at most `maxBytes`. Null: they are not here.
  kj::Maybe<Piece> read(uint64_t offset, size_t maxBytes);

  // The first offset >= `offset` that is kept; null: none.
  kj::Maybe<uint64_t> firstKept(uint64_t offset) const;

  // Where the block ends that holds `offset`; `offset` itself when none does.
  uint64_t endOfBlock(uint64_t offset) const;

  // Whether a block of full size can be written without deleting the oldest segment, and where
  // that segment's octets end (0 = there is none).
  bool hasRoom() const;
  uint64_t endOfOldestSegment() const;

  // Deletes every file. The spool is empty afterwards and may be used again.
  void removeFiles();

private:
  struct Block {
    uint64_t offset;
    uint64_t filePosition;
    uint32_t size;
    uint32_t fileSize;
    uint32_t segment;
  };
  struct Segment {
    uint32_t number;
    kj::AutoCloseFd fd;
    uint64_t fileSize = 0;
  };

  kj::String directory;
  kj::String name;
  uint64_t segmentLimit;
  std::deque<Segment> segments;
  std::deque<Block> blocks;
  uint32_t nextSegment = 0;
  uint64_t cachedOffset = UINT64_MAX;  // Which block `cache` holds.
  kj::Vector<uint32_t> words;          // The run words of the block being written.
  kj::Array<kj::byte> cache;           // The block last read.

  kj::String pathOf(uint32_t segment) const;
  int openSegment();
  int nextFile();
  void dropOldest();
  void forgetOldest();
  const Block* find(uint64_t offset) const;
  bool load(const Block& block);
};

}  // namespace capstan
