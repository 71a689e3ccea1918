
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
