"""The functions of sql/functions.sql: effect and record commit or vanish together."""

import concurrent.futures
import contextlib
import json
import os
import re
import socket

import psycopg
import pytest
from harness import HAPAX, ROOT, at_once, is_sanitized, wait_until
from operations import begin, complete, count, do_once, effects, lookup, numbers, refused, run
from operations import key, session, store  # noqa: F401 (fixtures)

SESSIONS = 16
pytestmark = pytest.mark.skipif(is_sanitized(), reason="only the server's code is at work: the release build tests it")


def blocked(watcher, pid):
    return watcher.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()[0]


@contextlib.contextmanager
def waiting(store, key):
    """A duplicate in another session that waits for the first one's transaction; a future of what it comes to."""
    with psycopg.connect(store) as db, psycopg.connect(store, autocommit=True) as watcher, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(do_once, db, key, "second")
        wait_until(lambda: future.done() or blocked(watcher, db.info.backend_pid), "the duplicate waits")
        assert not future.done()
        yield future


# --- one effect -------------------------------------------------------------------------------------------------------


def test_the_second_time_gets_the_answer_of_the_first(session, key):
    assert do_once(session, key, "first", fingerprint="10.00") == ("fresh", "first")
    again = begin(session, key, fingerprint="10.00")
    assert (again["verdict"], again["answer"], again["answer_bytes"]) == ("replay", "first", b"first")
    assert (again["status"], again["kept"], again["attempt"]) == (0, True, 1)
    session.rollback()
    assert effects(session, key) == 1


def test_a_race_of_sessions_has_one_effect(store, session, key):
    def race(i):
        with psycopg.connect(store) as db:
            return do_once(db, key, f"by session {i}")

    came_to = at_once(SESSIONS, race)
    assert sorted(verdict for verdict, _ in came_to) == ["fresh"] + ["replay"] * (SESSIONS - 1)
    assert len({answer for _, answer in came_to}) == 1
    assert effects(session, key) == 1


def test_a_duplicate_waits_and_gets_the_answer(store, session, key):
    begin(session, key)
    with waiting(store, key) as second:
        session.execute("INSERT INTO effect VALUES (%s)", (key,))
        complete(session, key, "first")
        session.commit()
        assert second.result() == ("replay", "first")
    assert effects(session, key) == 1


@pytest.mark.parametrize("end", ["rollback", "release", "terminate", "vanish"])
def test_a_duplicate_takes_its_turn_when_the_first_one_fails(store, session, key, end):
    with contextlib.closing(psycopg.connect(store)) as first:
        begin(first, key)
        first.execute("INSERT INTO effect VALUES (%s)", (key,))
        with waiting(store, key) as second:
            if end == "rollback":
                first.rollback()
            elif end == "release":
                first.execute("DELETE FROM effect WHERE key = %s", (key,))
                first.execute("SELECT hapax.release('orders', %s)", (key,))
                first.commit()
            elif end == "terminate":
                session.execute("SELECT pg_terminate_backend(%s)", (first.info.backend_pid,))
            else:
                with socket.socket(fileno=os.dup(first.fileno())) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
            assert second.result() == ("fresh", "second")
    assert effects(session, key) == 1


def test_a_savepoint_rolled_back_takes_begin_with_it(session, key):
    with pytest.raises(ZeroDivisionError), session.transaction():
        with session.transaction():
            begin(session, key)
            raise ZeroDivisionError
    with session.transaction():
        session.execute("SAVEPOINT before")
        begin(session, key)
        session.execute("ROLLBACK TO before")
        assert begin(session, key)["verdict"] == "fresh"
        session.execute("SAVEPOINT later")
        complete(session, key, "from a savepoint")
        session.execute("RELEASE later")
    assert lookup(session, key) == ("done", "from a savepoint", 0)


def test_several_operations_of_one_transaction_share_its_fate(session, key):
    keys = [f"{key}-{i}" for i in range(3)]
    for fate in (session.rollback, session.commit):
        for one in keys:
            assert begin(session, one)["verdict"] == "fresh"
            complete(session, one, one)
        fate()
    assert [lookup(session, one)[1] for one in keys] == keys


