-- Every prepared statement of the PostgreSQL store, by name. All numbers travel as bigint and everything in binary.
-- Columns of records come in one order (see postgres_row.c). $n for "now" is NULL where the server's clock decides.

-- Serials for the claims of a batch.
-- name: serials
SELECT nextval('hapax.serial')::bigint FROM generate_series(1, $1::bigint)

-- Rows of a batch, locked in the order of their digests so that two batches never wait for each other crosswise.
-- $2: those whose answer is wanted; others' are not read.
-- name: find_locked
SELECT digest, serial, state::bigint, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version::bigint, fingerprint, status::bigint, kept::bigint,
       CASE WHEN state = 2 AND digest = ANY ($2::bytea[]) THEN head END,
       CASE WHEN state = 2 AND digest = ANY ($2::bytea[]) THEN body END
FROM hapax.record
WHERE digest = ANY ($1::bytea[])
ORDER BY digest
FOR UPDATE

-- name: find
SELECT digest, serial, state::bigint, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version::bigint, fingerprint, status::bigint, kept::bigint,
       CASE WHEN state = 2 AND digest = ANY ($2::bytea[]) THEN head END,
       CASE WHEN state = 2 AND digest = ANY ($2::bytea[]) THEN body END
FROM hapax.record
WHERE digest = ANY ($1::bytea[])

-- After the locks are held: what time it is.
-- name: now
SELECT coalesce($1::bigint, hapax.clock_ms())

-- First of what a batch writes: $1 the handle, $2 the batch's number. Its row is the witness of the commit. No row to
-- change means that the handle gave this batch up meanwhile (witness): then nothing of it may be committed, which the
-- division sees to.
-- name: enter
WITH entered AS (
    INSERT INTO hapax.handle AS h (number, batch, fence, seen_ms) VALUES ($1::bigint, $2::bigint, 0, hapax.clock_ms())
    ON CONFLICT (number) DO UPDATE SET batch = excluded.batch, seen_ms = excluded.seen_ms
    WHERE h.batch < excluded.batch AND h.fence < excluded.batch
    RETURNING 1
)
SELECT 1 / count(*) FROM entered

-- After the connection was lost during a commit: the last batch that was committed. Waits for the old session's end if it
-- is still committing; if the batch has not even reached the server yet, it will be refused there.
-- name: witness
INSERT INTO hapax.handle AS h (number, batch, fence, seen_ms) VALUES ($1::bigint, 0, $2::bigint, hapax.clock_ms())
ON CONFLICT (number) DO UPDATE SET fence = excluded.fence, seen_ms = excluded.seen_ms
RETURNING batch

-- Claims that nobody knows of. Those whose lease ended meanwhile were not executed either.
-- name: take_back
DELETE FROM hapax.record r USING unnest($1::bytea[], $2::bigint[]) AS u (digest, serial)
WHERE r.digest = u.digest AND r.serial + 0 = u.serial AND r.attempt = 1 AND r.state + 0 <> 2

-- Claims of keys that nobody has, as it is hoped, in one statement: $1 now, $2 owner. Where a row stands it fails (23505) and
-- the batch is run as two round trips, which decide by rules.h. Here the rule is written twice: claimed_anew() is the other.
-- name: claim
WITH t AS MATERIALIZED (SELECT coalesce($1::bigint, hapax.clock_ms()) AS now)
INSERT INTO hapax.record (digest, serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
                          fingerprint_version, fingerprint, scope, key)
SELECT u.digest, u.serial, 1, 1, $2::bigint, t.now, t.now + u.lease_ms, 0, t.now + u.ttl_ms, u.ttl_ms,
       u.fingerprint_version, u.fingerprint, u.scope, u.key
FROM t, unnest($3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[], $9::bytea[],
               $10::bytea[]) AS u (digest, serial, lease_ms, ttl_ms, fingerprint_version, fingerprint, scope, key)
RETURNING claimed_ms

