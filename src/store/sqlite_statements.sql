-- Every statement that runs on an open store, by name. Columns of records come in one order (see
-- sqlite_row.c): serial, state, attempt, owner, claimed, lease, ended, expires, ttl, fingerprint version and
-- bytes, digest, then what is particular to the statement. Times are milliseconds since 1970.

-- name: begin_read
BEGIN;

-- Take the write lock at once: a lock that is only upgraded later can fail half-way.
-- name: begin_write
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- The last serial that was ever given. Three look-ups at the right edge of a tree.
-- name: last_serial
SELECT max(ifnull((SELECT max(serial) FROM running), 0),
           ifnull((SELECT max(serial) FROM ended), 0),
           (SELECT value FROM meta WHERE name = 'serial_floor'));

-- name: raise_serial_floor
UPDATE meta
SET value = ?1
WHERE name = 'serial_floor'
  AND value < ?1
  AND ?1 > ifnull((SELECT max(serial) FROM running), 0)
  AND ?1 > ifnull((SELECT max(serial) FROM ended), 0);

-- name: next_generation
UPDATE meta SET value = value + 1 WHERE name = 'generation';

-- name: generation
SELECT value FROM meta WHERE name = 'generation';

-- The claim itself: one row changed, and the identity is ours.
-- name: claim_identity
INSERT INTO identity (digest, serial) VALUES (?1, ?2) ON CONFLICT DO NOTHING;

-- name: find_identity
SELECT serial FROM identity WHERE digest = ?1;

-- name: delete_identity
DELETE FROM identity WHERE digest = ?1;

-- name: insert_running
INSERT INTO running (serial, attempt, owner, claimed_ms, lease_ms, expires_ms, ttl_ms,
                     fingerprint_version, fingerprint, digest, scope, key)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12);

-- name: load_running
SELECT serial, 1, attempt, owner, claimed_ms, lease_ms, 0, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest
FROM running
WHERE serial = ?1;

-- name: load_ended
SELECT serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, status, kept, head, body
FROM ended
WHERE serial = ?1;

-- An extended lease, or a take-over of a run whose lease has passed.
-- name: update_running
UPDATE running
SET attempt = ?2, owner = ?3, lease_ms = ?4, expires_ms = ?5, ttl_ms = ?6,
    fingerprint_version = ?7, fingerprint = ?8
WHERE serial = ?1;

-- name: delete_running
DELETE FROM running WHERE serial = ?1;

-- The same, if it still is what a claimer knows; one row changed says that it was.
-- name: take_running
DELETE FROM running WHERE serial = ?1 AND attempt = ?2 AND digest = ?3 AND lease_ms = ?4;

-- name: delete_ended
DELETE FROM ended WHERE serial = ?1;

-- A move to ended: these two, and delete_running. Not INSERT ... SELECT, which may be more than one row and so keeps
-- a statement journal: that took more than half of the move's instructions.
-- name: running_names
SELECT scope, key FROM running WHERE serial = ?1;

-- name: insert_ended
INSERT INTO ended (serial, state, ended_ms, expires_ms, ttl_ms, status, kept, head, body, attempt, owner, claimed_ms,
                   lease_ms, fingerprint_version, fingerprint, digest, scope, key)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18);

-- An unknown record is resolved to done.
-- name: update_ended
UPDATE ended
SET state = ?2, ended_ms = ?3, expires_ms = ?4, ttl_ms = ?5, status = ?6, kept = ?7, head = ?8, body = ?9
WHERE serial = ?1;

-- First half of a take-over of an unknown record; the other is delete_ended.
-- name: copy_to_running
INSERT INTO running (serial, attempt, owner, claimed_ms, lease_ms, expires_ms, ttl_ms,
                     fingerprint_version, fingerprint, digest, scope, key)
SELECT serial, ?2, ?3, claimed_ms, ?4, ?5, ?6, ?7, ?8, digest, scope, key
FROM ended
WHERE serial = ?1;

-- A slice of the sweep: what it could be, then the rows of both tables. The inner query is the same in
-- all three, so in one transaction they name the same rows. A body's length is in its row's head: it is not read.
-- name: sweep_next
SELECT serial, ifnull(length(body), 0)
FROM ended WHERE state = 2 AND expires_ms <= ?1 ORDER BY expires_ms, serial LIMIT ?2;

