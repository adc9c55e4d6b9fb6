"""The gateway behind a proxy that disturbs its connections to PostgreSQL at the n-th message, for each n in turn: cut
before or within it, answers swallowed, a batch delivered late, statements refused by the server. Clients retry; the
upstream counts. The store alone goes through the same, and more places, in tests/fault/wire_store.c.

HAPAX_FAULT_PLACES=n takes about n places of each fault; 0: every one."""

import itertools
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import BUILD, Answer, config_for, wait_until
from postgres_proxy import PostgresProxy

PLACES = int(os.environ.get("HAPAX_FAULT_PLACES") or 12)
MESSAGES = 200  # about so many pass in a run; a sweep ends where none was disturbed
CONFIG = {"wait": "2s", "lease": "10m", "timeout": "10m", "threads": 1, "timeouts": "{store: 500ms}"}
TRY_LATER = {(503, "store-unavailable"), (503, "overloaded"), (409, "in-progress")}

FAULTS = [("cut", ""), ("torn", ""), ("swallow", ""), ("late", ""), ("ambiguous", "40003"), ("ambiguous", "08006"),
          *(("error", state) for state in ("53100", "57P01", "25006"))]


@pytest.fixture
def proxy(server):
    with PostgresProxy(BUILD, server) as running:
        yield running


def told_at_last(gateway, proxy, key):
    """Ask until there is a final answer. What was kept back arrives between two questions."""
    def ask():
        answer = gateway.post("/orders", key)
        proxy.deliver()
        if (answer.status, answer.problem) in TRY_LATER or answer.status == 503 and answer.problem is None:
            return None
        return answer
    return wait_until(ask, f"a final answer to {key}")


def execute_and_replay(gateway, proxy, upstream, key):
    """One effect at most, and one answer; the answer."""
    first = told_at_last(gateway, proxy, key)
    again = told_at_last(gateway, proxy, key)
    effects = [r for r in upstream.effects() if r.get("Idempotency-Key") == key]
    what = (key, first, again, len(effects))
    if first.status == 201:
        assert len(effects) == 1 and again.status == 201 and again.body == first.body == b"effect %d" % effects[0].number, what
        assert again.marker == "replayed", what
    else:  # it broke off in the claim's or the answer's commit, and nobody could learn what became of it
        assert first.problem == "outcome-unknown" and len(effects) <= 1, what
    return first


def refused_then_executed(gateway, proxy, upstream, key):
    """The upstream answers 503 the first time, by which the key is free again."""
    first = told_at_last(gateway, proxy, key)
    arrivals = [r for r in upstream.effects() if r.get("Idempotency-Key") == key]
    assert first.status == 201 and len(arrivals) == 2 or first.problem == "outcome-unknown", (key, first, arrivals)


@pytest.mark.parametrize("fault,state", FAULTS)
def test_a_disturbed_connection_doubles_and_loses_nothing(server, proxy, upstream, start, fault, state):
    def answer(request):
        key = request.get("Idempotency-Key")
        earlier = [r for r in upstream.effects() if r.get("Idempotency-Key") == key and r.number < request.number]
        if key.startswith("busy") and not earlier:
            return Answer(503)
        return Answer(201, body=b"effect %d" % request.number)

    upstream.answer = answer
    gateway = start(config_for(upstream, **CONFIG), store=proxy.uri(server.database()))
    stride = max(1, MESSAGES // PLACES) if PLACES else 1
    unknown = 0
    for place in itertools.count(1, stride):
        proxy.arm(fault, place, state)
        answers = [execute_and_replay(gateway, proxy, upstream, f"{fault}{state}-{place}")]
        refused_then_executed(gateway, proxy, upstream, f"busy-{fault}{state}-{place}")
        fired, _ = proxy.disarm()
        proxy.deliver()
        # The same process, and nothing is left of it.
        calm = execute_and_replay(gateway, proxy, upstream, f"calm-{fault}{state}-{place}")
        assert calm.status == 201
        unknown += sum(a.status != 201 for a in answers)
        if not fired:
            break
    print(f"{fault} {state}: {place} messages, {unknown} outcomes unknown")
    assert place > stride


def keepalive_s(port):
    """Of each of the server's connections to a client: in how many seconds it asks whether that is still there."""
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [f[5].split(":") for f in lines if int(f[1].split(":")[1], 16) == port and f[3] == "01"]
    return [int(left, 16) / os.sysconf("SC_CLK_TCK") if kind == "02" else None for kind, left in timers]


def test_the_server_soon_notices_a_host_that_is_gone(server, database, upstream, start):
    """Cut off in the middle of a batch, its session would hold the batch's locks for the two hours that are usual."""
    before = len(keepalive_s(server.port))
    start(config_for(upstream), store=database)

    def all_are_watched():
        timers = keepalive_s(server.port)
        return len(timers) > before and all(t is not None and t <= 10 for t in timers)

    wait_until(all_are_watched, "keep-alive timers")  # another timer runs while something is under way


def test_a_release_that_was_made_though_nobody_heard_of_it_is_a_release(server, proxy, upstream, start):
    """The server stays away after the commit, and the release is asked for again when it is back."""
    gateway = start(config_for(upstream, **CONFIG), store=proxy.uri(server.database()))
    log = 0  # its length before the present request
    for place in range(16, 44, 2):  # somewhere there the commit is
        def answer(_, place=place):
            proxy.arm("swallow", place, stay=True)
            return Answer(503)

        upstream.answer = answer
        with ThreadPoolExecutor(1) as one:
            asked = one.submit(gateway.post, "/orders", f"k{place}")
            wait_until(lambda: asked.done() or "settlement-delayed" in gateway.log_since_start()[log:], "a release in doubt")
            proxy.disarm()
            told = asked.result()
        log = len(gateway.log_since_start())
        assert (told.status, told.marker) == (503, "released"), (place, told)
        wait_until(lambda: gateway.admin("/readyz").status == 200, "it is ready again")
