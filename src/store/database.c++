#include "store/database.h"

#include "store/schema.h"

#include <kj/debug.h>
#include <kj/mutex.h>
#include <kj/thread.h>
#include <kj/vector.h>

#include <deque>
#include <signal.h>

namespace capstan {

namespace {

Problem closedProblem() {
  return Problem(ErrorCode::SHUTTING_DOWN, kj::str("the state store is closed"))
      .retryable(RetryHint::SAME_REQUEST_LATER);
}

// A thread that is started while it lives inherits a mask that blocks all signals: they belong to
// the loop's thread.
class BlockedSignals {
public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  KJ_DISALLOW_COPY_AND_MOVE(BlockedSignals);

private:
  sigset_t before;
};

}  // namespace

// The thread's side. What is guarded is shared with the loop; the rest is the thread's own.
class Database::Worker {
public:
  using Batch = kj::Vector<kj::Own<Request>>;
  using OpenFulfiller = kj::CrossThreadPromiseFulfiller<Outcome>;

  Worker(DatabaseOptions options, kj::Own<OpenFulfiller> opened)
      : options(kj::mv(options)), opened(kj::mv(opened)) {
    BlockedSignals blocked;
    thread = kj::heap<kj::Thread>([this]() { main(); });
  }
  ~Worker() noexcept(false) {
    shared.lockExclusive()->aborting = true;
    thread = nullptr;  // Joins.
  }
  KJ_DISALLOW_COPY_AND_MOVE(Worker);

  struct Shared {
    std::deque<kj::Own<Request>> queue;
    size_t bytes = 0;
    bool closing = false;
    bool aborting = false;
    uint64_t failures = 0;           // Failed transactions so far,
    uint64_t told = 0;               // and of these the loop was told.
    kj::Maybe<Problem> lastFailure;  // Null when the last write succeeded.
    kj::Maybe<kj::Own<kj::CrossThreadPromiseFulfiller<uint64_t>>> watcher;
    kj::Maybe<kj::Own<kj::CrossThreadPromiseFulfiller<void>>> closed;
    DatabaseStats stats;

    void tell() {
      KJ_IF_MAYBE (w, watcher) {
        told = failures;
        (*w)->fulfill(uint64_t(failures));
        watcher = nullptr;
      }
    }
  };
  kj::MutexGuarded<Shared> shared;
  const DatabaseOptions options;

private:
  kj::Own<OpenFulfiller> opened;
  kj::Maybe<kj::Own<Connection>> connection;
  bool damaged = false;
  kj::Own<kj::Thread> thread;  // Last: it uses the rest.

  Connection& db() { return *KJ_ASSERT_NONNULL(connection); }

  void main() {
    KJ_IF_MAYBE (problem, openFile()) {
      connection = nullptr;
      opened->fulfill(kj::mv(*problem));
      return;
    }
    opened->fulfill(nullptr);
    for (;;) {
      auto batch = take();
      if (batch.size() == 0) break;
      process(batch);
    }
    end();
  }

  Outcome openFile() {
    try {
      auto result = Connection::open(options.path, options.connection);
      if (result.is<Problem>()) return kj::mv(result.get<Problem>());
      connection = kj::mv(result.get<kj::Own<Connection>>());
      return migrate(db());
    } catch (const kj::Exception& exception) {
      return asProblem(exception);
    }
  }

  // What waits, up to the bound of one commit; empty = the end.
  Batch take() {
    return shared.when([](const Shared& s) { return !s.queue.empty() || s.closing || s.aborting; },
                       [this](Shared& s) {
                         Batch batch;
                         if (s.aborting) return batch;
                         while (!s.queue.empty() && batch.size() < options.requestsPerCommit) {
                           s.bytes -= s.queue.front()->bytes;
                           batch.add(kj::mv(s.queue.front()));
                           s.queue.pop_front();
                         }
                         return batch;
                       });
  }

