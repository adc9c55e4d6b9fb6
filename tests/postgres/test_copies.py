"""Copies of a database with schema hapax: dumped and restored in every way that docs/POSTGRES.md names, and one that was copied
without the sequence of serials, which must not begin to serve."""

import re
import subprocess

import psycopg
import pytest
from harness import HAPAX, PATIENCE_S, ROOT, Gateway, config_for, is_sanitized
from operations import begin, complete, do_once, lookup, refused, run
from operations import key, session, store  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(is_sanitized(), reason="only the server's code is at work: the release build tests it")


def piped(server, *commands):
    """A shell line of PostgreSQL's own programs; it must succeed, each part of it."""
    line = "set -o pipefail; " + " | ".join(commands)
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                          env={"PATH": server.binaries + ":/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def mend():
    """The filter for dumps in plain text, as the documentation has it."""
    return re.search(r"sed '[^']+'", (ROOT / "docs/POSTGRES.md").read_text())[0]


def must_go_on(uri, key):
    """What was done is answered, and new keys can be used, by the functions and by programs."""
    with psycopg.connect(uri) as db:
        assert lookup(db, key)[:2] == ("done", "before")
        assert begin(db, key)["verdict"] == "replay"
        db.rollback()
        assert begin(db, key + "-new")["verdict"] == "fresh"
        complete(db, key + "-new", "after")
        db.commit()
        begin(db, key + "-open")
        with refused("55000", "neither completed nor released"):
            db.commit()
    assert "already" in run([HAPAX, "migrate", "--store", uri])
    run([HAPAX, "keys", "forget", "--yes", "--store", uri, "orders", key + "-new"])


@pytest.mark.parametrize("form", ["custom", "plain"])
def test_a_dump_can_be_restored(server, store, session, key, form):
    do_once(session, key, "before")
    copy = server.uri(server.database())
    if form == "custom":
        piped(server, f"pg_dump -Fc '{store}'", f"pg_restore --exit-on-error -d '{copy}'")
    else:
        piped(server, f"pg_dump '{store}'", mend(), f"psql -XqAt -v ON_ERROR_STOP=1 -d '{copy}'")
    must_go_on(copy, key)
    with psycopg.connect(copy) as db:  # what stands behind hapax in the dump, too
        assert db.execute("SELECT count(*) FROM effect WHERE key = %s", (key,)).fetchone()[0] == 1


def test_the_filter_changes_nothing_else(server, store):
    plain = piped(server, f"pg_dump -s '{store}'").splitlines()
    mended = piped(server, f"pg_dump -s '{store}'", mend()).splitlines()
    changed = [(a, b) for a, b in zip(plain, mended, strict=True) if a != b and "restrict " not in a]  # a random word
    assert len(changed) == 2 and all(b == a.replace("hapax.begin(", 'hapax."begin"(', 1) for a, b in changed)


def test_a_dump_of_the_table_alone_takes_the_serials_along(server, store, session, key):
    do_once(session, key, "before")
    copy = server.uri(server.database())
    run([HAPAX, "migrate", "--store", copy])
    piped(server, f"pg_dump -Fc -a -t hapax.record '{store}'", f"pg_restore --exit-on-error -d '{copy}'")
    must_go_on(copy, key)


def test_rows_without_their_sequence_are_not_served_until_it_is_set(server, store, session, key, upstream, start, tmp_path):
    """As after logical replication, which copies no sequences."""
    do_once(session, key, "before")
    copy = server.uri(server.database())
    run([HAPAX, "migrate", "--store", copy])
    piped(server, f"psql -XqAt -d '{store}' -c 'COPY hapax.record TO STDOUT'",
          f"psql -XqAt -d '{copy}' -c 'COPY hapax.record FROM STDIN'")
    refusing = Gateway(tmp_path, config_for(upstream), store=copy)
    refusing.spawn()
    assert refusing.process.wait(PATIENCE_S) == 5
    assert "hapax.serial is at 0, its table at " in refusing.log_text()
    run([HAPAX, "stats", "--store", copy])  # to read is no matter
    with psycopg.connect(copy) as db:
        db.execute((ROOT / "examples/postgres/serials.sql").read_text())
    must_go_on(copy, key)
    assert start(config_for(upstream), store=copy).post("/orders", "one").status == 201
