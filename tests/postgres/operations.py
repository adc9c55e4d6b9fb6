"""What the tests of sql/functions.sql share: a database, sessions, and the functions as an application calls them.
The fixtures are imported by name."""

import contextlib
import itertools
import subprocess

import psycopg
import pytest
from harness import HAPAX

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def store(server):
    """The URI of a database with the functions and a table of effects. Each test uses keys of its own."""
    uri = server.uri(server.database())
    run([HAPAX, "migrate", "--store", uri])
    with psycopg.connect(uri) as db:
        db.execute("CREATE TABLE effect (key text NOT NULL)")
    return uri


@pytest.fixture
def key():
    return f"key-{next(numbers)}"


@pytest.fixture
def session(store):
    with contextlib.closing(psycopg.connect(store)) as db:
        yield db


def run(command, status=0):
    """Its output; the status must be this one."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def begin(db, key, scope="orders", **named):
    more = "".join(f", {name} => %({name})s" for name in named)
    row = db.execute(f"SELECT (r).* FROM (SELECT hapax.begin(%(scope)s, %(key)s{more}) AS r OFFSET 0) x",
                     {"scope": scope, "key": key, **named}).fetchone()
    names = "verdict answer answer_bytes status kept serial attempt claimed expires".split()
    return dict(zip(names, row, strict=True))


def complete(db, key, answer, scope="orders", status=0):
    return db.execute("SELECT hapax.complete(%s, %s, %s, %s)", (scope, key, answer, status)).fetchone()[0]


def lookup(db, key, scope="orders"):
    row = db.execute("SELECT state, answer, status FROM hapax.lookup(%s, %s)", (scope, key)).fetchone()
    db.rollback()
    return row


def do_once(db, key, answer, **named):
    """The whole of what an application does. The verdict, and the answer given."""
    with db.transaction():
        found = begin(db, key, **named)
        if found["verdict"] != "fresh":
            return found["verdict"], found["answer"]
        db.execute("INSERT INTO effect VALUES (%s)", (key,))
        complete(db, key, answer)
        return "fresh", answer


def effects(db, key):
    count = db.execute("SELECT count(*) FROM effect WHERE key = %s", (key,)).fetchone()[0]
    db.rollback()
    return count


@contextlib.contextmanager
def refused(state, words=""):
    with pytest.raises(psycopg.Error, match=words) as caught:
        yield
    assert caught.value.sqlstate == state, caught.value


def count(db, scope, key):
    rows = db.execute("SELECT count(*) FROM hapax.record WHERE digest = hapax.identity(%s, %s)", (scope, key)).fetchone()[0]
    db.rollback()
    return rows
