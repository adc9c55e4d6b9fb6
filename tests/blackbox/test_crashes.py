"""Gateways that are killed, that sleep past their lease, and that share a store."""

import collections
import itertools
import signal
import threading
import time

from harness import Answer, Ended, at_once, config_for, wait_until

SCOPE = "orders POST /orders -"


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


def test_what_ran_when_the_gateway_was_killed_is_held_afterwards(gateway, upstream):
    upstream.answer = Answer(action="hang")
    client, results = in_background(gateway.post, "/orders", "k")
    wait_until(upstream.effects, "the upstream works")
    gateway.kill()
    client.join()
    assert results == [None]
    upstream.answer = Answer()
    gateway.start()
    for _ in range(2):
        again = gateway.post("/orders", "k")
        assert (again.status, again.problem, again.marker) == (409, "outcome-unknown", "held")
    other = gateway.post("/orders", "k", b'{"amount":1}')
    assert (other.status, other.problem) == (422, "key-reused")
    assert len(upstream.effects()) == 1
    assert gateway.operation(SCOPE, "k").json()["state"] == "unknown"
    assert gateway.metric("hapax_records_abandoned_total") == 1


def test_what_ran_when_the_gateway_was_killed_is_taken_over_where_the_route_retries(start, upstream):
    gateway = start(config_for(upstream, on_unknown="retry"))
    upstream.answer = Answer(action="hang")
    client, _ = in_background(gateway.post, "/orders", "k")
    wait_until(upstream.effects, "the upstream works")
    gateway.kill()
    client.join()
    upstream.answer = Answer()
    gateway.start()
    assert gateway.post("/orders", "k").marker == "executed"
    assert [r.get("Idempotency-Attempt") for r in upstream.effects()] == ["1", "2"]


class Load:
    """Clients that ask for one new key after the other and repeat each until they have a final answer, and
    what they were told."""

    def __init__(self, gateway, clients):
        self.gateway = gateway
        self.stopping = threading.Event()
        self.told = collections.defaultdict(list)  # key → (status, marker, body), one entry per answer
        self.threads = [threading.Thread(target=self.client, args=(c,)) for c in range(clients)]
        for thread in self.threads:
            thread.start()

    def client(self, number):
        for n in itertools.count():
            if self.stopping.is_set():
                return
            self.one(f"c{number}-{n}")

    def one(self, key):
        self.told[key]  # asked for
        while True:
            try:
                answer = self.gateway.post("/orders", key)
            except (Ended, OSError):
                if self.stopping.is_set():
                    return
                time.sleep(0.01)  # the gateway is down: no need to ask faster than it starts
                continue
            self.told[key].append((answer.status, answer.marker, answer.body))
            if answer.status in (201, 409, 502):
                return

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def test_kills_under_load_neither_double_an_effect_nor_change_an_answer(start, upstream):
    gateway = start(config_for(upstream))
    upstream.answer = lambda r: Answer(201, [], b"%d" % r.number, delay_s=0.005)
    load = Load(gateway, 16)
    for _ in range(10):
        before = len(upstream.effects())
        wait_until(lambda: len(upstream.effects()) >= before + 60, "the load runs")
        gateway.kill()
        gateway.start()
    before = len(upstream.effects())
    wait_until(lambda: len(upstream.effects()) >= before + 60, "the load runs")
    load.stop()

    effects = collections.Counter(r.get("Idempotency-Key") for r in upstream.effects())
    assert len(load.told) > 500 and set(effects) <= set(load.told)
    finals = collections.Counter()
    for key, told in load.told.items():
        final = gateway.post("/orders", key)
        told = told + [(final.status, final.marker, final.body)]
        released = sum(1 for _, marker, _ in told if marker == "released")
        asked_now = 1 if final.marker == "executed" else 0
        assert effects[key] <= 1 + released, (key, told)
        assert asked_now == 0 or effects[key] == 0, (key, told)  # it ran just now, so it never had before
        bodies = {body for status, _, body in told if status == 201}
        assert len(bodies) <= 1, (key, told)
        assert final.status == 201 or (final.status, final.problem) == (409, "outcome-unknown"), (key, told)
        assert not (final.status == 409 and bodies), (key, told)  # a known answer does not become unknown
        finals[final.marker] += 1
    # A kill hits at most what 16 clients had under way.
    assert finals["replayed"] >= len(load.told) - 16 * 11 and finals["held"] >= 1
    assert gateway.metric("hapax_running", route="orders") == 0


def test_an_owner_that_sleeps_past_its_lease_can_not_overwrite_the_attempt_after_it(start, upstream, tmp_path):
    config = config_for(upstream, on_unknown="retry", lease="3s", wait="0")
    sleeper = start(config, folder=new_folder(tmp_path, "a"))
    other = start(config, folder=new_folder(tmp_path, "b"), store=sleeper.store)
    release = threading.Event()
    upstream.answer = lambda r: Answer(201, [], b"first", wait=release) if r.number == 1 else Answer(201, [], b"second")
    client, results = in_background(sleeper.post, "/orders", "k")
    wait_until(upstream.effects, "the first runs")
    sleeper.process.send_signal(signal.SIGSTOP)
    try:
        assert other.post("/orders", "k").problem == "in-progress"
        taken = wait_until(lambda: (a := other.post("/orders", "k")).problem != "in-progress" and a, "the lease ends")
        assert (taken.status, taken.marker, taken.body) == (201, "executed", b"second")
    finally:
        sleeper.process.send_signal(signal.SIGCONT)
    release.set()
    client.join()
    stale = results[0]
    assert (stale.status, stale.problem) == (409, "outcome-unknown") and stale.body != b"first"
    assert sleeper.metric("hapax_requests_total", route="orders", outcome="stale") == 1
    assert sleeper.metric("hapax_requests_total", route="orders", outcome="executed") == 0
    for gateway in (sleeper, other):
        again = gateway.post("/orders", "k")
        assert (again.marker, again.body) == ("replayed", b"second")
        assert gateway.operation(SCOPE, "k").json()["attempt"] == 2
    assert [r.get("Idempotency-Attempt") for r in upstream.effects()] == ["1", "2"]


