"""A lane or a loop stands still, as long as the test wants: the others go on, limits hold, and when it goes on
nothing is lost and nothing happens twice."""

import collections
import json
import select
import signal
import threading

import pytest
from harness import PATIENCE_S, Answer, Ended, config_for, request_bytes, wait_until
from parked import parked
from test_store_trouble import Trouble

SCOPE = "orders POST /orders -"
BEFORE, AFTER = "hold=1", "hold=1,when=after"  # the commit
JSON = ("Content-Type", "application/json")


class Asked(threading.Thread):
    """A request in the background; .answer is None until there is one, and when the connection broke."""

    def __init__(self, gateway, key, body=b'{"amount":100}'):
        super().__init__()
        self.gateway, self.key, self.body = gateway, key, body
        self.answer = None
        self.start()

    def run(self):
        try:
            self.answer = self.gateway.post("/orders", self.key, self.body)
        except (Ended, OSError):
            pass

    def result(self):
        self.join()
        return self.answer


@pytest.fixture
def trouble(tmp_path):
    return Trouble(tmp_path)


def state_on_disk(gateway, key):
    shown = gateway.cli("keys", "show", "--json", "--store", f"sqlite:{gateway.folder}/hapax.db", SCOPE, key)
    return json.loads(shown.stdout)["state"] if shown.returncode == 0 else None


def effects_by_key(upstream):
    return collections.Counter(r.get("Idempotency-Key") for r in upstream.effects("/orders"))


# --- The lane --------------------------------------------------------------------------------------


def test_behind_a_lane_that_stands_requests_are_refused_at_the_limit_and_the_rest_goes_on(start, upstream, trouble):
    config = config_for(upstream, threads="2", limits="{queue: 20}")
    gateway = start(config, store=trouble.uri)
    trouble.begin(BEFORE)
    asked = [Asked(gateway, f"k-{i}") for i in range(20)]
    wait_until(lambda: gateway.metric("hapax_queued") == 20, "they are with the lane")
    for i in range(50):
        answer = gateway.post("/orders", f"more-{i}")
        assert (answer.status, answer.problem, answer.marker) == (503, "overloaded", "rejected")
        assert int(answer.get("Retry-After")) >= 1
        assert gateway.request("GET", "/orders").status == 201  # what needs no lane
        assert gateway.admin("/healthz").status == 200
    gateway.reload(config + "# another\n")
    assert gateway.metric("hapax_queued") == 20 and effects_by_key(upstream)["k-0"] == 0
    assert [a.answer for a in asked] == [None] * 20
    trouble.end()
    assert [(a.result().status, a.result().marker) for a in asked] == [(201, "executed")] * 20
    assert {f"k-{i}": 1 for i in range(20)}.items() <= effects_by_key(upstream).items()
    assert len(effects_by_key(upstream)) == 21  # and the GETs, which have no key
    wait_until(lambda: gateway.metric("hapax_queued") == 0, "nothing is left")


def test_a_store_that_stands_is_not_ready_although_nothing_failed(start, upstream, trouble):
    gateway = start(config_for(upstream, timeouts="{store: 1s}"), store=trouble.uri)
    trouble.begin(BEFORE)
    asked = Asked(gateway, "k")
    wait_until(lambda: gateway.admin("/readyz").status == 503, "the store is taken for down")
    assert gateway.metric("hapax_store_errors_total") == 0 and asked.answer is None
    wait_until(lambda: "store-down: the store does not answer" in gateway.log_text(), "the log says so")
    trouble.end()
    assert (asked.result().status, asked.result().marker) == (201, "executed")
    wait_until(lambda: gateway.admin("/readyz").status == 200, "the store is back")


@pytest.mark.parametrize("end", ["goes on", "is killed"])
def test_a_claim_that_is_durable_but_was_not_told(start, upstream, trouble, end):
    """Its request was never forwarded; after a crash nobody can know that, so it is held."""
    gateway = start(config_for(upstream), store=trouble.uri)
    trouble.begin(AFTER)
    asked = Asked(gateway, "k")
    wait_until(lambda: state_on_disk(gateway, "k") == "running", "the claim is on disk")
    copies = [Asked(gateway, "k") for _ in range(5)]
    wait_until(lambda: gateway.metric("hapax_queued") == 6, "the copies are with the lane")
    assert upstream.effects() == [] and asked.answer is None
    if end == "goes on":
        trouble.end()
        assert asked.result().marker == "executed"
        assert {c.result().marker for c in copies} <= {"attached", "replayed"}
        assert len(upstream.effects()) == 1
    else:
        gateway.kill()
        trouble.end()
        assert [a.result() for a in [asked, *copies]] == [None] * 6
        gateway.start()
        answer = gateway.post("/orders", "k")
        assert (answer.status, answer.problem, answer.marker) == (409, "outcome-unknown", "held")
        assert upstream.effects() == []