def test_plpgsql_may_call_them(session, key):
    session.execute("""
        CREATE FUNCTION pg_temp.order_once(name text) RETURNS text LANGUAGE plpgsql AS $$
        DECLARE op hapax.operation_result := hapax.begin('orders', name);
        BEGIN
            IF op.verdict <> 'fresh' THEN RETURN op.answer; END IF;
            INSERT INTO effect VALUES (name);
            PERFORM hapax.complete('orders', name, jsonb_build_object('order', name));
            RETURN 'new';
        END $$""")
    for wanted in ("new", json.dumps({"order": key})):
        assert session.execute("SELECT pg_temp.order_once(%s)", (key,)).fetchone()[0] == wanted
        session.commit()


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_other_content_is_a_mismatch_and_none_is_not_compared(session, key):
    do_once(session, key, "first", fingerprint=b"\x00\xff10.00")
    assert begin(session, key, fingerprint=b"\x00\xff11.00")["verdict"] == "mismatch"
    assert begin(session, key, fingerprint=b"\x00\xff10.00")["verdict"] == "replay"
    assert begin(session, key, fingerprint=None)["verdict"] == "replay"
    assert begin(session, key)["verdict"] == "replay"
    session.rollback()


def test_an_expired_answer_is_forgotten(session, key):
    for turn in ("first", "second"):
        assert do_once(session, key, turn, ttl="1 millisecond", fingerprint=turn) == ("fresh", turn)
        wait_until(lambda: lookup(session, key) is None, "the answer expires")
    assert effects(session, key) == 2


def test_an_expired_answer_has_one_successor(store, session, key):
    do_once(session, key, "first", ttl="1 millisecond")
    wait_until(lambda: lookup(session, key) is None, "the answer expires")
    begin(session, key)
    with waiting(store, key) as second:
        complete(session, key, "next")
        session.commit()
        assert second.result() == ("replay", "next")


def test_the_ttl_counts_from_begin(session, key):
    found = begin(session, key, ttl="3 hours")
    until = complete(session, key, "")
    assert until == found["expires"] and (until - found["claimed"]).total_seconds() == 3 * 3600
    session.commit()


def test_for_ever_is_a_ttl(session, key):
    assert begin(session, key, ttl="100000000 years")["expires"].year == 9999
    assert complete(session, key, "kept").year == 9999
    session.commit()
    shown = session.execute("SELECT expires FROM hapax.operations WHERE key = %s", (key,)).fetchone()[0]
    assert shown.year == 9999 and begin(session, key)["verdict"] == "replay"
    session.rollback()


def test_any_bytes_are_an_answer(session, key):
    every = bytes(range(256))
    begin(session, key)
    complete(session, key, every, status=201)
    found = begin(session, key)
    assert (found["verdict"], found["answer"], found["answer_bytes"], found["status"]) == ("replay", None, every, 201)
    session.commit()


# --- misuse -----------------------------------------------------------------------------------------------------------


def test_a_commit_of_what_is_not_ended_is_refused(session, key):
    begin(session, key)
    session.execute("INSERT INTO effect VALUES (%s)", (key,))
    with refused("55000", "neither completed nor released"):
        session.commit()
    assert lookup(session, key) is None and effects(session, key) == 0
    session.autocommit = True
    with refused("55000", "neither completed nor released"):
        begin(session, key)


def test_the_commit_of_others_rows_is_not_refused(session, key):
    """Those of handles with and without a registered owner."""
    for owner in (0, 7, 2**52 - 1):
        session.execute("""INSERT INTO hapax.record (digest, serial, state, fingerprint_version, attempt, owner,
                               claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms, scope, key)
                           VALUES (hapax.identity('rows', %s), nextval('hapax.serial'), 1, 0, 1, %s, 0,
                               hapax.clock_ms() + 60000, 0, 0, 1000, 'rows', %s)""", (f"{key}-{owner}", owner, key))
        session.commit()
        assert begin(session, f"{key}-{owner}", scope="rows")["verdict"] == "in_progress"


def cannot_be_ended(db, key):
    for call in ("hapax.complete('orders', %s, 'x')", "hapax.release('orders', %s)"):
        with refused("55000", "is not open in this transaction"):
            db.execute(f"SELECT {call}", (key,))
        db.rollback()


