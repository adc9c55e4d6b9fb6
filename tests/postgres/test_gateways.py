"""Several gateways on one database: one execution of a key, one answer of it everywhere."""

import json
import random
import statistics
import threading
import time

import pytest

from harness import Answer, at_once, config_for, wait_until

SCOPE = "orders POST /orders -"
CLIENTS = 64


def numbered(request):
    """Every execution answers differently, so that equal answers are one execution's."""
    return Answer(body=json.dumps({"execution": request.number}).encode())


def executions(upstream):
    """How often each key was executed."""
    count = {}
    for request in upstream.effects("/orders"):
        key = request.get("Idempotency-Key").strip('"')
        count[key] = count.get(key, 0) + 1
    return count


def test_two_gateways_execute_a_key_once(database, upstream, start):
    upstream.answer = numbered
    gateways = [start(config_for(upstream), name, store=database) for name in ("a", "b")]
    answers = at_once(16, lambda i: gateways[i % 2].post("/orders", "one", b'{"amount":1}'))
    assert {a.status for a in answers} == {201}
    assert len({a.body for a in answers}) == 1
    assert len(upstream.effects("/orders")) == 1


@pytest.mark.parametrize("count", [2, 3])
def test_clients_spray_the_same_keys_over_all_gateways(count, database, upstream, start):
    """Settings are the defaults; meanwhile an operator on another node forgets and resolves other keys."""
    def answer(request):
        one = numbered(request)
        one.delay_s = random.uniform(0, 0.02)
        return one

    upstream.answer = answer
    gateways = [start(config_for(upstream), f"g{i}", store=database) for i in range(count)]
    keys = [f"key-{i}" for i in range(40)]
    gateways[0].post("/orders", "forgotten")
    done = threading.Event()
    said = []

    def operate():
        while not done.is_set():
            said.append(gateways[-1].cli("keys", "forget", "--yes", SCOPE, "forgotten").returncode)
            gateways[0].post("/orders", "forgotten")

    operator = threading.Thread(target=operate)
    operator.start()

    def client(i):
        shuffled = random.Random(i).sample(keys, len(keys))
        connections = [g.connect() for g in gateways]
        headers = [("Content-Type", "application/json")]
        answers = [(key, connections[n % count].request("POST", "/orders", headers + [("Idempotency-Key", key)], b"{}"))
                   for n, key in enumerate(shuffled)]
        for connection in connections:
            connection.close()
        return answers

    try:
        answers = [pair for pairs in at_once(CLIENTS, client) for pair in pairs]
    finally:
        done.set()
        operator.join()
    assert {a.status for _, a in answers} == {201}
    assert len(answers) == CLIENTS * len(keys)
    assert len(set((key, a.body) for key, a in answers)) == len(keys)
    assert sum(a.marker == "executed" for _, a in answers) == len(keys)
    count_of = executions(upstream)
    again = count_of.pop("forgotten")
    assert count_of == {key: 1 for key in keys}
    assert again > 1 and 0 in said and set(said) <= {0, 3, 4}  # 3: gone already, 4: running


def test_a_duplicate_at_another_gateway_has_the_answer_soon_after_its_end(database, upstream, start):
    a, b = [start(config_for(upstream), name, store=database) for name in ("a", "b")]
    delays = []
    for turn in range(15):
        release = threading.Event()
        upstream.answer = Answer(wait=release)
        ended = {}

        def ask(name, gateway, key=f"slow-{turn}"):
            answer = gateway.post("/orders", key)
            ended[name] = (time.monotonic(), answer)

        threads = [threading.Thread(target=ask, args=("a", a))]
        threads[0].start()
        wait_until(lambda: len(upstream.effects("/orders")) > turn, "the first is running")
        threads.append(threading.Thread(target=ask, args=("b", b)))
        threads[1].start()
        wait_until(lambda: b.metric("hapax_waiters") == 1, "the second waits")
        time.sleep(0.05 + 0.003 * turn)  # no luck: a verdict does not depend on it, the phase of the polls does
        release.set()
        for thread in threads:
            thread.join()
        assert ended["b"][1].marker == "attached" and ended["a"][1].marker == "executed"
        assert ended["b"][1].body == ended["a"][1].body
        delays.append(1000 * (ended["b"][0] - ended["a"][0]))
    print(f"\nanswer at the other gateway after: median {statistics.median(delays):.1f} ms, most {max(delays):.1f} ms")
    assert statistics.median(delays) < 500


