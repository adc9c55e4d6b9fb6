"""The database is away, at the start, for a while or for good; it refuses, is full or frozen. Then the gateway says so,
answers keyed requests with 503 and forwards none, serves everything else, and goes on by itself."""

import concurrent.futures
import contextlib
import itertools
import subprocess
import threading
import time

import psycopg
import pytest
from delay import Distance
from harness import HAPAX, PATIENCE_S, at_once, config_for, is_sanitized, wait_until
from postgres_server import PostgresServer

numbers = itertools.count(1)
CONNECTIONS = 14  # of which the gateway needs four
ROLE = "gateway"


@pytest.fixture(scope="module")
def own_server():
    """A server to be stopped, filled and frozen. Over TCP every role but the superuser needs its password."""
    if PostgresServer.missing() is not None:
        pytest.skip(PostgresServer.missing())
    with PostgresServer(max_connections=str(CONNECTIONS)) as running:
        running.sql(f"SET password_encryption = 'scram-sha-256'; CREATE ROLE {ROLE} LOGIN PASSWORD 'right'")
        with open(running.data + "/pg_hba.conf", "w", encoding="utf-8") as hba:
            hba.write("local all all trust\nhost all postgres all trust\nhost all all all scram-sha-256\n")
        running.sql("SELECT pg_reload_conf()")
        yield running
        if running.process is not None:
            running.kill()  # nobody waits for its last checkpoint


@pytest.fixture
def away(own_server):
    """The server, which runs again afterwards whatever a test did."""
    yield own_server
    if own_server.process is None:
        own_server.start()


@pytest.fixture
def store(away):
    """The URI of an empty database of the role that is not a superuser."""
    database = away.database()
    away.sql(f"GRANT ALL ON DATABASE {database} TO {ROLE}")
    return f"postgresql://{ROLE}:right@127.0.0.1:{away.port}/{database}"


def new_key():
    return f"key-{next(numbers)}"


def is_ready(gateway):
    return gateway.admin("/readyz").status == 200


def must_refuse(gateway, upstream):
    """A keyed request now: its key. It is told to come again, and the upstream has not heard of it."""
    key = new_key()
    before = len(upstream.effects("/orders"))
    answer = gateway.post("/orders", key)
    assert answer.status == 503, answer
    assert answer.get("Content-Type") == "application/problem+json"
    assert answer.get("Retry-After").isdigit()
    assert b"store-unavailable" in answer.body
    assert len(upstream.effects("/orders")) == before
    return key


def must_serve_the_rest(gateway):
    assert gateway.admin("/healthz").status == 200
    assert gateway.metric("hapax_store_up") == 0
    ready = gateway.admin("/readyz")
    assert ready.status == 503 and b'"store"' in ready.body
    assert gateway.request("GET", "/unprotected").status == 201


def must_recover(gateway, keys=()):
    wait_until(lambda: is_ready(gateway), "the gateway is ready again")
    for key in [*keys, new_key()]:
        answer = gateway.post("/orders", key)
        assert answer.status == 201, answer.body
        assert answer.get("Idempotency-Status") == "executed"
        assert gateway.post("/orders", key).get("Idempotency-Status") == "replayed"


def end_sessions(server):
    server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'")


# --- away -------------------------------------------------------------------------------------------------------------


def test_a_gateway_starts_while_the_database_is_away_and_connects_when_it_comes(away, store, upstream, start):
    away.stop()
    gateway = start(config_for(upstream), store=store)
    wait_until(lambda: "store-down: " in gateway.log_text(), "the log says that the store is down")
    must_serve_the_rest(gateway)
    keys = [must_refuse(gateway, upstream) for _ in range(3)]
    assert b"127.0.0.1" in gateway.admin("/readyz").body
    away.start()
    must_recover(gateway, keys)
    assert gateway.metric("hapax_store_up") == 1
    wait_until(lambda: "store-up: " in gateway.log_text(), "the log says that it works again")
    assert gateway.log_text().count("store-down: ") == 1


