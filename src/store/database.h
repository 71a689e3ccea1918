#pragma once
// The database of a daemon's state: one connection on a thread of its own, with one queue.

#include "store/database-connection.h"

#include <kj/async.h>
#include <kj/function.h>
#include <kj/refcount.h>

#include <type_traits>

namespace capstan {

struct DatabaseOptions {
  kj::String path;
  ConnectionOptions connection;
  size_t queuedRequests = 4096;    // More: resourceExhausted, retryable.
  size_t queuedBytes = 16u << 20;  // Of what the requests say they carry.
  size_t requestsPerCommit = 256;  // So that no answer waits for an endless batch.
};

// Counts since the start.
struct DatabaseStats {
  uint64_t commits = 0;   // Durable transactions with writes.
  uint64_t requests = 0;  // Writes in them, also those whose answer was a Problem of their own.
  uint64_t failures = 0;  // Transactions with writes that failed for good.
  size_t queued = 0;
};

// Owns the thread and the connection. Lives in the thread of one event loop and must not outlive
// it; all methods are called there.
//
// Requests run strictly in the order of the calls. Writes that wait together share one transaction
// and one sync. A promise resolves after that transaction is durable: change memory then, never
// before. A transaction that fails (disk full, I/O error, lock, damage) is tried once more after
// the log was emptied, then every write of it and every write that waits behind it gets the same
// Problem, nothing of them is stored, and the store counts as read-only: readOnly() says why. Reads
// go on. A write that is asked for after its failure was told is tried again, so the store heals by
// itself when there is room; damage does not heal. Dropping a promise leaves the commit to happen.
class Database {
public:
  enum class Access { READ, WRITE };

  // Starts the thread, opens and checks the file and migrates it. Problems as of Connection::open()
  // and migrate(). Holds the file open, so take the StateLock first.
  static kj::Promise<Result<kj::Own<Database>>> open(DatabaseOptions options);

  // Without close(): the transaction in progress ends, requests that still wait get shuttingDown
  // and are not run. Waits for the thread.
  ~Database() noexcept(false);
  KJ_DISALLOW_COPY_AND_MOVE(Database);

  // Runs `work` on the store's thread in a transaction. `work` takes a Connection& and returns a
  // Result<T> or an Outcome; a Problem undoes what it did and leaves the others of its transaction
  // alone. It may be run twice, and only the last run counts. It owns all it uses, by value: it
  // runs and ends in another thread, where no promise, capability or counted object may be touched.
  // `bytes`: about what it carries, for the bound of the queue. Never throws: a full queue
  // (resourceExhausted, retryable), a closed store (shuttingDown) and a failed commit are Problems.
  template <typename Work>
  kj::Promise<std::invoke_result_t<Work&, Connection&>> write(Work work, size_t bytes = 512) {
    return submit(Access::WRITE, kj::mv(work), bytes);
  }
  // The same for work that changes nothing. It sees all writes that were asked for before it.
  template <typename Work>
  kj::Promise<std::invoke_result_t<Work&, Connection&>> read(Work work, size_t bytes = 512) {
    return submit(Access::READ, kj::mv(work), bytes);
  }

  // Why the last write failed, null when the store takes writes. Do not refuse work by it: ask, and
  // the store tries. For status and log.
  kj::Maybe<Problem> readOnly() const;

  DatabaseStats stats() const;

  // Runs what waits, empties the log and closes the file. New requests get shuttingDown at once.
  kj::Promise<void> close();

private:
  // One request on its way through the thread.
  class Request {
  public:
    Request(Access access, size_t bytes): access(access), bytes(bytes) {}
    virtual ~Request() noexcept(false) = default;
    // Runs the work; its Problem, if it ended in one. Throws SqliteFailure.
    virtual kj::Maybe<const Problem&> run(Connection& connection) = 0;
    virtual void refuse(Problem problem) = 0;
    // Hands the result to the loop, with how many transactions have failed so far.
    virtual void answer(uint64_t failures) = 0;

    Access access;
    size_t bytes;
    uint64_t failuresSeen = 0;  // What the asking side knew.
  };

  template <typename R>
  struct Answer {
    R result;
    uint64_t failures;
  };

  // Failed transactions that the loop knows of. Counted: a promise may outlive the Database.
  struct Seen final: public kj::Refcounted {
    uint64_t failures = 0;
    void update(uint64_t now) { failures = kj::max(failures, now); }
  };

  template <typename R>
  static kj::Maybe<const Problem&> problemOf(const R& result) {
    if constexpr (std::is_same_v<R, Outcome>) {
      return result;
    } else {
      if (result.template is<Problem>()) return result.template get<Problem>();
      return nullptr;
    }
  }

  template <typename Work>
  class RequestOf final: public Request {
  public:
    using R = std::invoke_result_t<Work&, Connection&>;
    using Fulfiller = kj::CrossThreadPromiseFulfiller<Answer<R>>;
    RequestOf(Access access, size_t bytes, Work work, kj::Own<Fulfiller> fulfiller)
        : Request(access, bytes), work(kj::mv(work)), fulfiller(kj::mv(fulfiller)) {}

    kj::Maybe<const Problem&> run(Connection& connection) override {
      result = work(connection);
      return problemOf<R>(KJ_ASSERT_NONNULL(result));
    }
    void refuse(Problem problem) override { result = R(kj::mv(problem)); }
    void answer(uint64_t failures) override {
      fulfiller->fulfill({kj::mv(KJ_ASSERT_NONNULL(result)), failures});
    }

  private:
    Work work;
    kj::Own<Fulfiller> fulfiller;
    kj::Maybe<R> result;
  };

  class Worker;
  struct Private {};

public:
  Database(Private, kj::Own<Worker> worker);  // For open() only.

private:
  kj::Own<Worker> worker;
  kj::Own<Seen> seen = kj::refcounted<Seen>();
  kj::Promise<void> watching = nullptr;  // Last: it uses the rest.

  template <typename Work>
  kj::Promise<std::invoke_result_t<Work&, Connection&>> submit(Access access, Work work,
                                                               size_t bytes) {
    using R = std::invoke_result_t<Work&, Connection&>;
    auto pair = kj::newPromiseAndCrossThreadFulfiller<Answer<R>>();
    KJ_IF_MAYBE (problem, enqueue(kj::heap<RequestOf<Work>>(access, bytes, kj::mv(work),
                                                            kj::mv(pair.fulfiller)))) {
      return R(kj::mv(*problem));
    }
    return pair.promise.then([known = kj::addRef(*seen)](Answer<R>&& answer) mutable {
      known->update(answer.failures);
      return kj::mv(answer.result);
    });
  }
  // Null = taken.
  Outcome enqueue(kj::Own<Request> request);
  kj::Promise<void> watchFailures();
};

}  // namespace capstan
