"""The plan of every statement of postgres_statements.sql, under the settings of the store's sessions.

What is checked: a row of hapax.record is reached by an index alone. So for each statement, in every plan,
  - each node on hapax.record is a scan of an index that stands beside the statement's name in PLANS, and it enters the
    index at a condition (marked "at") or walks an index that holds few entries ("all": running, open); the planner takes
    one or the other of these two where it does not know how many they hold;
  - nothing is sorted but the rows of one batch, and nothing is hashed or merged.
Plans differ by what the planner knows, so each is looked at on an empty, a small and a large table, with statistics and
without, in a new session and in one that planned everything while the table was empty. A statement that PLANS does not
name fails the test. hapax.handle, hapax.owner and hapax.meta are small; only `enter`, which each batch runs, is held to
its index there."""

import json
import re

import psycopg
import pytest
from harness import ROOT
from psycopg import sql

SOURCE = ROOT / "src/store"
BY_DIGEST = {("record_pkey", "at")}

PLANS = {
    "serials": set(),
    "find_locked": BY_DIGEST,
    "find": BY_DIGEST,
    "now": set(),
    "enter": set(),
    "witness": set(),
    "take_back": BY_DIGEST,
    "claim": set(),
    "complete": BY_DIGEST,
    "insert": set(),
    "update": BY_DIGEST,
    "delete": BY_DIGEST,
    "next_generation": set(),
    "generation": set(),
    "sweep": {("record_expiry", "at"), ("record_pkey", "at")},
    "abandon": {("record_running", "all"), ("record_open", "all"), ("record_pkey", "at")},
    "register_owner": set(),
    "hold_owner": set(),
    "unheld_owner": set(),
    "owners": set(),
    "forget_owner": {("record_running", "at"), ("record_open", "all")},
    "list": {("record_serial", "at")},
    "list_open": {("record_open", "at")},
    # Three are of the count of a small table only, see the statement.
    "stats": {("record_running", "all"), ("record_open", "all"), ("record_expiry", "all"), ("record_serial", "all"),
              ("record_pkey", "all")},
}
SORTS = {"find_locked"}  # the rows of one batch
LARGE = 200_000


def statements():
    parts = re.split(r"^-- name: (\w+)$", (SOURCE / "postgres_statements.sql").read_text(), flags=re.M)[1:]
    return {name: re.sub(r"^--.*$", "", text, flags=re.M).strip() for name, text in zip(parts[::2], parts[1::2])}


def session_settings():
    """Of postgres_open.c, as they stand there."""
    body = re.search(r"static int set_up\(.*?^}", (SOURCE / "postgres_open.c").read_text(), re.S | re.M)[0]
    settings = "".join(re.findall(r'^\s*"(.*?)"', body, re.M))
    assert settings.count("SET ") >= 8, settings
    return settings.replace("%lld", "5000").replace("%s", "off")


class Session:
    """A connection as the store has it, with every statement prepared."""

    def __init__(self, uri):
        self.db = psycopg.connect(uri, autocommit=True)
        self.db.execute(session_settings())
        for name, text in statements().items():
            self.db.execute(f"PREPARE {name} AS {text}")
        rows = self.db.execute("SELECT name, parameter_types::text[] FROM pg_prepared_statements WHERE from_sql")
        self.types = dict(rows.fetchall())

    def run(self, name, *values, explain=""):
        """Values are missing where only the plan is asked for: it is generic."""
        values = values or [None] * len(self.types[name])
        arguments = sql.SQL(", ").join(sql.SQL("{}::{}").format(value, sql.SQL(kind))
                                       for value, kind in zip(values, self.types[name], strict=True))
        execute = sql.SQL("EXECUTE {}({})" if values else "EXECUTE {}").format(sql.Identifier(name), arguments)
        return self.db.execute(sql.SQL("{} {}").format(sql.SQL(explain), execute))

    def plan(self, name, *values, options="FORMAT JSON"):
        [[found]] = self.run(name, *values, explain=f"EXPLAIN ({options})").fetchall()
        return found[0]["Plan"]

    def close(self):
        self.db.close()


def nodes(plan):
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def faults(name, plan):
    """What is wrong with a plan, and which of the expected indexes it uses."""
    wrong, used = [], set()
    for node in nodes(plan):
        kind = node["Node Type"]
        table = node.get("Relation Name")
        index = node.get("Index Name")
        if index is not None and index.startswith("record_"):
            used.add((index, "at" if "Index Cond" in node else "all"))
        elif table == "record" and kind != "ModifyTable":
            wrong.append(f"{kind} on record")
        if "Sort" in kind and name not in SORTS or kind in ("Hash", "Hash Join", "Merge Join"):
            wrong.append(kind)
    return wrong, used