-- Completions of claims that still run under their fence, as it is hoped: $1 now, $2 how many. One that doesn't fails the
-- batch (22012), as above. ttl_ms 0 keeps the claim's. + 0: by the digest's index, never by one that holds more.
-- name: complete
WITH t AS MATERIALIZED (SELECT coalesce($1::bigint, hapax.clock_ms()) AS now),
done AS (
    UPDATE hapax.record r
    SET state = 2, ended_ms = u.now, ttl_ms = coalesce(nullif(u.ttl_ms, 0), r.ttl_ms),
        expires_ms = coalesce(nullif(u.ttl_ms, 0), r.ttl_ms)
                     + CASE WHEN r.claimed_ms + coalesce(nullif(u.ttl_ms, 0), r.ttl_ms) <= u.now THEN u.now
                            ELSE r.claimed_ms END,
        status = u.status, kept = u.kept, head = u.head, body = u.body
    FROM (SELECT t.now, x.*
          FROM t, unnest($3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[],
                         $10::bytea[]) AS x (digest, serial, attempt, ttl_ms, status, kept, head, body)) u
    WHERE r.digest = u.digest AND r.serial + 0 = u.serial AND r.attempt = u.attempt AND r.state + 0 = 1
      AND r.lease_ms + 0 > u.now
    RETURNING 1
)
SELECT (SELECT now FROM t), 1 / (count(*) = $2::bigint)::int FROM done

-- No ON CONFLICT: where somebody else was faster the batch must not be committed, and is run again.
-- name: insert
INSERT INTO hapax.record (digest, serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
                          fingerprint_version, fingerprint, scope, key, status, kept, head, body)
SELECT u.*
FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[],
            $15::bigint[], $16::bigint[], $17::bytea[], $18::bytea[]) AS u

-- Scope and key are given where another claim's record takes the place of an expired or removed one.
-- name: update
UPDATE hapax.record r
SET serial = u.serial, state = u.state, attempt = u.attempt, owner = u.owner, claimed_ms = u.claimed_ms,
    lease_ms = u.lease_ms, ended_ms = u.ended_ms, expires_ms = u.expires_ms, ttl_ms = u.ttl_ms,
    fingerprint_version = u.fingerprint_version, fingerprint = u.fingerprint,
    scope = coalesce(u.scope, r.scope), key = coalesce(u.key, r.key),
    status = u.status, kept = u.kept, head = u.head, body = u.body
FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[],
            $15::bigint[], $16::bigint[], $17::bytea[], $18::bytea[])
     AS u (digest, serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
           fingerprint_version, fingerprint, scope, key, status, kept, head, body)
WHERE r.digest = u.digest

-- name: delete
DELETE FROM hapax.record WHERE digest = ANY ($1::bytea[])

-- Last before COMMIT: who holds this row waits for nothing.
-- name: next_generation
UPDATE hapax.meta SET value = value + 1 WHERE name = 'generation'

-- name: generation
SELECT value FROM hapax.meta WHERE name = 'generation'

-- One node at a time: who does not get the lock at once removes nothing. A slice ends early where bodies are large. A body's
-- length is known without reading it.
-- name: sweep
WITH mine AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('hapax.sweep', 0)) AS ours
), due AS MATERIALIZED (
    SELECT digest, coalesce(octet_length(body), 0) AS bytes
    FROM hapax.record
    WHERE state = 2 AND expires_ms <= (SELECT coalesce($1::bigint, hapax.clock_ms()))
    ORDER BY expires_ms
    LIMIT CASE WHEN (SELECT ours FROM mine) THEN $2::bigint ELSE 0 END
    FOR UPDATE SKIP LOCKED
), slice AS (
    SELECT digest, coalesce(sum(bytes) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM due
)
DELETE FROM hapax.record r USING slice WHERE r.digest = slice.digest AND slice.before < 4194304

-- One node at a time for each owner. Records that a batch has locked just now may be at their end: left to a later call.
-- name: abandon
WITH mine AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('hapax.abandon.' || $1::bigint, 0)) AS ours
), lost AS MATERIALIZED (
    SELECT digest, t.now
    FROM hapax.record, (SELECT coalesce($2::bigint, hapax.clock_ms()) AS now OFFSET 0) t
    WHERE state = 1 AND CASE WHEN $1::bigint > 0 THEN owner = $1 ELSE lease_ms <= t.now END
    LIMIT CASE WHEN (SELECT ours FROM mine) THEN $3::bigint ELSE 0 END
    FOR UPDATE OF record SKIP LOCKED
)
UPDATE hapax.record r SET state = 3, ended_ms = least(r.lease_ms, lost.now) FROM lost WHERE r.digest = lost.digest

