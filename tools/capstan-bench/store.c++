#include "store/database.h"
#include "tools/capstan-bench/bare-sqlite.h"
#include "tools/capstan-bench/bench.h"

#include <kj/debug.h>
#include <kj/vector.h>

#include <cstdio>
#include <unistd.h>

namespace capstan::bench {

namespace {

kj::Promise<void> writeOften(Database& store, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    auto outcome = co_await store.write([](Connection& db) -> Outcome {
      db.run(INSERT_ROW, rowValue());
      return nullptr;
    });
    KJ_IF_MAYBE (problem, outcome) {
      KJ_FAIL_REQUIRE("a write failed", *problem);
    }
  }
}

// Writes of `writers` that each wait for their own before the next; seconds for all.
double writeThroughStore(kj::StringPtr path, uint32_t writers, uint32_t each) {
  auto io = kj::setupAsyncIo();
  DatabaseOptions options;
  options.path = kj::str(path);
  auto opened = Database::open(kj::mv(options)).wait(io.waitScope);
  if (opened.is<Problem>()) KJ_FAIL_REQUIRE("cannot open", opened.get<Problem>());
  auto& store = *opened.get<kj::Own<Database>>();
  auto made = store
                  .write([](Connection& db) -> Outcome {
                    db.script(CREATE_ROWS);
                    return nullptr;
                  })
                  .wait(io.waitScope);
  KJ_REQUIRE(made == nullptr);
  auto begin = nowNs();
  kj::Vector<kj::Promise<void>> all;
  for (uint32_t i = 0; i < writers; ++i)
    all.add(writeOften(store, each));
  kj::joinPromises(all.releaseAsArray()).wait(io.waitScope);
  auto seconds = (nowNs() - begin) / 1e9;
  store.close().wait(io.waitScope);
  return seconds;
}

}  // namespace

void measureStore(Side side, kj::StringPtr folder, uint32_t writers, uint32_t count) {
  auto each = count / writers + 1;
  double seconds;
  if (side == Side::PEER) {
    // SQLite lets one write at a time, so one connection that never waits for a lock is its best.
    BareSqlite bare(folder);
    auto begin = nowNs();
    for (uint32_t i = 0; i < each * writers; ++i)
      bare.commit();
    seconds = (nowNs() - begin) / 1e9;
  } else {
    auto path = kj::str(folder, "/store-", getpid(), ".db");
    seconds = writeThroughStore(path, writers, each);
    for (auto suffix: {"", "-wal", "-shm"}) {
      unlink(kj::str(path, suffix).cStr());
    }
  }
  std::printf("{\"rate\": %.1f}\n", each * writers / seconds);
}

}  // namespace capstan::bench
