"""The examples in examples/postgres, one contract for all: a payment and its key in one transaction, in psql, C, Python
and JavaScript, and with the key in the business table itself."""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading

import npm
import psycopg
import pytest
from harness import BUILD, HAPAX, ROOT, at_once, is_sanitized, wait_until
from postgres_server import as_postgres, free_port

HERE = ROOT / "examples/postgres"
NPM = BUILD / "examples/postgres-node"
RACE = 4
OTHER_CONTENT, TRY_LATER, FAILED, PSQL_FAILED = 4, 75, 1, 3
numbers = itertools.count(1)


def install_pg():
    try:
        npm.install(HERE, NPM, "pay.mjs", patience_s=120)
    except RuntimeError as why:
        pytest.skip(str(why))


class Example:
    """One of the programs, on a database of its own."""

    def __init__(self, kind, server):
        self.kind = kind
        self.psql = server.binaries + "/psql"
        self.uri = server.uri(server.database())
        self.table = "transfer" if kind == "own_column" else "payment"
        self.retries = kind not in ("psql", "own_column")
        self.errors = FAILED if self.retries else PSQL_FAILED
        if kind != "own_column":
            subprocess.run([HAPAX, "migrate", "--store", self.uri], check=True, capture_output=True, timeout=60)
        self.db = psycopg.connect(self.uri, autocommit=True)
        self.db.execute((HERE / "tables.sql").read_text())
        self.db.execute("INSERT INTO account VALUES ('alice', 5000)")

    def command(self, key, account, cents):
        script = {"psql": "pay.sql", "own_column": "own_column.sql"}.get(self.kind)
        if script is not None:
            return [self.psql, "-XqAt", "-d", self.uri, "-v", f"key={key}", "-v", f"account={account}", "-v",
                    f"cents={cents}", "-f", HERE / script]
        program = {"c": [BUILD / "examples/pay"], "python": ["/usr/bin/python3", HERE / "pay.py"],
                   "node": ["node", NPM / "pay.mjs"]}[self.kind]
        return [*program, self.uri, key, account, str(cents)]

    def pay(self, key, cents=1000, status=0):
        """The verdict and the answer, read as JSON where there is one."""
        done = subprocess.run(self.command(key, "alice", cents), capture_output=True, text=True, check=False,
                              timeout=120)
        assert done.returncode == status, done.stdout + done.stderr
        verdict, _, answer = done.stdout.strip().partition(" ")
        return verdict, json.loads(answer) if answer else None

    def state(self):
        """What is left in the account, and the number of payments."""
        return self.db.execute(f"SELECT (SELECT cents FROM account), (SELECT count(*) FROM {self.table})").fetchone()

    def running(self):
        """The server's process for a session of the program."""
        row = self.db.execute("""SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                                 AND cardinality(pg_blocking_pids(pid)) > 0""").fetchone()
        return row and row[0]


@pytest.fixture(scope="module", params=["psql", "c", "python", "node", "own_column"])
def example(request, server):
    if is_sanitized() and request.param != "c":
        pytest.skip("nothing of ours is compiled into it: the release build tests it")
    if request.param == "node":
        install_pg()
    one = Example(request.param, server)
    with contextlib.closing(one.db):
        yield one


@pytest.fixture
def key(example):
    example.db.execute(f"TRUNCATE {example.table}; UPDATE account SET cents = 5000")
    return f"order-{next(numbers)}"


def test_a_repeat_gets_the_first_answer_and_pays_nothing(example, key):
    verdict, answer = example.pay(key)
    assert verdict == "fresh" and answer["payment"] > 0
    assert example.pay(key) == ("replay", answer)
    assert example.pay(key, 2000, 0 if not example.retries else OTHER_CONTENT) == ("mismatch", None)
    assert example.state() == (4000, 1)


def test_a_race_pays_once(example, key):
    came_to = at_once(RACE, lambda _: example.pay(key))
    assert sorted(verdict for verdict, _ in came_to) == ["fresh"] + ["replay"] * (RACE - 1)
    assert len({answer["payment"] for _, answer in came_to}) == 1
    assert example.state() == (4000, 1)