def test_only_the_transaction_that_began_can_end_it(store, session, key):
    cannot_be_ended(session, key)
    do_once(session, key, "first")
    cannot_be_ended(session, key)
    # One that came to be committed where the guard was taken away: it is not the next transaction's.
    with psycopg.connect(store) as owner:
        owner.execute("ALTER TABLE hapax.record DISABLE TRIGGER operation_ended")
        begin(owner, key + "-open")
        owner.execute("ALTER TABLE hapax.record ENABLE TRIGGER operation_ended")
        owner.commit()
    assert begin(session, key + "-open")["verdict"] == "in_progress"
    cannot_be_ended(session, key + "-open")
    session.execute("UPDATE hapax.record SET lease_ms = 1 WHERE digest = hapax.identity('orders', %s)", (key + "-open",))
    assert begin(session, key + "-open")["verdict"] == "unknown"
    session.rollback()


def test_beginning_twice_is_a_mistake(session, key):
    begin(session, key)
    with refused("55000", "was begun before in this transaction"):
        begin(session, key)
    session.rollback()


@pytest.mark.parametrize(("state", "words", "call"), [
    ("22023", "at least one character", "hapax.begin('', 'k')"),
    ("22023", "at least one character", "hapax.begin('s', NULL)"),
    ("22023", "longer than", "hapax.begin(repeat('s', 4097), 'k')"),
    ("22023", "longer than", "hapax.begin(repeat('ä', 2049), 'k')"),
    ("22023", "longer than", "hapax.begin('s', repeat('k', 256))"),
    ("22023", "printable ASCII", "hapax.begin('s', 'schlüssel')"),
    ("22023", "printable ASCII", r"hapax.begin('s', E'a\nb')"),
    ("22023", "control character", r"hapax.begin(E's\x7f', 'k')"),
    ("22023", "control character", r"hapax.lookup(E'\x01s', 'k')"),
    ("22023", "ttl", "hapax.begin('s', 'k', ttl => '0')"),
    ("22023", "ttl", "hapax.begin('s', 'k', ttl => NULL)"),
    ("22004", "answer is NULL", "hapax.complete('s', 'k', NULL)"),
    ("22023", "status", "hapax.complete('s', 'k', 'x', 1000)"),
    ("54000", "16 MiB", "hapax.complete('s', 'k', repeat('x', 16777217))"),
])
def test_wrong_arguments_are_refused_with_words(session, state, words, call):
    with refused(state, words):
        session.execute(f"SELECT {call}")
    session.rollback()


def test_the_limits_are_the_librarys():
    limits = (ROOT / "src/base/limits.h").read_text()
    header = (ROOT / "include/hapax/hapax.h").read_text()
    text = (ROOT / "sql/functions.sql").read_text()  # neither is changed by functions_3.sql
    key_max, scope_max = (re.search(rf"LIMIT_{name}_BYTES_MAX +(\d+)", limits)[1] for name in ("KEY", "SCOPE"))
    assert f"> {scope_max} OR length(key_bytes) > {key_max}" in text
    answer_max = re.search(r"HAPAX_ANSWER_BYTES_MAX \(([0-9U *]+)\)", header)[1].replace("U", "")
    assert f"length(answer) > {eval(answer_max)}" in text  # noqa: S307


def test_another_encoding_of_the_database_gives_the_same_identity(server, session):
    name = f"latin_{os.getpid()}"
    server.sql(f"CREATE DATABASE {name} ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    run([HAPAX, "migrate", "--store", server.uri(name)])
    with psycopg.connect(server.uri(name)) as db:
        ask = "SELECT hapax.identity('Zahlungen für Käse', 'k')"
        assert db.execute(ask).fetchone() == session.execute(ask).fetchone()
        begin(db, "k")
        complete(db, "k", "ä €".encode())  # the second can't be said in this encoding
        assert begin(db, "k")["answer"] is None and begin(db, "k")["answer_bytes"] == "ä €".encode()


# --- isolation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_that_misses_the_record_is_a_serialization_failure(store, session, key, level):
    session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    session.execute("SELECT count(*) FROM effect")
    with psycopg.connect(store) as other:
        do_once(other, key, "first")
    with refused("40001"):
        begin(session, key)
    session.rollback()
    session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    assert begin(session, key)["answer"] == "first"
    session.rollback()


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_a_race_at_higher_isolation_has_one_effect_after_retries(store, session, key, level):
    def race(i):
        with psycopg.connect(store) as db:
            db.isolation_level = level
            while True:
                try:
                    return do_once(db, key, f"by session {i}")
                except psycopg.errors.SerializationFailure:
                    db.rollback()

    came_to = at_once(SESSIONS, race)
    assert sorted(verdict for verdict, _ in came_to) == ["fresh"] + ["replay"] * (SESSIONS - 1)
    assert effects(session, key) == 1


ABOVE = pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])


