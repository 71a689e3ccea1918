#pragma once
// A database in a folder of its own, and rows that are complete.

#include "store/database.h"
#include "store/environment-table.h"
#include "store/executor-table.h"
#include "store/schema.h"
#include "store/session-table.h"
#include "support/test.h"

#include <condition_variable>
#include <mutex>

namespace capstan::test {

template <typename T>
T get(Result<T> result) {
  if (result.template is<Problem>()) FAIL(kj::str(result.template get<Problem>()).cStr());
  return kj::mv(result.template get<T>());
}
template <typename T>
Problem problemOf(Result<T> result) {
  REQUIRE(result.template is<Problem>());
  return kj::mv(result.template get<Problem>());
}
inline Problem problemOf(Outcome outcome) {
  KJ_IF_MAYBE (problem, outcome) {
    return kj::mv(*problem);
  }
  FAIL("a problem was expected");
  KJ_UNREACHABLE;
}
inline void fine(Outcome outcome) {
  KJ_IF_MAYBE (problem, outcome) {
    FAIL(kj::str(*problem).cStr());
  }
}

inline bool contains(kj::StringPtr text, kj::StringPtr part) {
  return strstr(text.cStr(), part.cStr()) != nullptr;
}

// A migrated connection without a thread, for tests of the tables.
inline kj::Own<Connection> openTables(kj::StringPtr path) {
  auto connection = get(Connection::open(path, {}));
  fine(migrate(*connection));
  return connection;
}

inline EnvironmentRecord environment(kj::StringPtr id, kj::StringPtr task) {
  EnvironmentRecord record;
  record.id = kj::str(id);
  record.owner = kj::str("uid:1");
  record.spec.taskId = kj::str(task);
  record.spec.title = kj::str("a title");
  record.spec.labels.add(Label{kj::str("team"), kj::str("blue")});
  record.executorId = kj::str("exec-local-pc");
  record.executorType = kj::str("local_pc");
  record.runtime = kj::str("standalone");
  record.createdAt = 1000;
  record.changedAt = 1000;
  return record;
}

inline SessionRecord session(kj::StringPtr id, kj::StringPtr environmentId) {
  SessionRecord record;
  record.id = kj::str(id);
  record.environmentId = kj::str(environmentId);
  record.createdAt = 2000;
  record.changedAt = 2000;
  return record;
}

// Holds the store's thread inside a request until it is opened.
class Gate {
public:
  void open() {
    std::lock_guard<std::mutex> lock(mutex);
    isOpen = true;
    changed.notify_all();
  }
  void pass() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this]() { return isOpen; });
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  bool isOpen = false;
};

struct Store {
  IoLoop loop;
  TempDir temp;
  kj::String path = temp / "capstan.db";
  kj::Own<Database> database;

  explicit Store(DatabaseOptions options = {}) {
    options.path = kj::str(path);
    database = get(wait(Database::open(kj::mv(options))));
  }

  template <typename T>
  T wait(kj::Promise<T> promise) {
    return loop.timer.timeoutAfter(60 * kj::SECONDS, kj::mv(promise)).wait(loop.waitScope);
  }

  // One write of one setting.
  kj::Promise<Result<uint64_t>> set(kj::StringPtr key, kj::StringPtr value, uint64_t ifVersion = 0);
  kj::String setting(kj::StringPtr key);  // Empty when there is none.
  // A request that waits at the gate; returns once the thread is inside it.
  kj::Promise<Outcome> hold(Gate& gate);
};

}  // namespace capstan::test
