-- Schema 2 of the PostgreSQL store: functions for the user's own transaction. docs/POSTGRES.md is their reference.
-- hapax.begin (of bytea), hapax.sweep and hapax.refuse_open are replaced in functions_3.sql.
--
--     BEGIN;
--     SELECT verdict, answer FROM hapax.begin('payments', 'order-1', fingerprint => '10.00', ttl => '24 hours');
--     -- 'fresh': change your own tables, then
--     SELECT hapax.complete('payments', 'order-1', '{"paid":true}');
--     COMMIT;
--
-- Invariants:
--   - The transaction is the claim. A running record of these functions is never committed: the trigger operation_ended
--     refuses that commit. So whoever sees one has begun it himself, nobody else can end it, and no fence is carried.
--   - The record and the user's rows commit or vanish together, also where a savepoint is rolled back.
--   - Identities, states and expiry are those of the gateway and the library (src/core/identity.c, src/core/record.c,
--     src/store/rules.c): all of them may use one table. Tests compare the two implementations.
--   - Functions that touch tables run as their owner with a search_path of their own, and nobody may call them who was
--     not granted it: an application can use operations without any right on the tables.
--
-- They are written so that a wait or a conflict ends in what PostgreSQL says of it: 40001, 40P01, 55P03.
--
-- "begin" stands in quotes where it is made: psql takes the bare word after CREATE FUNCTION for the begin of a body in
-- standard SQL, and from there on no semicolon ends a statement.

-- What begin() found. `answer` is NULL where the answer is not text in UTF-8; answer_bytes always has it.
CREATE TYPE hapax.operation_result AS (
    verdict text,       -- fresh, replay, in_progress, mismatch, unknown
    answer text,        -- replay
    answer_bytes bytea, -- replay
    status integer,     -- replay: as completed, or the HTTP status where a gateway stored the answer
    kept boolean,       -- replay: false where a gateway found the answer too large to keep
    serial bigint,
    attempt bigint,
    claimed timestamptz,
    expires timestamptz -- fresh, replay: until when the answer is kept
);

CREATE FUNCTION hapax.identity(scope text, key text) RETURNS bytea
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    scope_bytes CONSTANT bytea := convert_to(scope, 'UTF8');
    key_bytes CONSTANT bytea := convert_to(key, 'UTF8');
BEGIN
    IF coalesce(scope, '') = '' OR coalesce(key, '') = '' THEN
        RAISE EXCEPTION 'hapax: an operation needs a scope and a key of at least one character'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF length(scope_bytes) > 4096 OR length(key_bytes) > 255 THEN
        RAISE EXCEPTION 'hapax: the scope is longer than 4096 bytes or the key longer than 255'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use a digest of what is too long.';
    ELSIF scope ~ '[\x01-\x1f\x7f]' THEN
        RAISE EXCEPTION 'hapax: the scope holds a control character' USING ERRCODE = 'invalid_parameter_value';
    ELSIF key ~ '[^ -~]' THEN
        RAISE EXCEPTION 'hapax: the key holds something other than printable ASCII'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN substr(sha256(int8send(length(scope_bytes)) || scope_bytes || int8send(length(key_bytes)) || key_bytes),
                  1, 16);
END
$$;

-- Who claims is a transaction: its number, beyond all numbers of registered owners and exact in any JSON reader.
CREATE FUNCTION hapax.transaction_owner(number xid8) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT 4503599627370496 + number::pg_catalog.text::bigint';