@contextlib.contextmanager
def running_in_a_snapshot(store, session, key, level, lease="hapax.clock_ms() - 1"):
    """A gateway's record, as `session` sees it from here on; a session that may change it."""
    with psycopg.connect(store, autocommit=True) as gateway:
        gateway.execute(f"""INSERT INTO hapax.record (digest, serial, state, fingerprint_version, attempt, owner, claimed_ms,
                               lease_ms, ended_ms, expires_ms, ttl_ms, scope, key)
                            VALUES (hapax.identity('orders', %s), nextval('hapax.serial'), 1, 0, 1, 1, 0, {lease}, 0,
                                    0, 60000, 'orders', %s)""", (key, key))
        session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        session.execute("SELECT count(*) FROM effect")
        yield gateway


EXTENDED = "UPDATE hapax.record SET lease_ms = hapax.clock_ms() + 60000 WHERE digest = hapax.identity('orders', %s)"
DONE = """UPDATE hapax.record SET state = 2, ended_ms = hapax.clock_ms(), expires_ms = hapax.clock_ms() + 60000, status = 201,
              kept = 1, head = '', body = 'by the gateway' WHERE digest = hapax.identity('orders', %s)"""
RELEASED = "DELETE FROM hapax.record WHERE digest = hapax.identity('orders', %s)"


@ABOVE
@pytest.mark.parametrize(("change", "verdict"), [(EXTENDED, "in_progress"), (DONE, "replay")],
                         ids=["extended", "done"])
def test_a_snapshot_of_what_goes_on_elsewhere_is_not_believed(store, session, key, level, change, verdict):
    with running_in_a_snapshot(store, session, key, level) as gateway:
        gateway.execute(change, (key,))
        with refused("40001"):
            begin(session, key)
        session.rollback()
        session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert begin(session, key)["verdict"] == verdict
        session.rollback()


@ABOVE
def test_what_was_released_after_the_snapshot_is_free(store, session, key, level):
    with running_in_a_snapshot(store, session, key, level) as gateway:
        gateway.execute(RELEASED, (key,))
        session.execute("INSERT INTO effect VALUES (%s)", (key,))
        assert begin(session, key)["verdict"] == "fresh"
        complete(session, key, "here")
        session.commit()
    assert lookup(session, key)[:2] == ("done", "here")


@ABOVE
@pytest.mark.parametrize(("lease", "verdict"), [("hapax.clock_ms() - 1", "unknown"),
                                                ("hapax.clock_ms() + 60000", "in_progress")])
def test_a_snapshot_that_is_right_is_told_and_holds_up_nobody(store, session, key, level, lease, verdict):
    with running_in_a_snapshot(store, session, key, level, lease) as gateway:
        assert begin(session, key)["verdict"] == verdict
        gateway.execute("SET lock_timeout = '1ms'")
        gateway.execute(EXTENDED, (key,))  # waits for nothing
        session.rollback()
        session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}, READ ONLY")
        assert begin(session, key)["verdict"] == "in_progress"
        session.rollback()


@ABOVE
def test_beginning_twice_is_a_mistake_at_every_level(session, key, level):
    session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    begin(session, key)
    with refused("55000", "was begun before in this transaction"):
        begin(session, key)
    session.rollback()


def test_how_long_to_wait_is_the_sessions_lock_timeout(store, session, key):
    begin(session, key)
    with psycopg.connect(store) as other:
        other.execute("SET lock_timeout = 10")
        with refused("55P03"):
            begin(other, key)


