#include "agentctl/spool.h"

#include <kj/debug.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr uint32_t SEGMENTS = 8;  // Deleting the oldest loses an eighth of the log at once.
constexpr uint32_t BLOCK_MAGIC = 0x4c505343;  // "CSPL"

// Before each block: who it is. Then one word per run (size, top bit = stderr), then the octets.
struct BlockHeader {
  uint32_t magic;
  uint32_t runs;
  uint64_t offset;
};
constexpr uint32_t STDERR_BIT = 0x80000000;

// The parts one behind the other. Returns 0 or errno.
int writeAll(int fd, kj::ArrayPtr<iovec> parts, uint64_t position) {
  while (parts.size() > 0) {
    ssize_t n =
        pwritev(fd, parts.begin(), static_cast<int>(parts.size()), static_cast<off_t>(position));
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (n == 0) return ENOSPC;
    position += static_cast<uint64_t>(n);
    auto written = static_cast<size_t>(n);
    while (parts.size() > 0 && written >= parts[0].iov_len) {
      written -= parts[0].iov_len;
      parts = parts.slice(1, parts.size());
    }
    if (written > 0) {
      parts[0].iov_base = static_cast<kj::byte*>(parts[0].iov_base) + written;
      parts[0].iov_len -= written;
    }
  }
  return 0;
}

iovec partOf(kj::ArrayPtr<const kj::byte> bytes) {
  // The kernel only reads from it.
  return iovec{const_cast<kj::byte*>(bytes.begin()), bytes.size()};
}

