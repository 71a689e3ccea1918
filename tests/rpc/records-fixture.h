#pragma once
// What the cases of records share: a look into the database, and words for what they do.

#include "agent-link/link.h"
#include "core/environment-actor.h"
#include "support/daemon.h"

namespace capstan::test {

inline constexpr kj::StringPtr OWNER = "uid:4711"_kj;

// What stands in the database, seen by another connection.
class Eye {
public:
  explicit Eye(Daemon& daemon) {
    auto opened = Connection::open(daemon.databasePath(), {});
    if (opened.is<Problem>()) FAIL(kj::str(opened.get<Problem>()).cStr());
    db = kj::mv(opened.get<kj::Own<Connection>>());
  }

  // "id state" of every row, in order.
  kj::String rows(kj::StringPtr sql) {
    kj::Vector<kj::String> result;
    auto query = db->query(sql);
    while (query.next())
      result.add(query.text(0));
    return kj::strArray(result, " ");
  }
  kj::String environments() { return rows("SELECT state FROM environment ORDER BY id"); }
  kj::String sessions() { return rows("SELECT state FROM session ORDER BY created_ms, id"); }
  kj::String runs() {
    return rows("SELECT state || coalesce(':' || outcome, '') FROM run ORDER BY created_ms, id");
  }
  kj::String running() { return rows("SELECT status FROM running_record ORDER BY id"); }
  kj::String inventory() { return rows("SELECT kind FROM inventory"); }
  // Rows of every kind that belongs to environments.
  kj::String everything() {
    return kj::strArray(kj::arr(environments(), sessions(), runs(), running(), inventory()), "|");
  }
  void change(kj::StringPtr sql) { db->script(sql); }

private:
  kj::Own<Connection> db;
};

// Holds up every commit of the daemon, for less than its time-out.
class CommitsHeld {
public:
  explicit CommitsHeld(Eye& eye): eye(eye) { eye.change("BEGIN IMMEDIATE"); }
  ~CommitsHeld() { release(); }
  KJ_DISALLOW_COPY_AND_MOVE(CommitsHeld);
  void release() {
    if (held) eye.change("ROLLBACK");
    held = false;
  }

private:
  Eye& eye;
  bool held = true;
};

// The store takes no writes from here on, and takes them again.
inline void setReadOnly(Daemon& daemon, bool yes) {
  auto sql = yes ? "PRAGMA query_only = ON"_kj : "PRAGMA query_only = OFF"_kj;
  auto done = daemon.wait(daemon.database().read([sql](Connection& db) -> Outcome {
    db.script(sql);
    return nullptr;
  }));
  REQUIRE(done == nullptr);
}

inline EnvironmentSpec task(kj::StringPtr name) {
  EnvironmentSpec spec;
  spec.taskId = kj::str(name);
  return spec;
}

inline LaunchSpec command(std::initializer_list<kj::StringPtr> words) {
  LaunchSpec spec;
  spec.command = KJ_MAP(word, words) { return kj::str(word); };
  return spec;
}

inline kj::Array<kj::byte> requestId(char c) {
  auto id = kj::heapArray<kj::byte>(REQUEST_ID_BYTES);
  memset(id.begin(), c, id.size());
  return id;
}

inline kj::Own<EnvironmentActor> environmentOf(Daemon& daemon, kj::StringPtr name) {
  auto ensured = daemon.wait(daemon.core().ensure(kj::str(OWNER), task(name)));
  if (ensured.is<Problem>()) FAIL(kj::str(ensured.get<Problem>()).cStr());
  return kj::mv(ensured.get<Supervisor::Ensured>().environment);
}

// The environment of an earlier daemon, once it is known what has become of it.
inline kj::Own<EnvironmentActor> recovered(Daemon& daemon, kj::StringPtr name) {
  auto found = daemon.core().find(OWNER, name);
  if (found.is<Problem>()) FAIL(kj::str(found.get<Problem>()).cStr());
  auto environment = kj::mv(found.get<kj::Own<EnvironmentActor>>());
  REQUIRE(
      daemon.becomesTrue([&]() { return environment->state() != EnvironmentState::RECOVERING; }));
  return environment;
}

inline void bringUp(Daemon& daemon, EnvironmentActor& environment) {
  REQUIRE(daemon.becomesTrue([&]() { return environment.state() == EnvironmentState::READY; }));
}

inline kj::Own<SessionActor> launched(Daemon& daemon, EnvironmentActor& environment,
                                      LaunchSpec spec) {
  auto result = daemon.wait(environment.launch(kj::mv(spec)));
  if (result.is<Problem>()) FAIL(kj::str(result.get<Problem>()).cStr());
  return kj::mv(result.get<kj::Own<SessionActor>>());
}

inline Problem refused(Daemon& daemon, EnvironmentActor& environment, LaunchSpec spec) {
  auto result = daemon.wait(environment.launch(kj::mv(spec)));
  REQUIRE(result.is<Problem>());
  return kj::mv(result.get<Problem>());
}

inline size_t instances(Daemon& daemon) {
  auto links = daemon.core().helperLinks().live();
  REQUIRE(links.size() == 1);
  auto listed = daemon.wait(links[0]->list());
  return listed.get<kj::Array<InstanceReport>>().size();
}

inline CleanupReport destroy(Daemon& daemon, EnvironmentActor& environment) {
  return daemon.wait(daemon.core().cleanUp(kj::addRef(environment), CleanupScope::ALL));
}

inline kj::StringPtr stateOf(const EnvironmentActor& environment) {
  constexpr kj::StringPtr WORDS[] = {"preparing"_kj, "ready"_kj,      "stopping"_kj,
                                     "stopped"_kj,   "recovering"_kj, "reconnecting"_kj,
                                     "failed"_kj,    "lost"_kj,       "cleaning"_kj};
  return WORDS[static_cast<size_t>(environment.state())];
}

// Memory and disk say the same of the one environment there is. While it cannot be told what became
// of it, the row keeps what was known before.
inline void checkAgreement(Eye& eye, const EnvironmentActor& environment) {
  if (environment.state() != EnvironmentState::RECONNECTING) {
    CHECK(eye.environments() == stateOf(environment));
  }
  constexpr kj::StringPtr WORDS[] = {"starting"_kj,   "running"_kj,     "exited"_kj,
                                     "stopped"_kj,    "failed"_kj,      "lost"_kj,
                                     "recovering"_kj, "reconnecting"_kj};
  auto status = environment.status();
  auto words = KJ_MAP(session, status.sessions) {
    return kj::str(session.id, '=', WORDS[static_cast<size_t>(session.state)]);
  };
  CHECK(eye.rows("SELECT id || '=' || state FROM session ORDER BY id") == kj::strArray(words, " "));
}

}  // namespace capstan::test