def test_a_replay_is_a_read(store, session, key):
    do_once(session, key, "first")
    session.execute("SET TRANSACTION READ ONLY")
    assert begin(session, key)["answer"] == "first"
    with refused("25006"):
        begin(session, key + "-new")
    session.rollback()


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def roles(store):
    """Two roles, and the way to be one of them."""
    names = [f"{word}_{next(numbers)}_{os.getpid()}" for word in ("app", "reader")]
    with psycopg.connect(store) as owner:
        owner.execute((ROOT / "examples/postgres/rights.sql").read_text().replace("shop", names[0]))
        owner.execute(f"GRANT INSERT, SELECT ON effect TO {names[0]}")
        owner.execute(f"CREATE ROLE {names[1]}; GRANT USAGE ON SCHEMA hapax TO {names[1]}")
    return names


def test_an_application_needs_no_right_on_the_tables(store, session, roles, key):
    with psycopg.connect(store) as db:
        db.execute(f"SET SESSION AUTHORIZATION {roles[0]}")
        db.commit()
        for wanted in ("fresh", "replay"):
            assert do_once(db, key, "{}")[0] == wanted
        begin(db, key + "-open")
        with refused("55000", "neither completed nor released"):  # the guard runs as its owner, too
            db.commit()
        for statement in ("TABLE hapax.record", "DELETE FROM hapax.record", "UPDATE hapax.meta SET value = 0",
                          "SELECT nextval('hapax.serial')"):
            with refused("42501"):
                db.execute(statement)
            db.rollback()


FOREIGN_TRIGGER = """
    CREATE TYPE pg_temp.evil AS (x int);
    CREATE FUNCTION pg_temp.act() RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE hapax.record SET body = 'forged';
    END $$;
    CREATE FUNCTION pg_temp.as_bytes(e pg_temp.evil) RETURNS bytea LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_temp.act(); RETURN 'x'; END $$;
    CREATE FUNCTION pg_temp.as_number(e pg_temp.evil) RETURNS bigint LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_temp.act(); RETURN 1; END $$;
    CREATE CAST (pg_temp.evil AS bytea) WITH FUNCTION pg_temp.as_bytes(pg_temp.evil) AS IMPLICIT;
    CREATE CAST (pg_temp.evil AS bigint) WITH FUNCTION pg_temp.as_number(pg_temp.evil) AS IMPLICIT;
    CREATE TEMP TABLE bait (digest pg_temp.evil, serial pg_temp.evil, state int);
    CREATE TRIGGER bait AFTER INSERT ON bait FOR EACH ROW EXECUTE FUNCTION hapax.refuse_open();"""


def test_the_guard_runs_nothing_of_a_stranger_with_its_owners_rights(store, session, roles, key):
    do_once(session, key, "honest")
    with psycopg.connect(store) as db:
        db.execute(f"SET SESSION AUTHORIZATION {roles[0]}")
        with refused("42501", "refuse_open"):  # it may not even be put on a table
            db.execute(FOREIGN_TRIGGER)
        db.rollback()
        # Where somebody was granted too much, or a gateway of the version before grants, it looks where it is first.
        session.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hapax TO {roles[0]}")
        session.commit()
        db.execute(f"SET SESSION AUTHORIZATION {roles[0]}")
        db.execute(FOREIGN_TRIGGER)
        with refused("55000", "for triggers on hapax.record alone"):
            db.execute("INSERT INTO bait VALUES (ROW(1)::pg_temp.evil, ROW(1)::pg_temp.evil, 1)")
        db.rollback()
    assert lookup(session, key)[1] == "honest"


DOCUMENTED = {"begin", "complete", "release", "lookup", "sweep", "identity"}