  void process(Batch& batch) {
    // A write whose caller did not know of a failure before it must not be done: it may build on
    // what was lost.
    Batch refused, active;
    kj::Maybe<Problem> reason;
    uint64_t failures;
    {
      auto lock = shared.lockExclusive();
      failures = lock->failures;
      KJ_IF_MAYBE (problem, lock->lastFailure) {
        reason = problem->clone();
      }
    }
    for (auto& request: batch) {
      bool stale = request->failuresSeen < failures || damaged;
      if (request->access == Access::WRITE && stale) {
        KJ_IF_MAYBE (problem, reason) {
          request->refuse(problem->clone());
        } else {
          request->refuse(
              Problem(ErrorCode::CANCELLED, kj::str("a write before this one has failed"))
                  .retryable(RetryHint::SAME_REQUEST_LATER));
        }
        refused.add(kj::mv(request));
      } else {
        active.add(kj::mv(request));
      }
    }
    answer(refused, failures);
    uint64_t writes = 0;
    for (auto& request: active) {
      if (request->access == Access::WRITE) ++writes;
    }
    KJ_IF_MAYBE (failure, attemptTwice(active, writes > 0)) {
      if (writes > 0) {
        failAll(active, kj::mv(*failure));
      } else {
        for (auto& request: active)
          runAlone(*request);
        answer(active, failures);
      }
    } else {
      if (writes > 0) succeeded(writes);
      answer(active, failures);
    }
  }

  static void answer(Batch& batch, uint64_t failures) {
    for (auto& request: batch)
      request->answer(failures);
    batch.clear();
  }

  void succeeded(uint64_t writes) {
    auto lock = shared.lockExclusive();
    ++lock->stats.commits;
    lock->stats.requests += writes;
    lock->lastFailure = nullptr;
  }

  // Reads get their answers; writes, also those that wait, the problem.
  void failAll(Batch& active, Problem problem) {
    Batch reads;
    Batch writes;
    auto sort = [&](kj::Own<Request> request) {
      (request->access == Access::WRITE ? writes : reads).add(kj::mv(request));
    };
    for (auto& request: active)
      sort(kj::mv(request));
    for (auto& request: reads)
      runAlone(*request);
    uint64_t failures;
    {
      auto lock = shared.lockExclusive();
      failures = ++lock->failures;
      lock->lastFailure = problem.clone();
      std::deque<kj::Own<Request>> kept;
      for (auto& request: lock->queue) {
        if (request->access == Access::WRITE) {
          lock->bytes -= request->bytes;
          writes.add(kj::mv(request));
        } else {
          kept.push_back(kj::mv(request));
        }
      }
      lock->queue = kj::mv(kept);
    }
    for (auto& request: writes)
      request->refuse(problem.clone());
    answer(writes, failures);
    answer(reads, failures);
    // Also when nobody waits for an answer; after the answers, so that who waits hears it first.
    shared.lockExclusive()->tell();
  }

  kj::Maybe<Problem> attemptTwice(Batch& batch, bool writes) {
    try {
      return attempt(batch, writes);
    } catch (const SqliteFailure& first) {
      rollBack();
      if (!writes || Connection::isCorrupt(first)) return giveUp(first);
    }
    try {
      // What the log holds may be what the disk lacks.
      db().checkpoint();
    } catch (const SqliteFailure& failure) {
      // Otherwise the second try tells what is wrong.
      if (Connection::isCorrupt(failure)) return giveUp(failure);
    }
    try {
      return attempt(batch, writes);
    } catch (const SqliteFailure& second) {
      rollBack();
      return giveUp(second);
    }
  }

  Problem giveUp(const SqliteFailure& failure) {
    auto problem = db().explain(failure);
    if (Connection::isCorrupt(failure)) {
      damaged = true;
      shared.lockExclusive()->lastFailure = problem.clone();
    }
    return problem;
  }

  void rollBack() {
    if (!db().inTransaction()) return;  // Some failures have ended it already.
    try {
      db().run("ROLLBACK");
    } catch (const SqliteFailure& failure) {
      KJ_LOG(WARNING, "could not roll back, ignoring", failure.code, failure.text);
    }
  }

  kj::Maybe<Problem> attempt(Batch& batch, bool writes) {
    // A transaction that reads first and then writes can be refused at once, whatever the time-out.
    db().run(writes ? "BEGIN IMMEDIATE"_kj : "BEGIN"_kj);
    for (auto& request: batch) {
      if (request->access == Access::READ) {
        runGuarded(*request);
        continue;
      }
      db().run("SAVEPOINT request");
      bool kept = runGuarded(*request);
      if (!kept) db().run("ROLLBACK TO request");
      db().run("RELEASE request");
    }
    db().run("COMMIT");
    return nullptr;
  }

