"""Start, stop, reload, expiry."""

import signal
import socket
import sqlite3
import subprocess
import threading

import pytest
from harness import HAPAX, PATIENCE_S, Answer, Ended, Gateway, Upstream, at_once, config_for, request_bytes, wait_until

SCOPE = "orders POST /orders -"
KEY = [("Idempotency-Key", "k")]


def in_background(function, *arguments):
    """A thread and the list its result goes to; a connection that breaks gives None."""
    results = []

    def run():
        try:
            results.append(function(*arguments))
        except (Ended, OSError):
            results.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def refuses_connections(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # it was in the queue when the listener closed
    return False


# --- Stop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_what_runs_and_takes_nothing_new(start, upstream, number, threads):
    gateway = start(config_for(upstream, threads=threads))
    release = threading.Event()
    upstream.answer = Answer(201, [], b"late", wait=release)
    running = [in_background(gateway.post, "/orders", f"k-{i}") for i in range(4)]
    running.append(in_background(gateway.request, "GET", "/stream"))
    wait_until(lambda: len(upstream.effects()) == 5, "they run")
    idle = gateway.connect()
    gateway.process.send_signal(number)
    wait_until(lambda: refuses_connections(gateway.port), "new connections are refused")
    ready = gateway.admin("/readyz")
    assert ready.status == 503 and b"stopping" in ready.body
    assert gateway.admin("/healthz").status == 200
    assert idle.is_closed_by_peer()
    assert gateway.process.poll() is None
    release.set()
    for thread, results in running:
        thread.join()
        assert (results[0].status, results[0].body) == (201, b"late")
        assert results[0].get("Connection") == "close"
    assert gateway.process.wait(PATIENCE_S) == 0
    upstream.answer = Answer()
    gateway.start()
    assert {gateway.post("/orders", f"k-{i}").marker for i in range(4)} == {"replayed"}


def test_a_stop_that_lasts_too_long_leaves_what_ran_unknown(start, upstream):
    gateway = start(config_for(upstream, timeouts="{shutdown: 200ms}"))
    upstream.answer = Answer(action="hang")
    client, results = in_background(gateway.post, "/orders", "k")
    wait_until(upstream.effects, "it runs")
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(PATIENCE_S) == 0
    client.join()
    assert results[0] is None or results[0].problem == "outcome-unknown"
    assert "1 requests did not finish in time" in gateway.log_text()
    upstream.answer = Answer()
    gateway.start()
    again = gateway.post("/orders", "k")
    assert (again.status, again.problem, again.marker) == (409, "outcome-unknown", "held")
    assert len(upstream.effects()) == 1


def test_a_second_signal_stops_at_once(start, upstream):
    gateway = start(config_for(upstream, timeouts="{shutdown: 1h}"))
    upstream.answer = Answer(action="hang")
    client, _ = in_background(gateway.post, "/orders", "k")
    wait_until(upstream.effects, "it runs")
    gateway.process.send_signal(signal.SIGTERM)
    wait_until(lambda: refuses_connections(gateway.port), "it is stopping")
    assert gateway.process.poll() is None
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(PATIENCE_S) == 0
    client.join()
    gateway.start()
    assert gateway.post("/orders", "k").marker == "held"


def test_waiting_duplicates_are_told_of_a_stop(start, upstream):
    gateway = start(config_for(upstream, timeouts="{shutdown: 300ms}"))
    upstream.answer = Answer(action="hang")
    clients = [in_background(gateway.post, "/orders", "k")]
    wait_until(upstream.effects, "the first runs")
    clients += [in_background(gateway.post, "/orders", "k") for _ in range(5)]
    wait_until(lambda: gateway.metric("hapax_waiters") == 5, "five wait")
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(PATIENCE_S) == 0
    for thread, results in clients:
        thread.join()
        assert results[0] is None or results[0].status in (409, 502, 503)
    assert len(upstream.effects()) == 1


# --- Reload ----------------------------------------------------------------------------------------


def test_a_reload_takes_new_routes_and_leaves_running_requests_theirs(start, upstream):
    other = Upstream(Answer(200, [], b"other"))
    try:
        gateway = start(config_for(upstream))
        release = threading.Event()
        upstream.answer = Answer(201, [], b"old", wait=release)
        running, results = in_background(gateway.post, "/orders", "k-1")
        wait_until(upstream.effects, "it runs")
        with gateway.connect() as kept:
            gateway.reload(config_for(other, timeout="7s"))
            assert kept.request("POST", "/orders", [("Idempotency-Key", "k-2")]).body == b"other"
        release.set()
        running.join()
        assert (results[0].body, results[0].marker) == (b"old", "executed")
        assert gateway.post("/orders", "k-1").body == b"old"  # same name, same namespace of keys
        assert gateway.metric("hapax_reloads_total") == 1
        assert [r.get("Idempotency-Key") for r in upstream.effects()] == ["k-1"]
        assert [r.get("Idempotency-Key") for r in other.effects()] == ["k-2"]
    finally:
        other.close()


def test_a_bad_file_keeps_the_old_configuration_and_the_log_says_where_and_why(gateway, upstream):
    gateway.reload("routes:\n  - name: orders\n    path: /\n    to: %s\n    lease: soon\n" % upstream.url)
    line = gateway.log_text().splitlines()[-1]
    assert "hapax.yaml:5" in line and "lease" in line and "soon" in line
    gateway.config_path.unlink()
    gateway.reload()
    assert "hapax.yaml" in gateway.log_text().splitlines()[-1]
    assert gateway.metric("hapax_reload_failures_total") == 2 and gateway.metric("hapax_reloads_total") == 0
    assert [gateway.post("/orders", "k").marker for _ in range(2)] == ["executed", "replayed"]


def test_what_only_a_restart_changes_is_named(gateway, upstream):
    gateway.reload(config_for(upstream, threads="2", limits="{connections: 77}"))
    line = gateway.log_text().splitlines()[-1]
    assert "restart" in line and "threads" in line and "limits" in line
    assert gateway.post("/orders", "k").marker == "executed"


@pytest.mark.parametrize("threads", ["1", "2"])
def test_fifty_reloads_under_load_lose_no_request(start, upstream, threads):
    configs = [config_for(upstream, threads=threads, timeout=f"{t}s") for t in (60, 61)]
    gateway = start(configs[0])
    stopping = threading.Event()
    asked = [0] * 8

    def client(c):
        with gateway.connect() as connection:
            while not stopping.is_set():
                answer = connection.request("POST", "/orders", [("Idempotency-Key", f"k-{c}-{asked[c]}")], b"{}")
                assert (answer.status, answer.marker) == (201, "executed")
                asked[c] += 1

    clients = [in_background(client, c) for c in range(8)]
    try:
        for i in range(50):
            before = sum(asked)
            gateway.reload(configs[(i + 1) % 2])
            wait_until(lambda: sum(asked) > before + 8, "the load goes on")
    finally:
        stopping.set()
        for thread, _ in clients:
            thread.join()
    assert [results for _, results in clients] == [[None]] * 8
    assert len(upstream.effects()) == sum(asked)
    assert gateway.metric("hapax_reloads_total") == 50
    assert gateway.metric("hapax_requests_total", route="orders", outcome="executed") == sum(asked)


# --- Start -----------------------------------------------------------------------------------------


def serve(folder, *arguments):
    return subprocess.run([HAPAX, "serve", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder)


def test_one_url_is_all_it_takes(tmp_path, upstream):
    gateway = Gateway(tmp_path, None, arguments=["--to", upstream.url + "/base"])
    gateway.start()
    try:
        assert [gateway.post("/orders", "k").marker for _ in range(2)] == ["executed", "replayed"]
        assert gateway.post("/orders", None).problem == "key-missing"
        assert [r.target for r in upstream.effects()] == ["/base/orders"]
        gateway.reload()
        assert "--to" in gateway.log_text().splitlines()[-1]
        assert gateway.post("/orders", "k").marker == "replayed"
    finally:
        gateway.stop()


@pytest.mark.parametrize("word", ["pass", "reject"])
def test_requests_without_a_key_may_pass_without_a_configuration(tmp_path, upstream, word):
    gateway = Gateway(tmp_path, None, arguments=["--to", upstream.url, "--missing", word])
    gateway.start()
    try:
        assert [gateway.post("/orders", "k").marker for _ in range(2)] == ["executed", "replayed"]
        assert [gateway.post("/login").marker for _ in range(2)] == [{"pass": "unprotected", "reject": "rejected"}[word]] * 2
        assert len(upstream.effects()) == {"pass": 3, "reject": 1}[word]
    finally:
        gateway.stop()


@pytest.mark.parametrize("which", ["listen", "admin"])
def test_a_port_in_use_is_named(gateway, upstream, tmp_path, which):
    addresses = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", which: f"127.0.0.1:{gateway.port}"}
    done = serve(tmp_path, "--to", upstream.url, "--listen", addresses["listen"], "--admin", addresses["admin"],
                 "--store", "memory:")
    assert done.returncode == 1 and done.stdout == ""
    assert f"127.0.0.1:{gateway.port}" in done.stderr and "in use" in done.stderr
    assert gateway.post("/orders", "k").marker == "executed"


MISTAKES = {
    "no file": (["--config", "none.yaml"], "none.yaml", 1),
    "neither": ([], "--config", 2),
    "both": (["--config", "none.yaml", "--to", "http://127.0.0.1:1"], "--to", 2),
    "no URL": (["--to", "127.0.0.1:3000"], "http://", None),
    "bad address": (["--to", "http://127.0.0.1:1", "--listen", "8080x"], "8080x", None),
    "unknown store": (["--to", "http://127.0.0.1:1", "--store", "redis://x", "--listen", "127.0.0.1:0"], "redis", None),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_start_that_can_not_be_is_explained(tmp_path, name):
    arguments, said, code = MISTAKES[name]
    done = serve(tmp_path, "--admin", "off", *arguments)
    assert said in done.stderr and "listening" not in done.stderr
    assert done.returncode in ((code,) if code else (1, 2))


# --- Time ------------------------------------------------------------------------------------------


def test_a_key_is_free_again_after_its_time(start, upstream):
    gateway = start(config_for(upstream, ttl="1s", lease="500ms"))
    upstream.answer = lambda r: Answer(201, [], b"%d" % r.number)
    assert [gateway.post("/orders", "k").body for _ in range(2)] == [b"1", b"1"]
    wait_until(lambda: gateway.post("/orders", "k").body == b"2", "the key is free")
    for i in range(50):
        gateway.post("/orders", f"k-{i}")
    wait_until(lambda: gateway.metric("hapax_records_expired_total") >= 51, "expired records are removed")
    gateway.stop()
    with sqlite3.connect(gateway.store_path) as db:
        assert db.execute("SELECT count(*) FROM operations WHERE key LIKE 'k-%'").fetchone() == (0,)
    db.close()


def test_an_unknown_outcome_does_not_expire(start, upstream):
    gateway = start(config_for(upstream, ttl="300ms", lease="300ms"))
    upstream.answer = lambda r: Answer(action="close") if r.get("Idempotency-Key") == "k" else Answer()
    assert gateway.post("/orders", "k").marker == "unknown"
    gateway.post("/orders", "other")
    wait_until(lambda: gateway.metric("hapax_records_expired_total") >= 1, "another record expires")
    assert gateway.post("/orders", "k").marker == "held"


# --- Two threads -----------------------------------------------------------------------------------


def test_two_threads_act_as_one(start, upstream):
    gateway = start(config_for(upstream, threads="2"))
    upstream.answer = lambda r: Answer(201, [], b"%d" % r.number, delay_s=0.05)
    answers = at_once(64, lambda c: [gateway.post("/orders", f"k-{k}") for k in range(5)])
    assert len(upstream.effects()) == 5
    for k in range(5):
        assert len({(group[k].status, group[k].body) for group in answers}) == 1
    upstream.answer = Answer(action="close")
    assert gateway.post("/orders", "lost").marker == "unknown"
    assert {a.marker for a in at_once(16, lambda _: gateway.post("/orders", "lost"))} == {"held"}
    other = Upstream(Answer(200, [], b"other"))
    try:
        gateway.reload(config_for(other, threads="2"))
        wait_until(lambda: {gateway.request("GET", "/x").body for _ in range(30)} == {b"other"}, "both threads know")
        assert {gateway.post("/orders", "k-0").marker for _ in range(30)} == {"replayed"}
    finally:
        other.close()


def listeners(port):
    rows = [row.split() for row in open("/proc/net/tcp").read().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def test_every_thread_listens_on_the_port_that_the_kernel_chose(start, upstream):
    gateway = start(config_for(upstream, threads="3"))
    assert listeners(gateway.port) == 3


def test_clients_on_both_threads_are_served(start, upstream):
    gateway = start(config_for(upstream, threads="2"))
    connections = [gateway.connect() for _ in range(40)]
    for connection in connections:
        connection.send(request_bytes("POST", "/orders", KEY, b"{}"))
    assert {c.receive().status for c in connections} == {201}
    for connection in connections:
        connection.close()
    assert len(upstream.effects()) == 1