def test_the_functions_are_granted_by_name(store, session, roles):
    """To an application by what docs/POSTGRES.md says, to a gateway by hapax migrate --role, the same."""
    gateway = f"gateway_{next(numbers)}_{os.getpid()}"
    session.execute(f"CREATE ROLE {gateway}")
    session.commit()
    run([HAPAX, "migrate", "--store", store, "--role", gateway])
    granted = """SELECT p.oid::regprocedure::text, p.proname FROM pg_proc p
                 WHERE pronamespace = 'hapax'::regnamespace AND has_function_privilege(%s, p.oid, 'EXECUTE')"""
    application = dict(session.execute(granted, (roles[0],)).fetchall())
    assert set(application.values()) == DOCUMENTED | {"clock_ms"}  # that one is everybody's
    assert len(application) == 10
    assert dict(session.execute(granted, (gateway,)).fetchall()) == application
    session.execute("CREATE FUNCTION hapax.later() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    session.execute("REVOKE ALL ON FUNCTION hapax.later() FROM PUBLIC")
    assert "hapax.later()" not in dict(session.execute(granted, (gateway,)).fetchall())
    session.rollback()


def test_who_may_only_look_into_the_schema_may_call_nothing(store, roles, key):
    calls = ["begin('s', 'k')", "begin('s', 'k', 'f')", "begin('s', 'k', 'f'::bytea)", "complete('s', 'k', 'a'::text)",
             "complete('s', 'k', 'a'::bytea)", "complete('s', 'k', '1'::jsonb)", "release('s', 'k')", "lookup('s', 'k')",
             "sweep()", "identity('s', 'k')"]
    with psycopg.connect(store) as db:
        db.execute(f"SET SESSION AUTHORIZATION {roles[1]}")
        db.commit()
        for call in calls:
            with refused("42501"):
                db.execute(f"SELECT hapax.{call}")
            db.rollback()


def test_every_function_has_a_search_path_of_its_own(session, store):
    """What runs with its owner's rights must not find a caller's functions, operators or tables."""
    rows = session.execute("""SELECT p.proname, coalesce(array_to_string(p.proconfig, ';'), '')
                              FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                              WHERE n.nspname = 'hapax' AND p.prosecdef""").fetchall()
    assert sorted(name for name, _ in rows) == ["begin", "complete", "lookup", "refuse_open", "release", "sweep"]
    assert all("search_path=pg_catalog, pg_temp" in settings for _, settings in rows)


def test_a_callers_own_functions_and_tables_are_not_found(session, key):
    do_once(session, key, "first", fingerprint="f")
    session.execute("""
        CREATE SCHEMA evil;
        CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$SELECT 'aaaaaaaaaaaaaaaaaaaa'::bytea$$;
        CREATE FUNCTION evil.clock_ms() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
        CREATE FUNCTION evil.convert_to(text, text) RETURNS bytea LANGUAGE sql AS $$SELECT 'b'::bytea$$;
        CREATE FUNCTION evil.never(bytea, bytea) RETURNS boolean LANGUAGE sql AS 'SELECT false';
        CREATE OPERATOR evil.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.never);
        CREATE TEMP TABLE record (LIKE hapax.record);
        SET search_path = evil, pg_temp, pg_catalog, public""")
    assert begin(session, key, fingerprint="f")["answer"] == "first"
    assert begin(session, key, fingerprint=b"f")["answer"] == "first"
    assert begin(session, key, fingerprint="g")["verdict"] == "mismatch"
    session.rollback()


# --- retention ---------------------------------------------------------------------------------------------------------


def test_sweep_removes_what_has_expired(session, key):
    for i in range(3):
        do_once(session, f"{key}-{i}", "", ttl="1 hour" if i == 2 else "1 millisecond")
    wait_until(lambda: lookup(session, f"{key}-1") is None, "the answers expire")
    while session.execute("SELECT hapax.sweep(1)").fetchone()[0] > 0:
        session.commit()
    session.commit()
    assert [count(session, "orders", f"{key}-{i}") for i in range(3)] == [0, 0, 1]


def test_sweep_has_a_limit_where_none_is_given(session, key):
    session.execute("""INSERT INTO hapax.record (digest, serial, state, fingerprint_version, attempt, owner, claimed_ms, lease_ms,
                           ended_ms, expires_ms, ttl_ms, scope, key, status, kept, head, body)
                       SELECT hapax.identity('many', %s || i), nextval('hapax.serial'), 2, 0, 1, 1, 0, 0, 0, 1, 1, 'many',
                           convert_to(i::text, 'UTF8'), 0, 1, '', '' FROM generate_series(1, 1500) i""", (key,))
    assert session.execute("SELECT hapax.sweep(NULL)").fetchone()[0] == 1000
    assert session.execute("SELECT hapax.sweep()").fetchone()[0] >= 500
    session.rollback()