  // A read outside the transaction that failed.
  void runAlone(Request& request) {
    try {
      db().run("BEGIN");
      runGuarded(request);
      db().run("COMMIT");
    } catch (const SqliteFailure& failure) {
      rollBack();
      request.refuse(giveUp(failure));
    }
  }

  // Whether the request did what it should. What concerns it alone becomes its Problem; what
  // concerns the database goes on as SqliteFailure.
  bool runGuarded(Request& request) {
    try {
      return request.run(db()) == nullptr;
    } catch (const SqliteFailure& failure) {
      if (!Connection::isOfStatement(failure) || !db().inTransaction()) throw;
      request.refuse(db().explain(failure));
    } catch (const kj::Exception& exception) {
      KJ_LOG(ERROR, "a request to the state store has a fault", exception);
      request.refuse(asProblem(exception));
    }
    return false;
  }

  void end() {
    std::deque<kj::Own<Request>> left;
    uint64_t failures;
    {
      auto lock = shared.lockExclusive();
      lock->closing = true;
      failures = lock->failures;
      left.swap(lock->queue);
      lock->bytes = 0;
    }
    for (auto& request: left) {
      request->refuse(closedProblem());
      request->answer(failures);
    }
    try {
      if (!damaged) db().checkpoint();
    } catch (const SqliteFailure& failure) {
      KJ_LOG(WARNING, "could not empty the store's log at the end, ignoring", failure.code,
             failure.text);
    }
    connection = nullptr;
    auto lock = shared.lockExclusive();
    KJ_IF_MAYBE (fulfiller, lock->closed) {
      (*fulfiller)->fulfill();
    }
  }
};

kj::Promise<Result<kj::Own<Database>>> Database::open(DatabaseOptions options) {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<Outcome>();
  auto worker = kj::heap<Worker>(kj::mv(options), kj::mv(pair.fulfiller));
  auto outcome = co_await pair.promise;
  KJ_IF_MAYBE (problem, outcome) {
    co_return kj::mv(*problem);
  }
  co_return kj::heap<Database>(Private(), kj::mv(worker));
}

Database::Database(Private, kj::Own<Worker> worker)
    : worker(kj::mv(worker)),
      watching(watchFailures().eagerlyEvaluate([](kj::Exception&& exception) {
        KJ_LOG(ERROR, "the state store's thread ended without a word", exception);
      })) {}

Database::~Database() noexcept(false) {}

Outcome Database::enqueue(kj::Own<Request> request) {
  auto lock = worker->shared.lockExclusive();
  if (lock->closing || lock->aborting) return closedProblem();
  auto& limits = worker->options;
  if (lock->queue.size() >= limits.queuedRequests ||
      request->bytes > limits.queuedBytes - lock->bytes) {
    return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("the state store has too much to do"))
        .because(kj::str(lock->queue.size(), " requests with ", lock->bytes, " octets wait"))
        .retryable(RetryHint::SAME_REQUEST_LATER, 1000);
  }
  request->failuresSeen = seen->failures;
  lock->bytes += request->bytes;
  lock->queue.push_back(kj::mv(request));
  return nullptr;
}

kj::Promise<void> Database::watchFailures() {
  for (;;) {
    auto pair = kj::newPromiseAndCrossThreadFulfiller<uint64_t>();
    {
      auto lock = worker->shared.lockExclusive();
      lock->watcher = kj::mv(pair.fulfiller);
      if (lock->told != lock->failures) lock->tell();
    }
    seen->update(co_await pair.promise);
  }
}

kj::Maybe<Problem> Database::readOnly() const {
  auto lock = worker->shared.lockExclusive();
  KJ_IF_MAYBE (problem, lock->lastFailure) {
    return problem->clone();
  }
  return nullptr;
}

DatabaseStats Database::stats() const {
  auto lock = worker->shared.lockExclusive();
  auto stats = lock->stats;
  stats.failures = lock->failures;
  stats.queued = lock->queue.size();
  return stats;
}

kj::Promise<void> Database::close() {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
  {
    auto lock = worker->shared.lockExclusive();
    if (lock->closing) return kj::READY_NOW;
    lock->closing = true;
    lock->closed = kj::mv(pair.fulfiller);
  }
  return kj::mv(pair.promise);
}

}  // namespace capstan