def test_a_cached_answer_that_was_forgotten_elsewhere_is_not_replayed_for_long(database, upstream, start):
    upstream.answer = numbered
    a, b = [start(config_for(upstream), name, store=database) for name in ("a", "b")]
    assert a.post("/orders", "k").marker == "executed"
    assert a.post("/orders", "k").marker == "replayed"
    first = b.post("/orders", "k").body
    hits = a.metric("hapax_cache_hits_total")
    assert b.cli("keys", "forget", "--yes", SCOPE, "k").returncode == 0
    anew = wait_until(lambda: [r for r in [a.post("/orders", "k")] if r.marker == "executed"], "a notices")[0]
    assert anew.body != first
    wait_until(lambda: b.post("/orders", "k").body == anew.body, "b notices, too")
    assert executions(upstream) == {"k": 2}
    assert hits > 0


def test_an_unknown_outcome_resolved_on_one_node_is_answered_by_all(database, upstream, start):
    upstream.answer = Answer(status=504)
    a, b = [start(config_for(upstream), name, store=database) for name in ("a", "b")]
    for key in ("happened", "did-not"):
        assert a.post("/orders", key).marker == "unknown"
        assert b.post("/orders", key).problem == "outcome-unknown"
    upstream.answer = numbered
    assert b.cli("keys", "resolve", "--done", "--status", "202", "--body", "by hand", SCOPE, "happened").returncode == 0
    assert b.cli("keys", "resolve", "--released", SCOPE, "did-not").returncode == 0
    answers = at_once(8, lambda i: (a, b)[i % 2].post("/orders", "happened"))
    assert {(r.status, r.body) for r in answers} == {(202, b"by hand")}
    answers = at_once(8, lambda i: (a, b)[i % 2].post("/orders", "did-not"))
    assert {r.status for r in answers} == {201} and len({r.body for r in answers}) == 1
    assert executions(upstream) == {"happened": 1, "did-not": 2}


# --- a node dies ---


def hold(gateway, upstream, key, release):
    """A request that is running at `gateway`, whose client has gone."""
    before = len(upstream.effects())
    upstream.answer = Answer(wait=release)
    connection = gateway.connect()
    connection.send(b"POST /orders HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: 2\r\n\r\n{}" % key)
    wait_until(lambda: len(upstream.effects()) > before, "it runs")
    return connection


def state_of(gateway, key):
    return gateway.operation(SCOPE, key).json()["state"]


def test_the_claims_of_a_killed_gateway_become_unknown_to_another_on_its_host(server, database, upstream, start):
    """Long before their lease ends."""
    a, b = [start(config_for(upstream, lease="1h"), name, store=database) for name in ("a", "b")]
    release = threading.Event()
    connections = [hold(a, upstream, b"k-%d" % i, release) for i in range(3)]
    began = time.monotonic()
    a.kill()
    wait_until(lambda: all(state_of(b, f"k-{i}") == "unknown" for i in range(3)), "its claims are unknown")
    print(f"\nunknown {time.monotonic() - began:.1f} s after the kill")
    for i in range(3):
        assert b.post("/orders", f"k-{i}", b"{}").problem == "outcome-unknown"
    wait_until(lambda: server.sql("SELECT count(*) FROM hapax.owner", database.rsplit("/", 1)[1]) == [["1"]],
               "the dead owner is forgotten")
    release.set()
    for connection in connections:
        connection.close()
    assert len(upstream.effects()) == 3


def test_the_claims_of_another_host_become_unknown_when_their_lease_ends(server, database, upstream, start):
    """Nobody here can tell whether that host lives, though its name, machine id and a process id that is dead here are this
    host's: two hosts may be made from one image."""
    name = database.rsplit("/", 1)[1]
    a, b = [start(config_for(upstream, lease="5s"), n, store=database) for n in ("a", "b")]
    release = threading.Event()
    connection = hold(a, upstream, b"k", release)
    server.sql("UPDATE hapax.owner SET text = convert_to(regexp_replace(convert_from(text, 'UTF8'), 'boot=[^ ]+',"
               f" 'boot=another'), 'UTF8') WHERE convert_from(text, 'UTF8') LIKE '%pid={a.process.pid} %'", name)
    a.kill()
    start(config_for(upstream), "c", store=database)  # looks for dead owners at once
    early = server.sql("SELECT state <> 1 AND lease_ms > hapax.clock_ms() FROM hapax.record", name)
    assert early == [["f"]]
    wait_until(lambda: state_of(b, "k") == "unknown", "it is unknown")
    assert server.sql("SELECT lease_ms <= hapax.clock_ms() FROM hapax.record", name) == [["t"]]
    assert b.post("/orders", "k", b"{}").problem == "outcome-unknown"
    assert server.sql("SELECT ended_ms = lease_ms, state FROM hapax.record", name) == [["t", "3"]]
    assert server.sql("SELECT count(*) FROM hapax.owner", name) == [["3"]]
    release.set()
    connection.close()
