-- Schema 1. What is written often is kept small and in order, because a commit writes whole pages:
--
--   identity  the only table written at random: digest -> serial, 26 bytes a row
--   running   what is in flight: a few pages, always in memory; appended to by claims
--   ended     what is done or unknown: appended to by completions, almost in order of serial
--
-- A record is in exactly one of running and ended, and identity names it. So the state of a
-- record costs no index, and nothing that looks for running records ever sees a done one.
--
-- Read as you like (the view "operations" is meant for people); to change anything use
-- `hapax keys resolve|forget`, which keep the tables in step.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- generation: grows with every resolve and forget, so that caches of answers notice.
-- serial_floor: the largest serial that was given and is in no table any more. A serial is never
-- given twice, since a late owner's fence would fit the new record.
INSERT INTO meta VALUES ('generation', 0), ('serial_floor', 0);

-- Processes that claimed. AUTOINCREMENT: a number is never given twice.
CREATE TABLE owner (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE identity (
    digest BLOB PRIMARY KEY,
    serial INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE running (
    serial INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    claimed_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    fingerprint_version INTEGER NOT NULL, -- 0: none
    fingerprint BLOB,
    digest BLOB NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL
) STRICT;

-- The answer stands last: what does not read it never loads its overflow pages.
CREATE TABLE ended (
    serial INTEGER PRIMARY KEY,
    state INTEGER NOT NULL CHECK (state IN (2, 3)), -- done, unknown
    attempt INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    claimed_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    ended_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    fingerprint_version INTEGER NOT NULL,
    fingerprint BLOB,
    digest BLOB NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    status INTEGER, -- of the answer; NULL while unknown
    kept INTEGER,   -- 0: the body was too large to keep
    head BLOB,
    body BLOB
) STRICT;

-- For the sweep. With one ttl it is appended to, too.
CREATE INDEX ended_expiry ON ended (expires_ms) WHERE state = 2;

-- For stats and listings. Done records never touch it.
CREATE INDEX ended_unknown ON ended (serial) WHERE state = 3;

CREATE VIEW operations AS
SELECT serial,
       attempt,
       'running' AS state,
       scope,
       key,
       strftime('%Y-%m-%dT%H:%M:%fZ', claimed_ms / 1000.0, 'unixepoch') AS claimed,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_ms / 1000.0, 'unixepoch') AS lease_until,
       NULL AS ended,
       NULL AS expires,
       NULL AS status,
       NULL AS kept,
       NULL AS body_bytes,
       owner,
       lower(hex(digest)) AS digest
FROM running
UNION ALL
SELECT serial,
       attempt,
       CASE state WHEN 2 THEN 'done' WHEN 3 THEN 'unknown' ELSE 'damaged' END,
       scope,
       key,
       strftime('%Y-%m-%dT%H:%M:%fZ', claimed_ms / 1000.0, 'unixepoch'),
       NULL,
       strftime('%Y-%m-%dT%H:%M:%fZ', ended_ms / 1000.0, 'unixepoch'),
       CASE state WHEN 2 THEN strftime('%Y-%m-%dT%H:%M:%fZ', expires_ms / 1000.0, 'unixepoch') END,
       status,
       kept,
       length(body),
       owner,
       lower(hex(digest))
FROM ended;
