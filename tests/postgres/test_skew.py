"""Gateways whose clocks are ten minutes wrong: leases, expiry and replays go by the server's clock."""

import glob
import signal

import pytest
from harness import Answer, at_once, config_for, is_sanitized, request_bytes, wait_until

AHEAD, BEHIND = "+10m", "-10m"
pytestmark = pytest.mark.skipif(is_sanitized(), reason="libfaketime and the sanitizers' runtime intercept the same calls")


def wrong_clock(offset):
    """The environment of a process whose wall clock is wrong; the monotonic one is right, as on a real host."""
    library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not library:
        pytest.skip("there is no libfaketime (dev/deps test)")
    return {"LD_PRELOAD": library[0], "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


@pytest.fixture
def pair(database, upstream, start):
    """Gateways with one clock ahead and one behind, 20 minutes apart: pair(route fields)."""

    def begin(**fields):
        return [start(config_for(upstream, **fields), name, store=database, environment=wrong_clock(offset))
                for name, offset in (("ahead", AHEAD), ("behind", BEHIND))]

    return begin


def hour_and_minute(gateway):
    """Of the first line that it logged."""
    return gateway.log_text().split("T")[1][:5]


@pytest.mark.parametrize("first", [0, 1], ids=["ahead", "behind"])
def test_a_run_is_not_seen_as_lapsed_and_its_answer_is_replayed_both_ways(pair, upstream, first):
    upstream.answer = Answer(delay_s=3)
    gateways = pair(lease="1s", wait="60s", on_unknown="retry")
    assert hour_and_minute(gateways[0]) != hour_and_minute(gateways[1])
    runs, waits = gateways[first], gateways[1 - first]

    def ask(i):
        if i == 1:
            wait_until(lambda: upstream.effects("/orders"), "the first one runs", 20)
        answer = (runs, waits)[i].post("/orders", "one")
        assert answer.status == 201, (i, answer.body, (runs, waits)[i].log_text())
        return answer

    executed, attached = at_once(2, ask)
    assert executed.status == 201, executed.body
    assert executed.get("Idempotency-Status") == "executed"
    assert attached.get("Idempotency-Status") == "attached" and attached.body == executed.body
    for gateway in gateways:
        assert gateway.post("/orders", "one").get("Idempotency-Status") == "replayed"
    assert executed.get("Idempotency-Expires") == attached.get("Idempotency-Expires")
    assert len(upstream.effects("/orders")) == 1


@pytest.mark.parametrize("first", [0, 1], ids=["ahead", "behind"])
def test_a_ttl_ends_by_the_servers_clock_in_both_caches(pair, upstream, server, database, first):
    """Until then both replay from memory; then the key is new for both, and executed once more."""
    gateways = pair(ttl="4s", lease="1s")
    name = database.rsplit("/", 1)[1]
    expires = lambda: int(server.sql("SELECT max(expires_ms) FROM hapax.record", name)[0][0])
    over = lambda ms: int(server.sql("SELECT hapax.clock_ms()", name)[0][0]) >= ms
    assert gateways[first].post("/orders", "one").get("Idempotency-Status") == "executed"
    ends = expires()
    for gateway in gateways:
        answers = [gateway.post("/orders", "one") for _ in range(3)]
        if not over(ends):  # they were asked in time
            assert [a.get("Idempotency-Status") for a in answers] == 3 * ["replayed"]
            assert gateway.metric("hapax_cache_hits_total") > 0
    effects = len(upstream.effects("/orders"))
    assert effects == 1 or over(ends)
    wait_until(lambda: over(ends), "the ttl ends")
    if effects == 1:
        assert gateways[1 - first].post("/orders", "one").get("Idempotency-Status") == "executed"
        ends = expires()
        assert gateways[first].post("/orders", "one").get("Idempotency-Status") == "replayed" or over(ends)
        assert len(upstream.effects("/orders")) == 2 or over(ends)
    wait_until(lambda: not server.sql("SELECT 1 FROM hapax.record", name), "it is swept")


@pytest.mark.parametrize("silent", [0, 1], ids=["ahead", "behind"])
def test_a_silent_run_is_taken_over_when_its_lease_ends_and_no_sooner(pair, upstream, server, database, silent):
    gateways = pair(lease="2s", wait="0", on_unknown="retry")
    holder, other = gateways[silent], gateways[1 - silent]
    key = [("Idempotency-Key", "run")]
    name = database.rsplit("/", 1)[1]
    upstream.answer = lambda request: Answer(delay_s=1) if request.number == 1 else Answer()
    with holder.connect() as connection:
        connection.send(request_bytes("POST", "/orders", key))
        wait_until(lambda: upstream.effects("/orders"), "it runs")
        holder.process.send_signal(signal.SIGSTOP)
        try:
            lease = int(server.sql("SELECT lease_ms FROM hapax.record", name)[0][0])
            wait_until(lambda: other.request("POST", "/orders", key).status == 201, "it is taken over")
            assert int(server.sql("SELECT hapax.clock_ms()", name)[0][0]) >= lease
        finally:
            holder.process.send_signal(signal.SIGCONT)
    assert server.sql("SELECT attempt FROM hapax.record", name) == [["2"]]
    assert holder.request("POST", "/orders", key).get("Idempotency-Status") == "replayed"
    assert len(upstream.effects("/orders")) == 2