def test_an_owner_that_sleeps_past_its_lease_leaves_an_operation_that_is_held(start, upstream, tmp_path):
    config = config_for(upstream, lease="3s", wait="0")
    sleeper = start(config, folder=new_folder(tmp_path, "a"))
    other = start(config, folder=new_folder(tmp_path, "b"), store=sleeper.store)
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    client, results = in_background(sleeper.post, "/orders", "k")
    wait_until(upstream.effects, "the first runs")
    sleeper.process.send_signal(signal.SIGSTOP)
    try:
        assert other.post("/orders", "k").problem == "in-progress"
        held = wait_until(lambda: (a := other.post("/orders", "k")).problem != "in-progress" and a, "the lease ends")
        assert (held.status, held.problem, held.marker) == (409, "outcome-unknown", "held")
    finally:
        sleeper.process.send_signal(signal.SIGCONT)
    release.set()
    client.join()
    # Nobody took over: whether its answer still counts or not, both gateways must say the same.
    answers = [g.post("/orders", "k") for g in (sleeper, other, sleeper)]
    assert len({(a.status, a.problem) for a in answers}) == 1
    if results[0].status == 201:
        assert {a.marker for a in answers} == {"replayed"}
    else:
        assert {a.marker for a in answers} == {"held"} and results[0].problem == "outcome-unknown"
    assert len(upstream.effects()) == 1


def test_a_long_call_keeps_its_lease(start, upstream, tmp_path):
    config = config_for(upstream, lease="300ms", wait="0")
    gateway = start(config, folder=new_folder(tmp_path, "a"))
    other = start(config, folder=new_folder(tmp_path, "b"), store=gateway.store)
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    client, results = in_background(gateway.post, "/orders", "k")
    wait_until(upstream.effects, "the first runs")
    first_end = gateway.operation(SCOPE, "k").json()["lease_until"]
    wait_until(lambda: gateway.operation(SCOPE, "k").json()["lease_until"] > first_end, "the lease is extended")
    end = time.monotonic() + 1.5  # five leases
    while time.monotonic() < end:
        assert other.post("/orders", "k").problem == "in-progress"
    release.set()
    client.join()
    assert (results[0].status, results[0].marker) == (201, "executed")
    assert other.post("/orders", "k").marker == "replayed"


def new_folder(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    return folder


def test_two_gateways_on_one_store_make_one_effect_per_key(start, upstream, tmp_path):
    gateways = [start(config_for(upstream), folder=new_folder(tmp_path, "a"))]
    gateways.append(start(config_for(upstream), folder=new_folder(tmp_path, "b"), store=gateways[0].store))
    upstream.answer = lambda r: Answer(201, [], b"%d" % r.number, delay_s=0.05)
    answers = at_once(64, lambda c: [gateways[(c + k) % 2].post("/orders", f"k-{k}") for k in range(20)])
    assert collections.Counter(r.get("Idempotency-Key") for r in upstream.effects()) == {f"k-{k}": 1 for k in range(20)}
    for k in range(20):
        assert len({(group[k].status, group[k].body) for group in answers}) == 1
        assert answers[0][k].status == 201
        assert sum(group[k].marker == "executed" for group in answers) == 1
    attached = [g.metric("hapax_requests_total", route="orders", outcome="attached") for g in gateways]
    executed = [g.metric("hapax_requests_total", route="orders", outcome="executed") for g in gateways]
    assert sum(executed) == 20 and min(attached) > 0


def test_a_duplicate_waits_for_what_another_gateway_runs(start, upstream, tmp_path):
    gateways = [start(config_for(upstream), folder=new_folder(tmp_path, "a"))]
    gateways.append(start(config_for(upstream), folder=new_folder(tmp_path, "b"), store=gateways[0].store))
    release = threading.Event()
    upstream.answer = Answer(201, [("X-One", "1")], b"one", wait=release)
    first, firsts = in_background(gateways[0].post, "/orders", "k")
    wait_until(upstream.effects, "the first runs")
    waiters = [in_background(gateways[1].post, "/orders", "k") for _ in range(8)]
    wait_until(lambda: gateways[1].metric("hapax_waiters") == 8, "they wait")
    release.set()
    for thread, _ in [(first, firsts), *waiters]:
        thread.join()
    answers = [results[0] for _, results in waiters]
    assert {(a.status, a.body, a.get("X-One")) for a in answers} == {(201, b"one", "1")}
    assert {a.marker for a in answers} <= {"attached", "replayed"}
    assert len(upstream.effects()) == 1


def test_a_gateway_that_dies_leaves_its_operation_to_the_other_one(start, upstream, tmp_path):
    """On one host a dead owner is recognised without waiting for its lease."""
    dying = start(config_for(upstream, lease="1h"), folder=new_folder(tmp_path, "a"))
    other = start(config_for(upstream, lease="1h", wait="0"), folder=new_folder(tmp_path, "b"), store=dying.store)
    upstream.answer = Answer(action="hang")
    client, _ = in_background(dying.post, "/orders", "k")
    wait_until(upstream.effects, "the first runs")
    assert other.post("/orders", "k").problem == "in-progress"
    dying.kill()
    client.join()
    held = wait_until(lambda: (a := other.post("/orders", "k")).problem != "in-progress" and a, "it notices")
    assert (held.status, held.problem) == (409, "outcome-unknown")
    assert len(upstream.effects()) == 1