@pytest.mark.parametrize("end", ["goes on", "is killed"])
@pytest.mark.parametrize("where", [BEFORE, AFTER])
def test_an_answer_that_was_not_told(start, upstream, trouble, where, end):
    gateway = start(config_for(upstream), store=trouble.uri)
    release = threading.Event()
    upstream.answer = Answer(201, [], b"one", wait=release)
    asked = Asked(gateway, "k")
    wait_until(upstream.effects, "it runs")
    trouble.begin(where)
    release.set()
    expected = "running" if where == BEFORE else "done"
    wait_until(lambda: gateway.metric("hapax_queued") == 1 and state_on_disk(gateway, "k") == expected, "it stands")
    assert asked.answer is None
    if end == "goes on":
        trouble.end()
        assert (asked.result().status, asked.result().body, asked.result().marker) == (201, b"one", "executed")
        told = gateway.post("/orders", "k")
        assert (told.marker, told.body) == ("replayed", b"one")
    else:
        gateway.kill()
        trouble.end()
        assert asked.result() is None
        gateway.start()
        told = gateway.post("/orders", "k")
        assert (told.marker, told.body == b"one") == (("held", False) if where == BEFORE else ("replayed", True))
    assert len(upstream.effects()) == 1


@pytest.mark.parametrize("where", [BEFORE, AFTER])
def test_a_stop_waits_for_a_lane_that_stands(start, upstream, trouble, where):
    gateway = start(config_for(upstream, threads="2"), store=trouble.uri)
    trouble.begin(where)
    asked = [Asked(gateway, f"k-{i}") for i in range(8)]
    wait_until(lambda: gateway.metric("hapax_queued") == 8, "they are with the lane")
    gateway.process.send_signal(signal.SIGTERM)
    wait_until(lambda: b"stopping" in gateway.admin("/readyz").body, "it is stopping")
    assert gateway.process.poll() is None and [a.answer for a in asked] == [None] * 8
    trouble.end()
    assert [(a.result().status, a.result().marker) for a in asked] == [(201, "executed")] * 8
    assert gateway.process.wait(PATIENCE_S) == 0
    assert effects_by_key(upstream) == {f"k-{i}": 1 for i in range(8)}


def test_a_stop_whose_time_is_over_while_the_lane_stands_leaves_nothing_undecided(start, upstream, trouble):
    gateway = start(config_for(upstream, timeouts="{shutdown: 100ms}"), store=trouble.uri)
    trouble.begin(AFTER)
    asked = Asked(gateway, "k")
    wait_until(lambda: state_on_disk(gateway, "k") == "running", "the claim is on disk")
    gateway.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "did not finish in time" in gateway.log_text(), "its time is over")
    trouble.end()
    assert gateway.process.wait(PATIENCE_S) == 0
    assert asked.result() is None or asked.result().status in (502, 503)
    gateway.start()
    again = gateway.post("/orders", "k")
    # It was claimed and, as it happens, not forwarded: released, if the gateway still got to it, else held.
    assert again.marker in ("executed", "held")
    assert len(upstream.effects()) == (1 if again.marker == "executed" else 0)


# --- A loop ----------------------------------------------------------------------------------------


class Split:
    """Connections of both loops of a gateway, told apart while the second one stands."""

    def __init__(self, gateway, count=40):
        self.gateway = gateway
        self.connections = [gateway.connect() for _ in range(count)]
        wait_until(lambda: gateway.metric("hapax_connections") == count, "they are accepted")
        with parked(gateway, "hapax-loop-1"):
            for connection in self.connections:
                connection.send(request_bytes("POST", "/orders", [JSON], b"{}"))  # refused at once: it has no key
            for _ in range(3):  # each takes at least one whole turn of the first loop
                gateway.admin("/healthz")
            ready = select.select([c.sock for c in self.connections], [], [], 0)[0]
        self.first = [c for c in self.connections if c.sock in ready]
        self.second = [c for c in self.connections if c.sock not in ready]
        for connection in self.connections:
            assert connection.receive().problem == "key-missing"
        assert self.first and self.second

    def ask(self, connections, name):
        for i, connection in enumerate(connections):
            connection.send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", f"{name}-{i}")], b"{}"))

    def close(self):
        for connection in self.connections:
            connection.close()


def told(connections):
    return {(a.status, a.marker) for a in [c.receive() for c in connections]}


@pytest.fixture
def two_loops(start, upstream, trouble):
    gateway = start(config_for(upstream, threads="2", wait="0"), store=trouble.uri)
    split = Split(gateway)
    yield split
    split.close()