def test_under_load_the_database_goes_and_comes(away, store, upstream, start):
    """Every key comes to one effect; while the database is away, new ones are refused."""
    gateway = start(config_for(upstream), store=store)
    refused, stop = threading.Event(), threading.Event()

    def client(_):
        keys = []
        while not stop.is_set():
            keys.append(new_key())
            while (answer := gateway.post("/orders", keys[-1])).status != 201:
                assert answer.status == 503 and b"store-unavailable" in answer.body or \
                    answer.status in (409, 502) and b"outcome-unknown" in answer.body, answer.body
                refused.set()
                if stop.wait(0.05):
                    break
        return keys

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, i) for i in range(8)]
        try:
            wait_until(lambda: len(upstream.effects("/orders")) > 100, "load")
            away.kill()
            wait_until(refused.is_set, "requests are refused")
            must_refuse(gateway, upstream)
            away.start()
            wait_until(lambda: is_ready(gateway), "the gateway is ready again")
            count = len(upstream.effects("/orders"))
            wait_until(lambda: len(upstream.effects("/orders")) > count + 100, "load again")
        finally:
            stop.set()
        keys = [key for one in clients for key in one.result()]
    keyed = [effect.get("Idempotency-Key") for effect in upstream.effects("/orders")]
    assert len(keyed) == len(set(keyed)) <= len(keys)
    must_recover(gateway)


def test_away_for_good_memory_stays_flat_and_a_stop_is_quick(away, store, upstream, start):
    gateway = start(config_for(upstream), store=store)
    must_recover(gateway)
    away.kill()
    wait_until(lambda: not is_ready(gateway) or gateway.post("/orders", new_key()) and False, "the store is down")

    def spray(_):
        with gateway.connect() as connection:
            for _ in range(500):
                headers = [("Idempotency-Key", new_key()), ("Content-Type", "application/json")]
                assert connection.request("POST", "/orders", headers, b"{}").status == 503

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(spray, range(4)))
        before = gateway.memory_kib()
        list(pool.map(spray, range(12)))
    grown = gateway.memory_kib() - before
    print(f"memory grew by {grown} KiB over 6000 requests")
    assert is_sanitized() or grown < 4096
    since = time.monotonic()
    gateway.stop()
    print(f"stopped in {time.monotonic() - since:.2f} s")
    assert time.monotonic() - since < 20


# --- refused at the start ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case,words", [
    ("wrong password", "password authentication failed"),
    ("no password", "no password supplied"),
    ("unknown role", "password authentication failed"),
    ("unknown database", "does not exist"),
    ("no right to connect", "permission denied"),
    ("newer tables", "newer"),
])
def test_a_mistake_in_the_configuration_ends_the_start(case, words, away, store, upstream, tmp_path):
    if case == "wrong password":
        store = store.replace(":right@", ":wr0ng-passw0rd@")
    elif case == "no password":
        store = store.replace(":right@", "@")
    elif case == "unknown role":
        store = store.replace(f"//{ROLE}:", "//nobody:")
    elif case == "unknown database":
        store += "_not"
    elif case == "no right to connect":
        away.sql(f"REVOKE ALL ON DATABASE {store.rsplit('/', 1)[1]} FROM {ROLE}, public")
    else:
        subprocess.run([HAPAX, "keys", "forget", "--yes", "--store", store, "no", "such"], check=False,
                       capture_output=True, timeout=PATIENCE_S)
        away.sql(NEWER, store.rsplit("/", 1)[1])
    done = subprocess.run([HAPAX, "serve", "--to", upstream.url, "--listen", "127.0.0.1:0", "--admin", "off", "--store",
                           store], capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=tmp_path)
    assert done.returncode not in (0, 2) and done.returncode > 0
    assert words in done.stderr, done.stderr
    assert "right@" not in done.stderr and "wr0ng" not in done.stderr


NEWER = "UPDATE hapax.meta SET value = value + 100"


# --- full, read-only --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full(server):
    """No connection is left for who is not a superuser."""
    taken = []
    with contextlib.ExitStack() as stack:
        while True:
            try:
                taken.append(stack.enter_context(contextlib.closing(
                    psycopg.connect(f"postgresql://{ROLE}:right@127.0.0.1:{server.port}/postgres"))))
            except psycopg.OperationalError:
                break
        assert taken
        end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}' AND datname <> 'postgres'"
        server.sql(end)
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                taken.append(stack.enter_context(contextlib.closing(
                    psycopg.connect(f"postgresql://{ROLE}:right@127.0.0.1:{server.port}/postgres"))))
                server.sql(end)
        yield


def test_a_database_that_takes_no_more_connections_is_one_that_is_away(away, store, upstream, start):
    with full(away):
        gateway = start(config_for(upstream), store=store)
        wait_until(lambda: "store-down: " in gateway.log_text(), "the log says that the store is down")
        key = must_refuse(gateway, upstream)
        must_serve_the_rest(gateway)
    must_recover(gateway, [key])
    with full(away):
        wait_until(lambda: not is_ready(gateway) or gateway.post("/orders", new_key()) and False, "it is noticed")
        key = must_refuse(gateway, upstream)
    must_recover(gateway, [key])


