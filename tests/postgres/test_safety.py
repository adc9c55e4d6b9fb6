"""Which servers a gateway starts on: settings that lose commits, standbys, several hosts, old ones, silent ones."""

import contextlib
import socket
import subprocess
import threading

import pytest
from harness import HAPAX, PATIENCE_S, Gateway, config_for, wait_until
from postgres_server import PostgresServer

ALLOW = "allow_unsafe_store: true\n"


@pytest.fixture(scope="module")
def own():
    """A server whose settings a test may change."""
    if PostgresServer.missing() is not None:
        pytest.skip(PostgresServer.missing())
    with PostgresServer() as server:
        yield server


@contextlib.contextmanager
def setting(server, name, value, seen="postgres"):
    """For all new sessions, within."""

    def apply(command):
        server.sql(f"ALTER SYSTEM {command}")
        server.sql("SELECT pg_reload_conf()")

    before = server.sql(f"SHOW {name}", seen)
    apply(f"SET {name} = '{value}'")
    try:
        wait_until(lambda: server.sql(f"SHOW {name}", seen) == [[value]], "the setting counts")
        yield
    finally:
        apply(f"RESET {name}")
        wait_until(lambda: server.sql(f"SHOW {name}", seen) == before, "the setting counts no more")


def hapax(*args, code=0):
    run = subprocess.run([HAPAX, *args], capture_output=True, text=True, timeout=PATIENCE_S * 3, check=False)
    assert run.returncode == code, (args, run.returncode, run.stderr)
    return run


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_setting_that_loses_commits_is_refused_or_warned_of(own, upstream, start, tmp_path, name):
    database = own.uri(own.database())
    with setting(own, name, "off"):
        (tmp_path / "refused").mkdir()
        refused = Gateway(tmp_path / "refused", config_for(upstream), store=database)
        refused.spawn()
        assert refused.process.wait(PATIENCE_S) == 5
        assert f"{name} is off" in refused.log_text() and "allow_unsafe_store" in refused.log_text()
        assert own.sql("SELECT to_regclass('hapax.meta')", database.rsplit("/", 1)[1]) == [[""]]

        allowed = start(ALLOW + config_for(upstream), "allowed", store=database)
        assert allowed.log_text().count("unsafe-store") == 1
        assert f"{name} is off" in allowed.log_text()
        assert allowed.post("/orders", "one").status == 201
        allowed.stop()
        allowed.start()
        assert allowed.log_text().count("unsafe-store") == 2  # at each start
        assert "warning: PostgreSQL at 127.0.0.1" in hapax("migrate", "--store", database).stderr
    safe = start(ALLOW + config_for(upstream), "safe", store=database)
    assert "unsafe-store" not in safe.log_text()


def test_the_option_of_serve_allows_the_same(own, upstream, start):
    with setting(own, "fsync", "off"):
        allowed = start(None, store=own.uri(own.database()),
                        arguments=["--to", upstream.url, "--allow-unsafe-store"])
        assert allowed.log_text().count("unsafe-store") == 1


def test_commits_wait_for_synchronous_standbys_whatever_the_database_asks_for(own, upstream, start):
    name = own.database()
    own.sql(f"ALTER DATABASE {name} SET synchronous_commit = local")
    gateway = start(config_for(upstream), store=own.uri(name))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(gateway.post("/orders", "one")))
    waiting = f"SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = '{name}'"
    with setting(own, "synchronous_standby_names", "nobody"):
        thread.start()
        wait_until(lambda: own.sql(waiting) == [["t"]], "the claim waits for a standby")
        assert upstream.effects() == []
    thread.join(PATIENCE_S)
    assert [a.status for a in answers] == [201]


def test_a_standby_is_skipped_and_taken_over_to_without_a_restart(upstream, start):
    if PostgresServer.missing() is not None:
        pytest.skip(PostgresServer.missing())
    with PostgresServer() as primary, primary.standby() as standby:
        name = primary.database()
        hapax("migrate", "--store", primary.uri(name))
        wait_until(lambda: standby.sql(f"SELECT count(*) FROM pg_database WHERE datname = '{name}'") == [["1"]],
                   "the standby has the database")
        asynchronous = f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/{name}"
        assert "session is read-only" in hapax("migrate", "--store", standby.uri(name), code=5).stderr
        anyway = standby.uri(name) + "?target_session_attrs=any"
        assert "is a standby" in hapax("migrate", "--store", anyway, code=5).stderr
        wait_until(lambda: standby.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'hapax'", name) == [["1"]],
                   "the standby has the tables")
        assert "records" in hapax("stats", "--store", standby.uri(name)).stdout

        gateway = start(config_for(upstream), store=asynchronous)
        assert "synchronous_standby_names is empty" in gateway.log_text()
        gateway.stop()
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.sql("SELECT pg_reload_conf()")
        wait_until(lambda: primary.sql("SELECT sync_state FROM pg_stat_replication") == [["sync"]], "it is synchronous")
        gateway.start()
        assert gateway.log_text().count("unsafe-store") == 1  # that of before
        first = gateway.post("/orders", "one")
        assert first.status == 201
        primary.kill()
        standby.promote()
        wait_until(lambda: gateway.post("/orders", "two").status == 201, "it goes on")
        again = gateway.post("/orders", "one")
        assert (again.marker, again.body) == ("replayed", first.body)
        assert len(upstream.effects("/orders")) == 2
        gateway.stop()


def test_a_silent_host_costs_a_bounded_time_and_the_next_one_is_taken(server, database):
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(8)  # takes connections and never says a word
        port = hole.getsockname()[1]
        assert "timeout expired" in hapax("stats", "--store", f"postgresql://x@127.0.0.1:{port}/x", code=5).stderr
        both = database.replace("127.0.0.1:", f"127.0.0.1:{port},127.0.0.1:") + "?connect_timeout=2"
        assert "from version 0" in hapax("migrate", "--store", both).stdout


def old_server(listener):
    """Just enough of the protocol to look like PostgreSQL 14 on which a client has logged in."""

    def message(kind, body):
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    def serve(sock):
        while (size := sock.recv(4)) and (body := sock.recv(int.from_bytes(size, "big") - 4))[:2] == b"\x04\xd2":
            sock.sendall(b"N")  # neither TLS nor GSSAPI
        reports = {"server_version": "14.9", "in_hot_standby": "off", "default_transaction_read_only": "off",
                   "client_encoding": "UTF8"}
        sock.sendall(message(b"R", bytes(4)) +
                     b"".join(message(b"S", f"{k}\0{v}\0".encode()) for k, v in reports.items()) +
                     message(b"K", bytes(8)) + message(b"Z", b"I"))
        sock.recv(100)

    with contextlib.suppress(OSError):
        while True:
            sock, _ = listener.accept()
            with sock:
                serve(sock)


def test_a_server_before_15_is_refused(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        thread = threading.Thread(target=old_server, args=(listener,), daemon=True)
        thread.start()
        run = hapax("migrate", "--store", f"postgresql://x@127.0.0.1:{listener.getsockname()[1]}/x", code=1)
        assert "version 14" in run.stderr and "needs PostgreSQL 15 or newer" in run.stderr
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)
