-- Schema 3 of the PostgreSQL store: four things of schemas 1 and 2 that were not as they should be. Objects are replaced and
-- none is added, so grants and everything that uses them stay as they are.

-- A serial belongs to its column, and so leaves the database with the table: pg_dump -t hapax.record takes it along.
ALTER SEQUENCE hapax.serial OWNED BY hapax.record.serial;

-- A trigger's function reads NEW without knowing its type. On a table of somebody else's, a column's type may bring casts,
-- functions of that somebody, which would run with this one's rights: so it looks where it is before it touches NEW.
CREATE OR REPLACE FUNCTION hapax.refuse_open() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    IF TG_RELID <> 'hapax.record'::regclass THEN
        RAISE EXCEPTION 'hapax: refuse_open is for triggers on hapax.record alone'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF EXISTS (SELECT FROM hapax.record r WHERE r.digest = NEW.digest AND r.serial = NEW.serial AND r.state = 1) THEN
        RAISE EXCEPTION 'hapax: operation % was begun but neither completed nor released in this transaction',
            encode(NEW.digest, 'hex')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Call hapax.begin and then hapax.complete or hapax.release between one BEGIN and its COMMIT.';
    END IF;
    RETURN NULL;
END
$$;

-- Nor may anybody make a trigger of it. Who was granted all functions of the schema keeps the others. (The trigger that
-- stands asks nobody for a right.)
REVOKE ALL ON FUNCTION hapax.refuse_open() FROM PUBLIC;
DO $$
DECLARE
    grantee regrole;
BEGIN
    FOR grantee IN
        SELECT DISTINCT a.grantee FROM pg_proc p, aclexplode(p.proacl) a
        WHERE p.oid = 'hapax.refuse_open()'::regprocedure AND a.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION hapax.refuse_open() FROM %s CASCADE', grantee);
    END LOOP;
END
$$;

-- A replay is a mere read. Each further turn of the loop means that another transaction has committed in between.
--
-- In REPEATABLE READ and SERIALIZABLE the row that is read may be an old one: a gateway may have extended or ended its
-- operation since. Then nothing can be inserted beside the new one, which PostgreSQL refuses with 40001. Where the row is
-- as it was read, the insert finds it and does nothing. It locks nothing: a lock would hold up the gateway for as long as
-- this transaction lasts. What is done needs no such proof.
--
-- The clock is read before the record: a lease that had run out by then was not extended.
CREATE OR REPLACE FUNCTION hapax."begin"(scope text, key text, fingerprint bytea DEFAULT NULL,
                                         ttl interval DEFAULT '24 hours')
RETURNS hapax.operation_result
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    id CONSTANT bytea := hapax.identity(scope, key);
    asked CONSTANT bytea := substr(sha256(fingerprint), 1, 16);
    -- No more than a record can hold: "infinity", where intervals know it, is for ever, too.
    keep_ms CONSTANT bigint := least(greatest(floor(extract(epoch FROM ttl) * 1000), 0), 9000000000000000000);
    may_be_old CONSTANT boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
                                   AND current_setting('transaction_read_only') = 'off';
    now_ms bigint;
    r hapax.record;
    result hapax.operation_result;
BEGIN
    IF keep_ms <= 0 THEN -- or the ttl is NULL
        RAISE EXCEPTION 'hapax: the ttl must be longer than nothing' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        now_ms := hapax.clock_ms();
        SELECT * INTO r FROM hapax.record WHERE record.digest = id;
        IF r.state = 2 AND r.expires_ms <= now_ms THEN
            DELETE FROM hapax.record WHERE record.digest = id AND record.serial = r.serial AND record.state = 2;
            r := NULL;
        ELSIF r.state = 2 OR (r.digest IS NOT NULL AND NOT may_be_old) THEN
            RETURN hapax.verdict_of(r, asked, now_ms);
        END IF;
        -- Here a concurrent duplicate waits until the first one's transaction ends.
        INSERT INTO hapax.record (digest, serial, state, fingerprint_version, fingerprint, attempt, owner, claimed_ms,
                                  lease_ms, ended_ms, expires_ms, ttl_ms, scope, key)
        VALUES (id, nextval('hapax.serial'), 1, CASE WHEN asked IS NULL THEN 0 ELSE 1 END, asked, 1,
                hapax.transaction_owner(pg_current_xact_id()), now_ms, now_ms + 60000, 0, now_ms + keep_ms, keep_ms,
                convert_to(scope, 'UTF8'), convert_to(key, 'UTF8'))
        ON CONFLICT (digest) DO NOTHING
        RETURNING 'fresh', record.serial, 1, hapax.instant(now_ms), hapax.instant(now_ms + keep_ms)
        INTO result.verdict, result.serial, result.attempt, result.claimed, result.expires;
        IF FOUND THEN
            RETURN result;
        ELSIF r.digest IS NOT NULL THEN
            RETURN hapax.verdict_of(r, asked, now_ms);
        END IF;
    END LOOP;
END
$$;

-- NULL is the default, not "without a limit".
CREATE OR REPLACE FUNCTION hapax.sweep(rows_max integer DEFAULT 1000) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH due AS MATERIALIZED (
        SELECT digest FROM hapax.record
        WHERE state = 2 AND expires_ms <= (SELECT hapax.clock_ms())
        ORDER BY expires_ms LIMIT coalesce(rows_max, 1000) FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM hapax.record r USING due WHERE r.digest = due.digest RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