def test_a_payment_that_fails_leaves_its_key_free(example, key):
    example.pay(key, 6000, example.errors)  # more than there is
    assert example.state() == (5000, 0)
    assert example.pay(key)[0] == "fresh"
    assert example.state() == (4000, 1)


def test_a_session_that_dies_at_work_has_done_nothing(example, key):
    """It waits for the account, which is locked; its session is ended there. The program tries again, or its user."""
    with contextlib.closing(psycopg.connect(example.uri)) as lock:
        lock.execute("SELECT FROM account FOR UPDATE")
        with subprocess.Popen(example.command(key, "alice", 1000), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True) as process:
            first = wait_until(example.running, "the program waits for the account")
            example.db.execute("SELECT pg_terminate_backend(%s)", (first,))
            if example.retries:
                wait_until(lambda: example.running() not in (None, first), "it tries again")
            lock.rollback()
            out, _ = process.communicate(timeout=120)
    if example.retries:
        assert process.returncode == 0 and out.startswith("fresh "), out
        assert example.pay(key)[0] == "replay"
    else:
        assert process.returncode != 0
        assert example.state() == (5000, 0)
        assert example.pay(key)[0] == "fresh"
    assert example.state() == (4000, 1)


class GoneAtCommit:
    """Between a program and its server: it lets COMMIT through, keeps the reply to itself, and then is gone for good."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.carry_one)
        self.thread.start()

    def carry_one(self):
        with self.listener:
            self.listener.settimeout(60)
            near, _ = self.listener.accept()
        with near, socket.create_connection(self.target) as far:
            back = threading.Thread(target=self.carry_back, args=(far, near))
            back.start()
            while data := near.recv(65536):
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)
            back.join()

    @staticmethod
    def carry_back(far, near):
        """Up to the reply that says COMMIT: by then it is committed. Each statement is answered before the next one."""
        while data := far.recv(65536):
            if b"COMMIT\0" in data:
                break
            near.sendall(data)
        near.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()


@pytest.mark.parametrize("example", ["c", "python", "node"], indirect=True)
def test_a_lost_commit_is_never_called_a_failure(example, key, server, monkeypatch):
    """The payment is made, no try can learn of it: that is "nobody knows". Run again it says what it paid."""
    with monkeypatch.context() as away, contextlib.closing(GoneAtCommit(server.port)) as proxy:
        away.setattr(example, "uri", server.uri(example.db.info.dbname, port=proxy.port))
        example.pay(key, status=TRY_LATER)
    assert example.state() == (4000, 1)
    assert example.pay(key)[0] == "replay"
    assert example.state() == (4000, 1)


POOLER = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
"""


@pytest.fixture
def pooler(server):
    """PgBouncer in transaction mode; its port."""
    if shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("there is no pgbouncer here")
    folder, port = pathlib.Path(server.folder), free_port()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "pooler.ini").write_text(POOLER.format(server=server.port, port=port, folder=folder))
    with open(folder / "pooler.log", "wb") as log, subprocess.Popen(
            [*as_postgres(), "pgbouncer", folder / "pooler.ini"], stdout=log, stderr=log,
            env={**os.environ, "PATH": "/usr/sbin:" + os.environ["PATH"]}) as process:
        try:
            wait_until(lambda: answers(server.uri(port=port)), "the pooler answers")
            yield port
        finally:
            process.kill()


def answers(uri):
    try:
        with psycopg.connect(uri) as db:
            return db.execute("SELECT 1").fetchone()
    except psycopg.OperationalError:
        return None


@pytest.mark.parametrize("example", ["c", "python"], indirect=True)
def test_through_a_pooler_in_transaction_mode(example, key, server, pooler, monkeypatch):
    """More programs than the pool has connections: a duplicate that waits keeps one."""
    monkeypatch.setattr(example, "uri", server.uri(example.db.info.dbname, port=pooler))
    came_to = at_once(RACE, lambda i: example.pay(f"{key}-{i % 2}"))
    assert sorted(verdict for verdict, _ in came_to) == ["fresh"] * 2 + ["replay"] * (RACE - 2)
    assert example.state() == (3000, 2)