-- name: sweep_identities
DELETE FROM identity
WHERE digest IN (SELECT digest FROM ended
                 WHERE state = 2 AND expires_ms <= ?1 ORDER BY expires_ms, serial LIMIT ?2);

-- name: sweep_ended
DELETE FROM ended
WHERE serial IN (SELECT serial FROM ended
                 WHERE state = 2 AND expires_ms <= ?1 ORDER BY expires_ms, serial LIMIT ?2);

-- A slice of abandon: runs of one owner (?1 > 0), or those whose lease has passed (?1 = 0), become unknown since
-- their lease ended or since now.
-- name: abandon_copy
INSERT INTO ended (serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
                   fingerprint_version, fingerprint, digest, scope, key)
SELECT serial, 3, attempt, owner, claimed_ms, lease_ms, min(lease_ms, ?2), expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, scope, key
FROM running
WHERE CASE WHEN ?1 > 0 THEN owner = ?1 ELSE lease_ms <= ?2 END
ORDER BY serial
LIMIT ?3;

-- name: abandon_delete
DELETE FROM running
WHERE serial IN (SELECT serial FROM running
                 WHERE CASE WHEN ?1 > 0 THEN owner = ?1 ELSE lease_ms <= ?2 END
                 ORDER BY serial
                 LIMIT ?3);

-- name: find_owner
SELECT number FROM owner WHERE text = ?1;

-- name: insert_owner
INSERT INTO owner (text) VALUES (?1);

-- name: owners
SELECT number, text FROM owner ORDER BY number;

-- name: delete_owner
DELETE FROM owner WHERE number = ?1;

-- name: owner_runs
SELECT EXISTS (SELECT 1 FROM running WHERE owner = ?1);

-- Listings, one statement a state, so that each walks only what it can show. ?1 after this serial, ?2 scope or
-- NULL, ?3 key or NULL, ?4 now, ?5 rows.
-- name: list_all
SELECT serial, 1, attempt, owner, claimed_ms, lease_ms, 0, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, NULL, NULL, NULL, scope, key
FROM running
WHERE serial > ?1 AND (?2 IS NULL OR scope = ?2) AND (?3 IS NULL OR key = ?3)
UNION ALL
SELECT serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, status, kept, length(body), scope, key
FROM ended
WHERE serial > ?1 AND (?2 IS NULL OR scope = ?2) AND (?3 IS NULL OR key = ?3)
  AND (state <> 2 OR expires_ms > ?4)
ORDER BY 1
LIMIT ?5;

-- name: list_running
SELECT serial, 1, attempt, owner, claimed_ms, lease_ms, 0, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, NULL, NULL, NULL, scope, key
FROM running
WHERE serial > ?1 AND (?2 IS NULL OR scope = ?2) AND (?3 IS NULL OR key = ?3) AND lease_ms > ?4
ORDER BY serial
LIMIT ?5;

-- name: list_done
SELECT serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, status, kept, length(body), scope, key
FROM ended
WHERE serial > ?1 AND (?2 IS NULL OR scope = ?2) AND (?3 IS NULL OR key = ?3)
  AND state = 2 AND expires_ms > ?4
ORDER BY serial
LIMIT ?5;

-- name: list_unknown
SELECT serial, 1, attempt, owner, claimed_ms, lease_ms, 0, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, NULL, NULL, NULL, scope, key
FROM running
WHERE serial > ?1 AND (?2 IS NULL OR scope = ?2) AND (?3 IS NULL OR key = ?3) AND lease_ms <= ?4
UNION ALL
SELECT serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version, fingerprint, digest, status, kept, length(body), scope, key
FROM ended INDEXED BY ended_unknown
WHERE state = 3 AND serial > ?1 AND (?2 IS NULL OR scope = ?2) AND (?3 IS NULL OR key = ?3)
ORDER BY 1
LIMIT ?5;

-- name: count_open
SELECT (SELECT count(*) FROM running),
       (SELECT count(*) FROM ended INDEXED BY ended_unknown WHERE state = 3),
       ifnull((SELECT min(serial) FROM ended), 0),
       ifnull((SELECT max(serial) FROM ended), 0);

-- Walks the table: only for small stores.
-- name: count_ended
SELECT count(*) FROM ended;