-- No later than 9999-12-31: what lies beyond (a ttl "for ever"), most drivers can't read.
CREATE FUNCTION hapax.instant(wall_ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT pg_catalog.to_timestamp(least(wall_ms, 253402214400000) / 1000.0)';

-- NULL where the bytes are no text in UTF-8 that this database can hold.
CREATE FUNCTION hapax.as_text(bytes bytea) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN NULL;
END
$$;

-- What a record says to one who asks for its operation.
CREATE FUNCTION hapax.verdict_of(r hapax.record, asked bytea, now_ms bigint) RETURNS hapax.operation_result
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    result hapax.operation_result;
BEGIN
    result.serial := r.serial;
    result.attempt := r.attempt;
    result.claimed := hapax.instant(r.claimed_ms);
    IF r.fingerprint_version > 0 AND asked <> r.fingerprint THEN
        result.verdict := 'mismatch';
    ELSIF r.owner = hapax.transaction_owner(pg_current_xact_id_if_assigned()) AND r.state = 1 THEN
        RAISE EXCEPTION 'hapax: operation % was begun before in this transaction', encode(r.digest, 'hex')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Call hapax.complete or hapax.release before it is begun again.';
    ELSIF r.state = 3 OR (r.state = 1 AND r.lease_ms <= now_ms) THEN
        result.verdict := 'unknown';
    ELSIF r.state = 1 THEN
        result.verdict := 'in_progress';
    ELSE
        result.verdict := 'replay';
        result.status := r.status;
        result.kept := r.kept = 1;
        result.expires := hapax.instant(r.expires_ms);
        IF result.kept THEN
            result.answer := hapax.as_text(r.body);
            result.answer_bytes := r.body;
        END IF;
    END IF;
    RETURN result;
END
$$;

-- A replay is a mere read. Each further turn of the loop means that another transaction has committed in between.
CREATE FUNCTION hapax."begin"(scope text, key text, fingerprint bytea DEFAULT NULL, ttl interval DEFAULT '24 hours')
RETURNS hapax.operation_result
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    id CONSTANT bytea := hapax.identity(scope, key);
    asked CONSTANT bytea := substr(sha256(fingerprint), 1, 16);
    keep_ms CONSTANT bigint := floor(extract(epoch FROM ttl) * 1000);
    now_ms bigint;
    r hapax.record;
    result hapax.operation_result;
BEGIN
    IF keep_ms IS NULL OR keep_ms <= 0 THEN
        RAISE EXCEPTION 'hapax: the ttl must be longer than nothing' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        SELECT * INTO r FROM hapax.record WHERE record.digest = id;
        now_ms := hapax.clock_ms();
        IF r.digest IS NOT NULL AND (r.state <> 2 OR r.expires_ms > now_ms) THEN
            RETURN hapax.verdict_of(r, asked, now_ms);
        ELSIF r.digest IS NOT NULL THEN
            DELETE FROM hapax.record WHERE record.digest = id AND record.serial = r.serial AND record.state = 2;
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
        END IF;
    END LOOP;
END
$$;

-- Returns until when the answer is kept: the ttl counts from begin(), or from now where that has passed already.
CREATE FUNCTION hapax.complete(scope text, key text, answer bytea, status integer DEFAULT 0) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    id CONSTANT bytea := hapax.identity(scope, key);
    now_ms CONSTANT bigint := hapax.clock_ms();
    kept_until bigint;
BEGIN
    IF answer IS NULL THEN
        RAISE EXCEPTION 'hapax: the answer is NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Give an empty one where there is nothing to say.';
    ELSIF length(answer) > 16777216 THEN
        RAISE EXCEPTION 'hapax: the answer is larger than 16 MiB' USING ERRCODE = 'program_limit_exceeded';
    ELSIF status IS NULL OR status NOT BETWEEN 0 AND 999 THEN
        RAISE EXCEPTION 'hapax: a status is 0 to 999' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE hapax.record
    SET state = 2, ended_ms = now_ms, status = complete.status, kept = 1, head = '', body = complete.answer,
        expires_ms = CASE WHEN record.expires_ms > now_ms THEN record.expires_ms ELSE now_ms + record.ttl_ms END
    WHERE record.digest = id AND record.state = 1
      AND record.owner = hapax.transaction_owner(pg_current_xact_id_if_assigned())
    RETURNING record.expires_ms INTO kept_until;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'hapax: operation % is not open in this transaction', encode(id, 'hex')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'It is where hapax.begin said fresh, in the same transaction, until it is completed, released '
                         'or rolled back.';
    END IF;
    RETURN hapax.instant(kept_until);
END
$$;

-- The operation did not happen, and the transaction goes on without it. (Else just roll back.)
CREATE FUNCTION hapax.release(scope text, key text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    id CONSTANT bytea := hapax.identity(scope, key);
BEGIN
    DELETE FROM hapax.record
    WHERE record.digest = id AND record.state = 1
      AND record.owner = hapax.transaction_owner(pg_current_xact_id_if_assigned());
    IF NOT FOUND THEN
        RAISE EXCEPTION 'hapax: operation % is not open in this transaction', encode(id, 'hex')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'It is where hapax.begin said fresh, in the same transaction, until it is completed, released '
                         'or rolled back.';
    END IF;
END
$$;

-- One row, or none: never claimed, released, expired, or rolled back.
CREATE FUNCTION hapax.lookup(scope text, key text)
RETURNS TABLE (state text, answer text, answer_bytes bytea, status integer, kept boolean, serial bigint, attempt bigint,
               claimed timestamptz, lease_until timestamptz, ended timestamptz, expires timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
    SELECT s.word,
           CASE WHEN s.word = 'done' AND r.kept = 1 THEN hapax.as_text(r.body) END,
           CASE WHEN s.word = 'done' AND r.kept = 1 THEN r.body END,
           CASE WHEN s.word = 'done' THEN r.status END,
           CASE WHEN s.word = 'done' THEN r.kept = 1 END,
           r.serial, r.attempt, hapax.instant(r.claimed_ms),
           CASE WHEN s.word = 'running' THEN hapax.instant(r.lease_ms) END,
           CASE WHEN s.word <> 'running' THEN hapax.instant(CASE r.state WHEN 1 THEN r.lease_ms ELSE r.ended_ms END) END,
           CASE WHEN s.word = 'done' THEN hapax.instant(r.expires_ms) END
    FROM (SELECT hapax.clock_ms() AS ms OFFSET 0) now,
         hapax.record r,
         LATERAL (SELECT CASE WHEN r.state = 2 THEN 'done'
                              WHEN r.state = 1 AND (r.lease_ms > now.ms OR r.owner =
                                       hapax.transaction_owner(pg_current_xact_id_if_assigned())) THEN 'running'
                              ELSE 'unknown' END AS word) s
    WHERE r.digest = hapax.identity($1, $2) AND (r.state <> 2 OR r.expires_ms > now.ms)
$$;

-- For databases where no gateway runs, which sweeps by itself: remove expired answers; how many. 0: no more for now.
CREATE FUNCTION hapax.sweep(rows_max integer DEFAULT 1000) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH due AS MATERIALIZED (
        SELECT digest FROM hapax.record
        WHERE state = 2 AND expires_ms <= (SELECT hapax.clock_ms())
        ORDER BY expires_ms LIMIT rows_max FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM hapax.record r USING due WHERE r.digest = due.digest RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

-- Text and JSON. They have no rights of their own: those of the functions above decide.
CREATE FUNCTION hapax."begin"(scope text, key text, fingerprint text, ttl interval DEFAULT '24 hours')
RETURNS hapax.operation_result
LANGUAGE sql VOLATILE
AS $$ SELECT hapax.begin($1, $2, pg_catalog.convert_to($3, 'UTF8'), $4) $$;

CREATE FUNCTION hapax.complete(scope text, key text, answer text, status integer DEFAULT 0) RETURNS timestamptz
LANGUAGE sql VOLATILE
AS $$ SELECT hapax.complete($1, $2, pg_catalog.convert_to($3, 'UTF8'), $4) $$;

CREATE FUNCTION hapax.complete(scope text, key text, answer jsonb, status integer DEFAULT 0) RETURNS timestamptz
LANGUAGE sql VOLATILE
AS $$ SELECT hapax.complete($1, $2, pg_catalog.convert_to($3::pg_catalog.text, 'UTF8'), $4) $$;

-- The guard. Only records of these functions meet its condition, and it is asked at inserts only: the gateway's
-- statements queue nothing (13 us of CPU a row inserted, with the trigger and without). By the time of COMMIT the
-- record may have been completed, released or rolled back.
CREATE FUNCTION hapax.refuse_open() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    IF EXISTS (SELECT FROM hapax.record r WHERE r.digest = NEW.digest AND r.serial = NEW.serial AND r.state = 1) THEN
        RAISE EXCEPTION 'hapax: operation % was begun but neither completed nor released in this transaction',
            encode(NEW.digest, 'hex')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Call hapax.begin and then hapax.complete or hapax.release between one BEGIN and its COMMIT.';
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER operation_ended AFTER INSERT ON hapax.record
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (NEW.state = 1 AND NEW.owner >= 4503599627370496) EXECUTE FUNCTION hapax.refuse_open();

-- Who was granted USAGE on the schema, to read the view, may not therefore call these. clock_ms tells nothing.
REVOKE ALL ON FUNCTION
    hapax.identity(text, text), hapax.transaction_owner(xid8), hapax.instant(bigint), hapax.as_text(bytea),
    hapax.verdict_of(hapax.record, bytea, bigint),
    hapax.begin(text, text, bytea, interval), hapax.begin(text, text, text, interval),
    hapax.complete(text, text, bytea, integer), hapax.complete(text, text, text, integer),
    hapax.complete(text, text, jsonb, integer), hapax.release(text, text), hapax.lookup(text, text),
    hapax.sweep(integer), hapax.refuse_open()
FROM PUBLIC;
