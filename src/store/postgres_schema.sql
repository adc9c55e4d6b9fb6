-- Schema 1 of the PostgreSQL store. One row a record, found by its digest; absent is no row.
--
-- Scopes, keys and owners' texts are bytes: they need not be text in any encoding. The view "operations" is meant
-- for people; to change anything use `hapax keys resolve|forget`.

CREATE SCHEMA hapax;

-- The clock of every decision: one for all hosts.
CREATE FUNCTION hapax.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint';

CREATE TABLE hapax.meta (
    name text PRIMARY KEY,
    value bigint NOT NULL
);
-- generation: grows with every resolve and forget, so that caches of answers notice. schema and least are written
-- after each migration, see postgres_migrate.c.
INSERT INTO hapax.meta VALUES ('generation', 0);

-- A serial is never given twice, since a late owner's fence would fit the new record. CACHE 1: handles take as many
-- as their batches have claims.
CREATE SEQUENCE hapax.serial AS bigint MINVALUE 1 NO CYCLE CACHE 1;

CREATE TABLE hapax.owner (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    text bytea NOT NULL UNIQUE
);

-- A handle's last batch that was committed, and the last of which it wanted to know whether it was: from then on that
-- one can't be committed any more (statements enter and witness). Handles of dead processes are removed after a day.
CREATE TABLE hapax.handle (
    number bigint PRIMARY KEY, -- random
    batch bigint NOT NULL,
    fence bigint NOT NULL,
    seen_ms bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- A record is written two or three times and then removed: room is left on its page, and dead rows are
-- collected long before a fifth of a large table is dead.
CREATE TABLE hapax.record (
    digest bytea PRIMARY KEY,
    serial bigint NOT NULL,
    state smallint NOT NULL CHECK (state IN (1, 2, 3)), -- running, done, unknown
    fingerprint_version smallint NOT NULL,              -- 0: none
    attempt bigint NOT NULL,
    owner bigint NOT NULL,
    claimed_ms bigint NOT NULL,
    lease_ms bigint NOT NULL,
    ended_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    ttl_ms bigint NOT NULL,
    fingerprint bytea,
    scope bytea NOT NULL,
    key bytea NOT NULL,
    status integer, -- of the answer; NULL unless done
    kept smallint,  -- 0: the body was too large to keep
    head bytea,
    body bytea
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
        autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0.05,
        toast.autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX record_serial ON hapax.record (serial);
CREATE INDEX record_expiry ON hapax.record (expires_ms) WHERE state = 2;
CREATE INDEX record_running ON hapax.record (owner, lease_ms) WHERE state = 1;
CREATE INDEX record_open ON hapax.record (serial) WHERE state <> 2;

-- Instants no later than 9999-12-31: a ttl may be "for ever", which timestamps can't hold.
CREATE VIEW hapax.operations AS
SELECT serial,
       attempt,
       CASE state WHEN 1 THEN 'running' WHEN 2 THEN 'done' ELSE 'unknown' END AS state,
       encode(scope, 'escape') AS scope,
       encode(key, 'escape') AS key,
       to_timestamp(claimed_ms / 1000.0) AS claimed,
       CASE state WHEN 1 THEN to_timestamp(least(lease_ms, 253402214400000) / 1000.0) END AS lease_until,
       CASE WHEN state <> 1 THEN to_timestamp(ended_ms / 1000.0) END AS ended,
       CASE state WHEN 2 THEN to_timestamp(least(expires_ms, 253402214400000) / 1000.0) END AS expires,
       status,
       kept,
       octet_length(body) AS body_bytes,
       owner,
       encode(digest, 'hex') AS digest
FROM hapax.record;