def test_a_read_only_database_is_one_that_is_away(away, store, upstream, start):
    """As a standby is before it is promoted."""
    gateway = start(config_for(upstream), store=store)
    must_recover(gateway)
    database = store.rsplit("/", 1)[1]
    away.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    try:
        end_sessions(away)
        wait_until(lambda: not is_ready(gateway) or gateway.post("/orders", new_key()) and False, "it is noticed")
        key = must_refuse(gateway, upstream)
    finally:
        away.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    must_recover(gateway, [key])


# --- frozen -----------------------------------------------------------------------------------------------------------


def test_a_frozen_database_holds_up_nothing_else(away, store, upstream, start):
    away.freeze()
    try:
        gateway = start(config_for(upstream, timeouts="{store: 1s}"), store=store)
        must_serve_the_rest(gateway)
        keys = [must_refuse(gateway, upstream)]
    finally:
        away.freeze(False)
    must_recover(gateway, keys)
    away.freeze()
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            held = [pool.submit(must_refuse, gateway, upstream) for _ in range(8)]
            assert gateway.request("GET", "/unprotected").status == 201
            assert gateway.admin("/healthz").status == 200
            assert gateway.admin("/metrics").status == 200
            wait_until(lambda: not is_ready(gateway), "the freeze is noticed")
            since = time.monotonic()
            keys = [one.result() for one in held]
            print(f"refused {time.monotonic() - since:.1f} s after it was noticed")
            must_serve_the_rest(gateway)
            since = time.monotonic()
            keys.append(must_refuse(gateway, upstream))
            print(f"the next one is refused in {time.monotonic() - since:.1f} s")
    finally:
        away.freeze(False)
    must_recover(gateway, keys[-1:])
    for key in keys[:-1]:  # held claims may have been written after all, and are taken back
        wait_until(lambda key=key: gateway.post("/orders", key).status == 201, "a refused key is free")


@pytest.mark.parametrize("heard", [700])
def test_a_server_that_falls_silent_while_a_gateway_connects_holds_it_up_for_no_longer(away, store, upstream, start, heard):
    """It has taken the connection, and freezes at one of the questions that follow."""
    subprocess.run([HAPAX, "keys", "forget", "--yes", "--store", store, "no", "such"], check=False, capture_output=True,
                   timeout=PATIENCE_S)
    with Distance(away.port, 0, silent_after=heard) as distance:
        near = store.replace(f":{away.port}/", f":{distance.port}/")
        gateway = start(config_for(upstream, timeouts="{store: 1s}"), store=near)
        must_serve_the_rest(gateway)
        key = must_refuse(gateway, upstream)
        distance.silent_after = None
        must_recover(gateway, [key])
        gateway.stop()


def test_a_network_that_swallows_packets_is_noticed_and_a_stop_is_not_held_up(away, store, upstream, start):
    with Distance(away.port, 0) as distance:
        near = store.replace(f":{away.port}/", f":{distance.port}/")
        gateway = start(config_for(upstream, timeouts="{store: 1s}"), store=near)
        must_recover(gateway)
        distance.silent = True
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            held = pool.submit(must_refuse, gateway, upstream)
            wait_until(lambda: not is_ready(gateway), "the silence is noticed")
            must_serve_the_rest(gateway)
            held.result()
            since = time.monotonic()
            gateway.stop()
            print(f"stopped in {time.monotonic() - since:.1f} s")


@pytest.mark.parametrize("limit", ["0", "50ms"])
def test_a_record_that_somebody_holds_locked_fails_its_own_request_alone(away, store, upstream, start, limit):
    """Whatever shares its batch succeeds, and the store is not down. A limit for statements that the database sets is not for
    the store, which has its own for waits."""
    away.sql(f"ALTER DATABASE {store.rsplit('/', 1)[1]} SET statement_timeout = '{limit}'")
    first = start(config_for(upstream), "first", store=store)
    locked = new_key()
    assert first.post("/orders", locked).status == 201
    gateway = start(config_for(upstream, timeouts="{store: 500ms}"), "second", store=store)
    others = [new_key() for _ in range(15)]
    with psycopg.connect(store, options="-c statement_timeout=0") as db:
        assert db.execute("SELECT serial FROM hapax.record FOR UPDATE").rowcount == 1
        answers = at_once(16, lambda i: gateway.post("/orders", locked if i == 0 else others[i - 1]))
        assert (answers[0].status, b"overloaded" in answers[0].body) == (503, True), answers[0].body
        assert [a.status for a in answers[1:]] == [201] * 15, answers[1:]
        assert gateway.metric("hapax_store_up") == 1 and "store-down: " not in gateway.log_text()
        db.rollback()
    assert gateway.post("/orders", locked).get("Idempotency-Status") == "replayed"
    assert len(upstream.effects("/orders")) == 16
