#include "agentctl/output-log.h"

#include "support/test.h"

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <csignal>
#include <sys/resource.h>

namespace capstan {

using test::Loop;
using test::TempDir;

namespace {

kj::ArrayPtr<const kj::byte> bytesOf(const std::string& text) {
  return kj::arrayPtr(reinterpret_cast<const kj::byte*>(text.data()), text.size());
}

OutputLogOptions inMemory(bool pause = false) {
  OutputLogOptions options;
  options.pauseWhenFull = pause;
  return options;
}

OutputLogOptions onDisk(const TempDir& folder, uint64_t limit) {
  OutputLogOptions options;
  options.directory = kj::str(folder.path());
  options.name = kj::str("run");
  options.spoolLimitBytes = limit;
  return options;
}

// Everything from `offset` on, checking that it is without a hole but for announced gaps.
struct Read {
  std::string out, err;
  std::string all;
  uint64_t gaps = 0;
  size_t pieces = 0;
};
Read readAll(OutputLog& log, uint64_t offset = 0, size_t maxBytes = OutputLog::MAX_PIECE_BYTES) {
  Read result;
  for (;;) {
    auto found = log.read(offset, maxBytes);
    if (found.is<OutputLog::Nothing>()) return result;
    if (found.is<OutputLog::Gap>()) {
      auto gap = found.get<OutputLog::Gap>();
      REQUIRE(gap.from == offset);
      REQUIRE(gap.to > gap.from);
      result.gaps += gap.to - gap.from;
      offset = gap.to;
      continue;
    }
    auto& piece = found.get<OutputLog::Piece>();
    REQUIRE(piece.offset == offset);
    REQUIRE(piece.bytes.size() > 0);
    REQUIRE(piece.bytes.size() <= maxBytes);
    auto chars = piece.bytes.asChars();
    (piece.stream == OutputStream::STDOUT ? result.out : result.err)
        .append(chars.begin(), chars.size());
    result.all.append(chars.begin(), chars.size());
    ++result.pieces;
    offset += piece.bytes.size();
  }
}

}  // namespace

TEST_CASE("offsets count the octets of all streams, and order is kept") {
  OutputLog log(inMemory());
  CHECK(log.endOffset() == 0);
  log.append(OutputStream::STDOUT, bytesOf("one"));
  log.append(OutputStream::STDERR, bytesOf("two"));
  log.append(OutputStream::STDOUT, bytesOf("three"));
  log.append(OutputStream::STDOUT, bytesOf("four"));
  CHECK(log.endOffset() == 15);
  auto read = readAll(log);
  CHECK(read.all == "onetwothreefour");
  CHECK(read.out == "onethreefour");
  CHECK(read.err == "two");
  CHECK(read.pieces == 3);  // Small writes of one stream coalesce.
  CHECK(readAll(log, 4).all == "wothreefour");
  CHECK(readAll(log, 0, 2).pieces == 9);
  CHECK(readAll(log, 15).all.empty());
  CHECK_THROWS_AS(log.read(16), kj::Exception);
}

TEST_CASE("in memory the oldest goes and a reader gets a gap") {
  OutputLog log(inMemory());
  std::string line(1000, 'x');
  for (int i = 0; i < 1000; ++i) {
    log.append(OutputStream::STDOUT, bytesOf(line));
  }
  CHECK(log.endOffset() == 1'000'000);
  CHECK(log.beginOffset() >= 1'000'000 - OutputLog::RING_BYTES);
  CHECK(log.beginOffset() <= 1'000'000 - OutputLog::RING_BYTES / 2);
  auto read = readAll(log);
  CHECK(read.gaps == log.beginOffset());
  CHECK(read.gaps + read.all.size() == 1'000'000);
  auto behind = log.read(500'000);
  REQUIRE(behind.is<OutputLog::Gap>());
  CHECK(behind.get<OutputLog::Gap>().to == log.beginOffset());
}

TEST_CASE("nothing is lost or mixed up through ring, spool and wrap") {
  TempDir folder;
  OutputLog log(onDisk(folder, 64 << 20));
  std::mt19937 random(7);
  std::string out, err, all;
  uint64_t reader = 0;
  std::string followed;
  for (int i = 0; i < 4000; ++i) {
    std::string piece(random() % (i % 50 == 0 ? 200'000 : 700), static_cast<char>('a' + i % 26));
    bool isErr = random() % 3 == 0;
    log.append(isErr ? OutputStream::STDERR : OutputStream::STDOUT, bytesOf(piece));
    (isErr ? err : out) += piece;
    all += piece;
    if (i % 7 == 0) {  // A reader that keeps up.
      auto now = readAll(log, reader);
      CHECK(now.gaps == 0);
      followed += now.all;
      reader = log.endOffset();
    }
  }
  CHECK(log.beginOffset() == 0);
  auto read = readAll(log);
  CHECK(read.gaps == 0);
  CHECK((read.all == all));
  CHECK((read.out == out));
  CHECK((read.err == err));
  CHECK((all.compare(0, followed.size(), followed) == 0));
  for (uint64_t offset: {uint64_t{1}, uint64_t{65'535}, uint64_t{65'536}, uint64_t{300'001}}) {
    CHECK((readAll(log, offset, 997).all == all.substr(offset)));
  }
  log.end();
  log.settle();  // From disk alone now.
  CHECK((readAll(log).all == all));
  log.remove();
  CHECK(readAll(log).gaps == all.size());
  CHECK(std::system(kj::str("test -z \"$(ls ", folder.path(), ")\"").cStr()) == 0);
}

TEST_CASE("octets appended in place are the same log") {
  TempDir folder;
  OutputLog log(onDisk(folder, 64 << 20));
  std::mt19937 random(11);
  std::string all, err;
  size_t largest = 0;
  for (int i = 0; i < 3000; ++i) {
    auto place = log.space();
    REQUIRE(place.size() > 0);
    REQUIRE(place.size() <= OutputLog::MAX_PIECE_BYTES);
    largest = std::max(largest, place.size());
    // Often all of it, as from a process that is faster than we are.
    auto taken = i % 3 == 0 ? random() % (place.size() + 1) : place.size();
    std::memset(place.begin(), 'a' + i % 26, taken);
    bool isErr = random() % 4 == 0;
    log.appendInPlace(isErr ? OutputStream::STDERR : OutputStream::STDOUT, taken);
    all.append(taken, static_cast<char>('a' + i % 26));
    if (isErr) err.append(taken, static_cast<char>('a' + i % 26));
    if (i % 5 == 0) log.append(OutputStream::STDOUT, bytesOf("mixed"));
    if (i % 5 == 0) all += "mixed";
    if (all.size() > 40 << 20) break;
  }
  CHECK(largest == OutputLog::MAX_PIECE_BYTES);
  CHECK(log.beginOffset() == 0);
  auto read = readAll(log);
  CHECK(read.gaps == 0);
  CHECK((read.all == all));
  CHECK((read.err == err));
  log.end();
  CHECK_THROWS_AS(log.space(), kj::Exception);
}

TEST_CASE("a small log asks for little memory at a time") {
  OutputLog log(inMemory());
  for (int i = 0; i < 3; ++i) {
    CHECK(log.space().size() <= 4096);
    log.appendInPlace(OutputStream::STDOUT, 100);
  }
}

TEST_CASE("a log is ahead only of a reader that is being served") {
  Loop loop;
  OutputLog log(inMemory());
  std::string block(65'536, 'x');
  for (int i = 0; i < 3; ++i) {
    log.append(OutputStream::STDOUT, bytesOf(block));
  }
  CHECK_FALSE(log.isAhead());
  log.beginReading();
  CHECK(log.isAhead());
  auto near = log.drained();
  log.delivered(3 * 65'536 - OutputLog::NEAR_BYTES);
  CHECK(near.poll(loop.waitScope));
  CHECK_FALSE(log.isAhead());
  log.append(OutputStream::STDOUT, bytesOf("x"));
  CHECK(log.isAhead());
  auto alone = log.drained();
  log.endReading();
  CHECK(alone.poll(loop.waitScope));
  CHECK_FALSE(log.isAhead());
}

TEST_CASE("streams that alternate octet by octet stay bounded and right") {
  TempDir folder;
  OutputLog log(onDisk(folder, 64 << 20));
  for (int i = 0; i < 50'000; ++i) {
    log.append(OutputStream::STDOUT, bytesOf("o"));
    log.append(OutputStream::STDERR, bytesOf("e"));
  }
  auto read = readAll(log);
  CHECK(read.gaps == 0);
  CHECK(read.out == std::string(50'000, 'o'));
  CHECK(read.err == std::string(50'000, 'e'));
}

TEST_CASE("the spool's limit deletes whole segments, oldest first") {
  TempDir folder;
  constexpr uint64_t LIMIT = 4 << 20;
  OutputLog log(onDisk(folder, LIMIT));
  std::string block(65'536, 'x');
  for (int i = 0; i < 400; ++i) {
    for (size_t k = 0; k < block.size(); k += 4) {
      auto number = static_cast<uint32_t>(i);
      std::memcpy(&block[k], &number, 4);
    }
    log.append(OutputStream::STDOUT, bytesOf(block));
  }
  uint64_t total = 400ull * 65'536;
  auto read = readAll(log);
  CHECK(read.gaps == log.beginOffset());
  CHECK(read.gaps + read.all.size() == total);
  CHECK(read.all.size() > LIMIT / 2);
  CHECK(read.all.size() < LIMIT + OutputLog::RING_BYTES + 65'536);
  // What is left is the newest, unchanged.
  for (uint64_t at = 0; at < read.all.size(); at += 4096) {
    uint32_t number;
    std::memcpy(&number, read.all.data() + (at & ~3ull), 4);
    REQUIRE(number == (read.gaps + (at & ~3ull)) / 65'536);
  }
  CHECK(log.lost().error == 0);
}

TEST_CASE("a new log begins its segments afresh where an old one lay") {
  TempDir folder;
  std::string block(300'000, 'a');
  {
    OutputLog old(onDisk(folder, 1 << 20));
    for (int i = 0; i < 5; ++i) {
      old.append(OutputStream::STDOUT, bytesOf(block));
    }
  }
  OutputLog log(onDisk(folder, 1 << 20));
  std::string fresh(400'000, 'b');
  log.append(OutputStream::STDERR, bytesOf(fresh));
  auto read = readAll(log);
  CHECK((read.err == fresh));
  CHECK(read.out.empty());
}

TEST_CASE("a full disk costs a gap, not the log") {
  TempDir folder;
  // The file size limit stands for a full disk: writes fail beyond it.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small{200'000, before.rlim_max};
  OutputLog log(onDisk(folder, 64 << 20));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  KJ_DEFER(setrlimit(RLIMIT_FSIZE, &before));
  std::string block(65'536, 'x');
  for (int i = 0; i < 20; ++i) {
    log.append(OutputStream::STDOUT, bytesOf(block));
  }
  CHECK(log.lost().error == EFBIG);
  CHECK(log.lost().bytes > 0);
  auto during = readAll(log);
  CHECK(during.gaps == log.lost().bytes);
  CHECK(during.gaps + during.all.size() == 20 * 65'536);
  CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);  // Space again: it goes on, the hole stays.
  auto lost = log.lost().bytes;
  for (int i = 0; i < 20; ++i) {
    log.append(OutputStream::STDERR, bytesOf(block));
  }
  CHECK(log.lost().bytes == lost);
  auto after = readAll(log);
  CHECK(after.gaps == lost);
  CHECK(after.err.size() == 20 * 65'536);
}

TEST_CASE("a log that pauses is full only of what nobody has taken") {
  Loop loop;
  OutputLog log(inMemory(true));
  std::string block(65'536, 'x');
  for (int i = 0; i < 3; ++i) {
    log.append(OutputStream::STDOUT, bytesOf(block));
    CHECK_FALSE(log.isFull());
  }
  log.append(OutputStream::STDOUT, bytesOf(block));
  CHECK(log.isFull());
  auto room = log.drained();
  CHECK_FALSE(room.poll(loop.waitScope));
  log.delivered(65'536);
  CHECK(room.poll(loop.waitScope));
  CHECK_FALSE(log.isFull());
  log.append(OutputStream::STDOUT, bytesOf(block));
  CHECK(log.isFull());
  auto ended = log.drained();
  log.end();
  CHECK(ended.poll(loop.waitScope));
  CHECK_FALSE(log.isFull());

  TempDir folder;
  auto options = onDisk(folder, 1 << 20);
  options.pauseWhenFull = true;
  OutputLog spooled(kj::mv(options));
  while (!spooled.isFull()) {
    REQUIRE(spooled.endOffset() < 4 << 20);
    spooled.append(OutputStream::STDOUT, bytesOf(block));
  }
  CHECK(spooled.beginOffset() == 0);  // Nothing was dropped.
  CHECK(spooled.endOffset() > 512 << 10);
  spooled.delivered(spooled.endOffset());
  CHECK_FALSE(spooled.isFull());
}

TEST_CASE("while a reader holds, the log is full of what that reader has not got") {
  Loop loop;
  OutputLog log(inMemory());
  std::string block(65'536, 'x');
  for (int i = 0; i < 6; ++i) {
    log.append(OutputStream::STDOUT, bytesOf(block));
  }
  CHECK_FALSE(log.isFull());  // Nobody holds: the oldest went.
  uint64_t slow = log.beginOffset(), quick = log.endOffset();
  log.delivered(quick);
  {
    OutputLog::Hold first(log, quick);
    CHECK_FALSE(log.isFull());
    OutputLog::Hold second(log, slow);
    CHECK(log.isFull());
    auto room = log.drained();
    slow += 65'536;
    log.delivered(slow);
    CHECK(room.poll(loop.waitScope));
    CHECK_FALSE(log.isFull());
    log.append(OutputStream::STDOUT, bytesOf(block));
    CHECK(log.isFull());
    room = log.drained();
    CHECK_FALSE(room.poll(loop.waitScope));
  }
  CHECK_FALSE(log.isFull());
  OutputLog::Hold again(log, slow);
  auto room = log.drained();
  CHECK_FALSE(room.poll(loop.waitScope));
  log.end();
  CHECK(room.poll(loop.waitScope));
}

TEST_CASE("changed wakes every reader at append and end") {
  Loop loop;
  OutputLog log(inMemory());
  auto a = log.changed(), b = log.changed();
  {
    auto dropped = log.changed();
  }
  CHECK_FALSE(a.poll(loop.waitScope));
  log.append(OutputStream::STDOUT, bytesOf("x"));
  CHECK(a.poll(loop.waitScope));
  CHECK(b.poll(loop.waitScope));
  auto c = log.changed();
  CHECK_FALSE(c.poll(loop.waitScope));
  log.end();
  CHECK(c.poll(loop.waitScope));
  CHECK_THROWS_AS(log.append(OutputStream::STDOUT, bytesOf("x")), kj::Exception);
}

TEST_CASE("append and read in memory are fast", "[.][bench]") {
  OutputLog log(inMemory());
  std::string block(32'768, 'x');
  kj::Array<kj::byte> to = kj::heapArray<kj::byte>(65'536);
  auto begin = std::chrono::steady_clock::now();
  uint64_t offset = 0;
  constexpr uint64_t TOTAL = 4ull << 30;
  while (log.endOffset() < TOTAL) {
    log.append(OutputStream::STDOUT, bytesOf(block));
    while (offset < log.endOffset()) {
      auto found = log.read(offset);
      auto& piece = found.get<OutputLog::Piece>();
      std::memcpy(to.begin(), piece.bytes.begin(), piece.bytes.size());
      offset += piece.bytes.size();
    }
  }
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  WARN("GiB/s: " << 4 / took.count());
}

}  // namespace capstan