def check_all(sessions, what):
    assert set(statements()) == set(PLANS), "a statement without an expectation, or the other way round"
    found = []
    for age, session in sessions.items():
        for name, expected in PLANS.items():
            plan = session.plan(name)
            wrong, used = faults(name, plan)
            if wrong or not used <= expected or bool(used) != bool(expected):
                found.append(f"{what}, {age} session: {name} uses {used}, {wrong}:\n{json.dumps(plan, indent=1)}")
        [entered] = [n for n in nodes(session.plan("enter")) if n.get("Relation Name") == "handle"]
        if entered.get("Conflict Arbiter Indexes") != ["handle_pkey"]:
            found.append(f"{what}, {age} session: enter")
    assert not found, "\n".join(found)


def fill(db, first, last):
    """Done records, of which the first tenth expired long ago; one in a thousand runs, one in two thousand is unknown."""
    db.execute("""INSERT INTO hapax.record (digest, serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms,
                      ttl_ms, fingerprint_version, fingerprint, scope, key, status, kept, head, body)
                  SELECT uuid_send(gen_random_uuid()), i, s.state, 1, 1 + i % 3, now_ms, now_ms + 30000, now_ms,
                         CASE WHEN i %% 10 = 0 THEN i ELSE now_ms + 86400000 END, 86400000, 1, uuid_send(gen_random_uuid()),
                         'orders POST /orders -', convert_to(i::text, 'UTF8'), CASE s.state WHEN 2 THEN 200 END,
                         CASE s.state WHEN 2 THEN 1 END, CASE s.state WHEN 2 THEN 'head'::bytea END,
                         CASE s.state WHEN 2 THEN decode(repeat('62', 200), 'hex') END
                  FROM generate_series(%s::bigint, %s) AS i, (SELECT hapax.clock_ms() AS now_ms OFFSET 0) AS t,
                       LATERAL (SELECT CASE WHEN i %% 1000 = 1 THEN 1 WHEN i %% 2000 = 2 THEN 3 ELSE 2 END AS state) AS s
               """.replace("i % 3", "i %% 3"), (first, last))


@pytest.fixture
def tables(database):
    """Tables whose statistics only the test makes."""
    with psycopg.connect(database, autocommit=True) as db:
        db.execute((SOURCE / "postgres_schema.sql").read_text())
        db.execute("ALTER TABLE hapax.record SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)")
    return database


def test_rows_are_reached_by_an_index_alone(tables):
    old = Session(tables)
    db = psycopg.connect(tables, autocommit=True)

    def look(what):
        new = Session(tables)
        check_all({"new": new, "old": old}, what)
        new.close()

    look("empty")
    fill(db, 1, 100)
    look("100 rows, no statistics")
    db.execute("VACUUM (ANALYZE) hapax.record")
    look("100 rows")
    fill(db, 101, LARGE)
    look("many rows, statistics of few")
    db.execute("VACUUM (ANALYZE) hapax.record")
    look("many rows")
    db.execute("TRUNCATE hapax.record; ANALYZE hapax.record")
    fill(db, 1, LARGE)
    look("many rows, statistics of none")
    old.close()
    db.close()


def pages(plan):
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_the_sweep_does_not_walk_what_it_removed_before(tables):
    """Removed and not vacuumed: their entries still stand at the front of the index. PostgreSQL marks those that it passes
    once as dead, so each is looked up in the table once and not for each slice."""
    session = Session(tables)
    fill(session.db, 1, LARGE)
    now, slice_rows, slices = LARGE + 1, 500, []
    options = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON"
    while True:
        plan = session.plan("sweep", now, slice_rows, options=options)
        slices.append(pages(plan))
        [[left]] = session.db.execute(
            "SELECT count(*) FROM (SELECT FROM hapax.record WHERE state = 2 AND expires_ms < %s LIMIT 1) x", (now,)).fetchall()
        if left == 0:
            break
    empty = pages(session.plan("sweep", now, slice_rows, options=options))
    print(f"\npages a slice of {slice_rows}: first {slices[0]}, last {slices[-1]}, most {max(slices)}; with nothing to "
          f"remove after {len(slices) * slice_rows}: {empty}")
    assert len(slices) >= 10
    assert slices[-1] < 10 * slices[0] and empty < 10 * slices[0]
    session.close()
