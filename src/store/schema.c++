#include "store/schema.h"

namespace capstan {

namespace {

// Times are milliseconds since 1970. Octet columns named *_values hold a Cap'n Proto message of
// schema/stored.capnp. Names of states are written as words, so that the file can be read by hand.
constexpr kj::StringPtr VERSION_1 = R"sql(
PRAGMA application_id = 1131434868;

CREATE TABLE setting (
  key TEXT PRIMARY KEY, value TEXT NOT NULL, version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE executor (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'disabled')),
  is_system INTEGER NOT NULL, resumable INTEGER NOT NULL, config_values BLOB NOT NULL,
  created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, deleted_ms INTEGER,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX executor_name ON executor (name) WHERE deleted_ms IS NULL;

CREATE TABLE profile (
  id TEXT PRIMARY KEY, executor_id TEXT NOT NULL REFERENCES executor (id), name TEXT NOT NULL,
  mcp_policy TEXT NOT NULL, config_values BLOB NOT NULL, prepare_script TEXT NOT NULL,
  cleanup_script TEXT NOT NULL, variables_values BLOB NOT NULL,
  created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, version INTEGER NOT NULL,
  UNIQUE (executor_id, name)
) STRICT, WITHOUT ROWID;

-- The executor's id, type and runtime and the profile's id are what the environment was made with,
-- whatever becomes of those rows.
CREATE TABLE environment (
  id TEXT PRIMARY KEY, owner TEXT NOT NULL, task_id TEXT NOT NULL,
  executor_id TEXT NOT NULL, executor_type TEXT NOT NULL, runtime TEXT NOT NULL,
  profile_id TEXT NOT NULL, state TEXT NOT NULL, workspace TEXT NOT NULL,
  spec_values BLOB NOT NULL, request_id BLOB, error_code INTEGER NOT NULL,
  error_message TEXT NOT NULL, created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL,
  version INTEGER NOT NULL,
  UNIQUE (owner, task_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX environment_request ON environment (owner, request_id)
  WHERE request_id IS NOT NULL;

CREATE TABLE session (
  id TEXT PRIMARY KEY,
  environment_id TEXT NOT NULL REFERENCES environment (id) ON DELETE CASCADE,
  state TEXT NOT NULL, conversation_state TEXT NOT NULL, model_override TEXT NOT NULL,
  created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL, version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_environment ON session (environment_id, id);

CREATE TABLE run (
  id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
  state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'ended')),
  spec_values BLOB NOT NULL, request_id BLOB,
  created_ms INTEGER NOT NULL, running_ms INTEGER, ended_ms INTEGER,
  outcome TEXT, exit_kind TEXT, exit_code INTEGER, exit_signal TEXT,
  error_code INTEGER, error_message TEXT,
  CHECK ((state = 'ended') = (outcome IS NOT NULL AND ended_ms IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX run_session ON run (session_id, created_ms, id);
CREATE INDEX run_ended ON run (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX run_unended ON run (id) WHERE state <> 'ended';
CREATE UNIQUE INDEX run_live ON run (session_id) WHERE state <> 'ended';
CREATE UNIQUE INDEX run_request ON run (session_id, request_id) WHERE request_id IS NOT NULL;

CREATE TABLE running_record (
  session_id TEXT PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
  id TEXT NOT NULL UNIQUE, task_id TEXT NOT NULL, execution_profile_id TEXT NOT NULL,
  executor_id TEXT NOT NULL, runtime TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN
    ('starting', 'running', 'ready', 'failed', 'stopped', 'completed', 'prepared')),
  resumable INTEGER NOT NULL, resume_token TEXT NOT NULL, last_message_uuid TEXT NOT NULL,
  context TEXT NOT NULL,
  agent_execution_id TEXT NOT NULL, container_id TEXT NOT NULL, agentctl_url TEXT NOT NULL,
  agentctl_port INTEGER NOT NULL, pid INTEGER NOT NULL, local_pid INTEGER NOT NULL,
  worktree_id TEXT NOT NULL, worktree_path TEXT NOT NULL, worktree_branch TEXT NOT NULL,
  error_message TEXT NOT NULL, metadata TEXT NOT NULL, last_seen_ms INTEGER NOT NULL, version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX running_record_runtime ON running_record (runtime, session_id);

-- No cascade: an environment's row stays while anything made for it may still exist.
CREATE TABLE inventory (
  environment_id TEXT NOT NULL REFERENCES environment (id),
  seq INTEGER NOT NULL, runtime TEXT NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL,
  name TEXT NOT NULL, identity TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('intended', 'made')),
  details_values BLOB NOT NULL, created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL,
  PRIMARY KEY (environment_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE control_server (
  id TEXT PRIMARY KEY, endpoint TEXT NOT NULL, secret_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('current', 'draining')),
  capabilities_values BLOB NOT NULL, build TEXT NOT NULL, log_path TEXT NOT NULL,
  pid INTEGER NOT NULL, created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX control_server_current ON control_server (state) WHERE state = 'current';

-- `sealed` is made by the secret box with the row's id as associated data.
CREATE TABLE secret (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL CHECK (kind IN ('user', 'nonce', 'token')),
  name TEXT, sealed BLOB NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX secret_name ON secret (name) WHERE name IS NOT NULL;

CREATE TABLE secret_grant (
  secret_id TEXT NOT NULL REFERENCES secret (id) ON DELETE CASCADE,
  environment_id TEXT REFERENCES environment (id) ON DELETE CASCADE,
  profile_id TEXT REFERENCES profile (id) ON DELETE CASCADE,
  CHECK ((environment_id IS NULL) <> (profile_id IS NULL))
) STRICT;
CREATE UNIQUE INDEX secret_grant_environment ON secret_grant (environment_id, secret_id)
  WHERE environment_id IS NOT NULL;
CREATE UNIQUE INDEX secret_grant_profile ON secret_grant (profile_id, secret_id)
  WHERE profile_id IS NOT NULL;
CREATE INDEX secret_grant_secret ON secret_grant (secret_id);

INSERT INTO executor VALUES
  ('exec-local-pc', 'Local PC', 'local_pc', 'active', 1, 1, x'', 0, 0, NULL, 1),
  ('exec-local-docker', 'Local Docker', 'local_docker', 'active', 1, 1, x'', 0, 0, NULL, 1);
)sql"_kj;

// How an environment's place came to be, whether a clean-up of it has begun and how far it was to
// go; and which process a helper is, and which of its tokens is held.
constexpr kj::StringPtr VERSION_2 = R"sql(
ALTER TABLE environment ADD COLUMN steps_values BLOB NOT NULL DEFAULT x'';
ALTER TABLE environment ADD COLUMN prepared INTEGER NOT NULL DEFAULT 0;
ALTER TABLE environment ADD COLUMN cleanup_scope TEXT NOT NULL DEFAULT '';
ALTER TABLE control_server ADD COLUMN start_ticks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE control_server ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE control_server ADD COLUMN server_id TEXT NOT NULL DEFAULT '';
ALTER TABLE control_server ADD COLUMN rotation INTEGER NOT NULL DEFAULT 0;
)sql"_kj;

// What is known of losses, and which compute an environment had last. An episode goes on while its
// ended_ms is 0; its evidence begins with the cause.
constexpr kj::StringPtr VERSION_3 = R"sql(
ALTER TABLE environment ADD COLUMN generation TEXT NOT NULL DEFAULT '';
CREATE TABLE episode (
  id TEXT PRIMARY KEY,
  environment_id TEXT NOT NULL REFERENCES environment (id) ON DELETE CASCADE,
  generation TEXT NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN
    ('healthy', 'terminated', 'missing', 'restarted', 'unknown')),
  evidence_values BLOB NOT NULL, affected_values BLOB NOT NULL,
  started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX episode_environment ON episode (environment_id, started_ms, id);
CREATE UNIQUE INDEX episode_open ON episode (environment_id) WHERE ended_ms = 0;
)sql"_kj;

constexpr Migration STEPS[] = {{1, VERSION_1}, {2, VERSION_2}, {3, VERSION_3}};

}  // namespace

kj::ArrayPtr<const Migration> migrations() { return STEPS; }

int schemaVersion() { return STEPS[kj::size(STEPS) - 1].version; }

Outcome migrate(Connection& connection, kj::ArrayPtr<const Migration> steps) {
  try {
    int64_t present = 0;
    {
      auto version = connection.query("PRAGMA user_version");
      if (version.next()) present = version.integer(0);
    }
    int newest = steps.size() == 0 ? 0 : steps.back().version;
    if (present > newest) {
      return Problem(ErrorCode::UNSUPPORTED,
                     kj::str("the state store ", connection.path(), " is of a newer Capstan"))
          .because(
              kj::str("it has schema version ", present, ", this program knows up to ", newest))
          .advise(kj::str("nothing was changed; use the newer program, or another --state-dir"))
          .retryable(RetryHint::AFTER_USER_ACTION);
    }
    for (auto& step: steps) {
      if (step.version <= present) continue;
      try {
        connection.script("BEGIN IMMEDIATE");
        connection.script(step.sql);
        connection.script(kj::str("PRAGMA user_version = ", step.version));
        connection.script("COMMIT");
      } catch (...) {
        // Some failures have ended the transaction already.
        if (connection.inTransaction()) connection.script("ROLLBACK");
        throw;
      }
    }
  } catch (const SqliteFailure& failure) {
    return connection.explain(failure);
  }
  return nullptr;
}

}  // namespace capstan