bool readAll(int fd, kj::ArrayPtr<kj::byte> bytes, uint64_t position) {
  while (bytes.size() > 0) {
    ssize_t n = pread(fd, bytes.begin(), bytes.size(), static_cast<off_t>(position));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.slice(static_cast<size_t>(n), bytes.size());
    position += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

Spool::Spool(kj::StringPtr directory, kj::StringPtr name, uint64_t limitBytes)
    : directory(kj::heapString(directory)),
      name(kj::heapString(name)),
      segmentLimit(std::max<uint64_t>(limitBytes / SEGMENTS, MAX_BLOCK_BYTES / 2)) {}

Spool::~Spool() noexcept(false) {}

kj::String Spool::pathOf(uint32_t segment) const {
  return kj::str(directory, '/', name, '.', segment, ".spool");
}

int Spool::openSegment() {
  auto path = pathOf(nextSegment);
  int fd = open(path.cStr(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  segments.push_back(Segment{nextSegment++, kj::AutoCloseFd(fd)});
  return 0;
}

int Spool::nextFile() {
  if (segments.size() < SEGMENTS) return openSegment();
  // The oldest one's file becomes the newest: writing over pages that the kernel has already costs
  // a fraction of what new ones cost.
  auto path = pathOf(segments.front().number);
  auto fresh = pathOf(nextSegment);
  if (rename(path.cStr(), fresh.cStr()) != 0) {
    dropOldest();
    return openSegment();
  }
  auto fd = kj::mv(segments.front().fd);
  forgetOldest();
  segments.push_back(Segment{nextSegment++, kj::mv(fd)});
  return 0;
}

void Spool::dropOldest() {
  unlink(pathOf(segments.front().number).cStr());
  forgetOldest();
}

void Spool::forgetOldest() {
  auto number = segments.front().number;
  segments.pop_front();
  while (!blocks.empty() && blocks.front().segment == number) {
    blocks.pop_front();
  }
}

int Spool::write(uint64_t offset, kj::ArrayPtr<const OutputRun> runs,
                 kj::ArrayPtr<const kj::byte> first, kj::ArrayPtr<const kj::byte> second) {
  size_t size = first.size() + second.size();
  KJ_REQUIRE(size > 0 && size <= MAX_BLOCK_BYTES, "wrong size of a spool block", size);
  KJ_REQUIRE(blocks.empty() || offset >= blocks.back().offset + blocks.back().size);
  size_t fileSize = sizeof(BlockHeader) + runs.size() * sizeof(uint32_t) + size;

  if (segments.empty() ||
      (segments.back().fileSize > 0 && segments.back().fileSize + fileSize > segmentLimit)) {
    if (int error = nextFile(); error != 0) return error;
  }
  BlockHeader header{BLOCK_MAGIC, static_cast<uint32_t>(runs.size()), offset};
  words.clear();
  for (auto& run: runs) {
    words.add(run.size | (run.stream == OutputStream::STDERR ? STDERR_BIT : 0));
  }
  iovec parts[] = {
      {&header, sizeof(header)}, partOf(words.asPtr().asBytes()), partOf(first), partOf(second)};

  auto& segment = segments.back();
  int error = writeAll(segment.fd, parts, segment.fileSize);
  if (error != 0) return error;
  blocks.push_back(Block{offset, segment.fileSize, static_cast<uint32_t>(size),
                         static_cast<uint32_t>(fileSize), segment.number});
  segment.fileSize += fileSize;
  return 0;
}

const Spool::Block* Spool::find(uint64_t offset) const {
  auto after = std::upper_bound(blocks.begin(), blocks.end(), offset,
                                [](uint64_t o, const Block& block) { return o < block.offset; });
  if (after == blocks.begin()) return nullptr;
  const Block& block = *std::prev(after);
  return offset < block.offset + block.size ? &block : nullptr;
}

bool Spool::load(const Block& block) {
  if (cachedOffset == block.offset) return true;
  cachedOffset = UINT64_MAX;
  if (cache.size() < block.fileSize) cache = kj::heapArray<kj::byte>(block.fileSize);
  for (auto& segment: segments) {
    if (segment.number != block.segment) continue;
    if (!readAll(segment.fd, cache.slice(0, block.fileSize), block.filePosition)) return false;
    BlockHeader header;
    std::memcpy(&header, cache.begin(), sizeof(header));
    if (header.magic != BLOCK_MAGIC || header.offset != block.offset ||
        sizeof(header) + uint64_t{header.runs} * sizeof(uint32_t) + block.size != block.fileSize) {
      return false;
    }
    cachedOffset = block.offset;
    return true;
  }
  return false;
}

kj::Maybe<Spool::Piece> Spool::read(uint64_t offset, size_t maxBytes) {
  const Block* block = find(offset);
  if (block == nullptr || !load(*block)) return nullptr;
  BlockHeader header;
  std::memcpy(&header, cache.begin(), sizeof(header));
  const kj::byte* words = cache.begin() + sizeof(header);
  const kj::byte* octets = words + header.runs * sizeof(uint32_t);
  uint64_t begin = 0, wanted = offset - block->offset;
  for (uint32_t i = 0; i < header.runs; ++i) {
    uint32_t word;
    std::memcpy(&word, words + i * sizeof(word), sizeof(word));
    uint64_t end = std::min<uint64_t>(begin + (word & ~STDERR_BIT), block->size);
    if (wanted < end) {
      size_t size = std::min<size_t>(end - wanted, maxBytes);
      return Piece{offset, (word & STDERR_BIT) != 0 ? OutputStream::STDERR : OutputStream::STDOUT,
                   kj::arrayPtr(octets + wanted, size)};
    }
    begin = end;
  }
  return nullptr;
}

kj::Maybe<uint64_t> Spool::firstKept(uint64_t offset) const {
  auto it = std::upper_bound(
      blocks.begin(), blocks.end(), offset,
      [](uint64_t o, const Block& block) { return o < block.offset + block.size; });
  if (it == blocks.end()) return nullptr;
  return std::max(offset, it->offset);
}

uint64_t Spool::endOfBlock(uint64_t offset) const {
  const Block* block = find(offset);
  return block == nullptr ? offset : block->offset + block->size;
}

bool Spool::hasRoom() const {
  return segments.size() < SEGMENTS ||
         segments.back().fileSize + MAX_BLOCK_BYTES * 2 <= segmentLimit;
}

uint64_t Spool::endOfOldestSegment() const {
  uint64_t end = 0;
  for (auto& block: blocks) {
    if (block.segment != segments.front().number) break;
    end = block.offset + block.size;
  }
  return end;
}

void Spool::removeFiles() {
  while (!segments.empty()) {
    dropOldest();
  }
  blocks.clear();
  cachedOffset = UINT64_MAX;
}

}  // namespace capstan