def test_a_loop_that_stands_stops_neither_the_other_one_nor_a_reload(two_loops, upstream):
    gateway = two_loops.gateway
    with parked(gateway, "hapax-loop-1"):
        two_loops.ask(two_loops.second, "second")
        for n in range(5):
            two_loops.ask(two_loops.first, f"first-{n}")
            assert told(two_loops.first) == {(201, "executed")}
            two_loops.ask(two_loops.first, f"first-{n}")
            assert told(two_loops.first) == {(201, "replayed")}
            gateway.reload(config_for(upstream, threads="2", wait="0", timeout=f"{50 + n}s"))
        assert gateway.metric("hapax_reloads_total") == 5
        assert not any(key.startswith("second") for key in effects_by_key(upstream))
    assert told(two_loops.second) == {(201, "executed")}
    two_loops.ask(two_loops.second, "second")
    assert told(two_loops.second) == {(201, "replayed")}
    assert set(effects_by_key(upstream).values()) == {1}


def test_what_a_loop_that_stands_has_running_keeps_its_lease_and_is_not_run_by_the_other(start, upstream):
    gateway = start(config_for(upstream, threads="2", wait="0", lease="6s"))
    split = Split(gateway)
    release = threading.Event()
    upstream.answer = Answer(201, [], b"one", wait=release)
    split.ask(split.second, "k")
    wait_until(lambda: len(upstream.effects()) == len(split.second), "they run")
    with parked(gateway, "hapax-loop-1"):
        release.set()
        lease = gateway.operation(SCOPE, "k-0").json()["lease_until"]
        wait_until(lambda: gateway.operation(SCOPE, "k-0").json()["lease_until"] > lease, "the lease is extended")
        split.first[0].send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", "k-0")], b"{}"))
        answer = split.first[0].receive()
        assert (answer.status, answer.problem) == (409, "in-progress")
        split.first[0].send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", "k-0")], b"[]"))
        assert split.first[0].receive().problem == "key-reused"
    assert told(split.second) == {(201, "executed")}
    assert set(effects_by_key(upstream).values()) == {1}
    split.close()


def test_the_lanes_replies_wait_for_a_loop_that_stands(two_loops, upstream, trouble):
    gateway = two_loops.gateway
    trouble.begin(BEFORE)
    two_loops.ask(two_loops.second, "second")
    wait_until(lambda: gateway.metric("hapax_queued") == len(two_loops.second), "they are with the lane")
    with parked(gateway, "hapax-loop-1"):
        trouble.end()
        wait_until(lambda: gateway.metric("hapax_queued") == 0, "the lane has answered")
        for n in range(5):
            two_loops.ask(two_loops.first, f"first-{n}")
            assert told(two_loops.first) == {(201, "executed")}
        assert not any(key.startswith("second") for key in effects_by_key(upstream))
        for i in range(len(two_loops.second)):
            assert gateway.operation(SCOPE, f"second-{i}").json()["state"] == "running"
    assert told(two_loops.second) == {(201, "executed")}
    assert set(effects_by_key(upstream).values()) == {1}


def test_a_stop_waits_for_what_a_loop_that_stands_has_running(two_loops, upstream):
    gateway = two_loops.gateway
    release = threading.Event()
    upstream.answer = Answer(201, [], b"late", wait=release)
    two_loops.ask(two_loops.second, "second")
    wait_until(lambda: len(upstream.effects()) == len(two_loops.second), "they run")
    with parked(gateway, "hapax-loop-1"):
        gateway.process.send_signal(signal.SIGTERM)
        wait_until(lambda: b"stopping" in gateway.admin("/readyz").body, "it is stopping")
        release.set()
        for connection in two_loops.first:
            assert connection.is_closed_by_peer()
        assert gateway.process.poll() is None
    assert told(two_loops.second) == {(201, "executed")}
    assert gateway.process.wait(PATIENCE_S) == 0
    assert set(effects_by_key(upstream).values()) == {1}


def test_a_stop_whose_time_is_over_while_a_loop_stands_leaves_what_ran_unknown(start, upstream):
    gateway = start(config_for(upstream, threads="2", timeouts="{shutdown: 100ms}"))
    split = Split(gateway)
    upstream.answer = Answer(action="hang")
    split.ask(split.second, "k")
    wait_until(lambda: len(upstream.effects()) == len(split.second), "they run")
    with parked(gateway, "hapax-loop-1"):
        gateway.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "did not finish in time" in gateway.log_text(), "its time is over")
        assert gateway.process.poll() is None
    assert gateway.process.wait(PATIENCE_S) == 0
    split.close()
    upstream.answer = Answer()
    gateway.start()
    for i in range(len(split.second)):
        assert gateway.post("/orders", f"k-{i}", b"{}").marker == "held"
    assert set(effects_by_key(upstream).values()) == {1}