-- No row: somebody registers the same text at this moment; ask again. Who comes tidies up after handles that are gone.
-- name: register_owner
WITH gone AS (
    DELETE FROM hapax.handle WHERE seen_ms < hapax.clock_ms() - 86400000
), made AS (
    INSERT INTO hapax.owner (text)
    SELECT $1::bytea WHERE NOT EXISTS (SELECT FROM hapax.owner WHERE text = $1)
    ON CONFLICT DO NOTHING RETURNING number
)
SELECT number FROM made UNION ALL SELECT number FROM hapax.owner WHERE text = $1

-- A session that claims for an owner ($2; 0: none any more) shares a lock on it, instead of the former one ($1; 0: none).
-- name: hold_owner
SELECT CASE WHEN $1::bigint > 0 THEN pg_advisory_unlock_shared(hashtextextended('hapax.owner.' || $1, 0)) END,
       CASE WHEN $2::bigint > 0 THEN pg_advisory_lock_shared(hashtextextended('hapax.owner.' || $2, 0)) END

-- No other session claims for this owner, or the division fails; nor will one before the end of the transaction. The next
-- statement then sees all its claims: one that a dead process had sent is committed before its session ends.
-- name: unheld_owner
SELECT 1 / pg_try_advisory_xact_lock(hashtextextended('hapax.owner.' || $1::bigint, 0))::int

-- name: owners
SELECT number, text FROM hapax.owner ORDER BY number

-- One row: does the owner hold a running record?
-- name: forget_owner
WITH holds AS MATERIALIZED (
    SELECT count(*) AS n FROM (SELECT FROM hapax.record WHERE state = 1 AND owner = $1::bigint LIMIT 1) x
), gone AS (
    DELETE FROM hapax.owner WHERE number = $1 AND (SELECT n FROM holds) = 0
)
SELECT n FROM holds

-- $1 after this serial, $2 scope or NULL, $3 key or NULL, $4 now, $5 rows, $6 state, 0: all.
-- name: list
SELECT digest, serial, state::bigint, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version::bigint, fingerprint, status::bigint, kept::bigint,
       coalesce(octet_length(body), 0)::bigint, scope, key, t.now
FROM hapax.record, (SELECT coalesce($4::bigint, hapax.clock_ms()) AS now OFFSET 0) t
WHERE serial > $1::bigint AND ($2::bytea IS NULL OR scope = $2) AND ($3::bytea IS NULL OR key = $3)
  AND ($6::bigint = 0 OR state = $6) AND (state <> 2 OR expires_ms > t.now)
ORDER BY serial
LIMIT $5::bigint

-- The same for running (1) and unknown (3), which are few among many done ones.
-- name: list_open
SELECT digest, serial, state::bigint, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
       fingerprint_version::bigint, fingerprint, status::bigint, kept::bigint, 0::bigint, scope, key, t.now
FROM hapax.record, (SELECT coalesce($4::bigint, hapax.clock_ms()) AS now OFFSET 0) t
WHERE state <> 2
  AND serial > $1::bigint AND ($2::bytea IS NULL OR scope = $2) AND ($3::bytea IS NULL OR key = $3)
  AND ($6::bigint = 1) = (state = 1 AND lease_ms > t.now)
ORDER BY serial
LIMIT $5::bigint

-- All records are counted one by one only where the table is small. Sizes are asked of the server's file system, one question a
-- gigabyte; its logs, which are not ours alone, are left out.
-- name: stats
SELECT (SELECT count(*) FROM hapax.record WHERE state = 1),
       (SELECT count(*) FROM hapax.record WHERE state <> 2 AND state = 3),
       CASE WHEN pg_relation_size('hapax.record') < 67108864 THEN (SELECT count(*) FROM hapax.record)
            ELSE (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'hapax.record'::regclass) END,
       (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
        WHERE relnamespace = 'hapax'::regnamespace AND relkind = 'r')
