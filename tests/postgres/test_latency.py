"""A database 200 ms away: batches carry what one request at a time could not, and nothing times out."""

import statistics
import time

import pytest
from delay import Distance
from harness import Answer, at_once, config_for, wait_until

ROUND_TRIP_S = 0.2


@pytest.fixture
def far(server):
    """The URI of an empty database behind the distance."""
    database = server.database()
    with Distance(server.port, ROUND_TRIP_S / 2) as distance:
        yield server.uri(database, port=distance.port)


def spray(gateway, clients, each, name):
    """Fresh keys from so many clients; requests a second."""

    def client(i):
        with gateway.connect() as connection:
            for n in range(each):
                headers = [("Idempotency-Key", f"{name}-{i}-{n}"), ("Content-Type", "application/json")]
                assert connection.request("POST", "/orders", headers, b"{}").status == 201

    since = time.monotonic()
    at_once(clients, client)
    return clients * each / (time.monotonic() - since)


def test_throughput_holds_by_batches(far, upstream, start):
    """Without batches four lanes would do ten requests a second, each of which needs two commits."""
    gateway = start(config_for(upstream), store=far)
    for clients in (64, 256):
        rate = spray(gateway, clients, 2, f"spray-{clients}")
        print(f"{clients} clients: {rate:.0f} requests/s")
        assert rate > 20
    assert gateway.metric("hapax_store_errors_total") == 0
    assert len(upstream.effects("/orders")) == 2 * (64 + 256)


def test_a_fresh_request_takes_about_two_round_trips(far, upstream, start):
    """One for the claim and one for the completion."""
    gateway = start(config_for(upstream), store=far)
    spray(gateway, 16, 1, "warm")
    took = []
    for n in range(6):
        since = time.monotonic()
        assert gateway.post("/orders", f"single-{n}").status == 201
        took.append((time.monotonic() - since) / ROUND_TRIP_S)
        since = time.monotonic()
        assert gateway.post("/orders", f"single-{n}").get("Idempotency-Status") == "replayed"
    print(f"round trips of a fresh request: median {statistics.median(took):.2f}, least {min(took):.2f},"
          f" most {max(took):.2f}")
    assert statistics.median(took) > 1.9  # fewer: nothing was durable
    assert statistics.median(took) < 20


def test_leases_polls_and_probes_survive_the_distance(far, upstream, start):
    """A run longer than its lease, which another gateway's duplicate waits for."""
    upstream.answer = Answer(delay_s=5)
    one, other = (start(config_for(upstream, lease="4s", wait="60s"), name, store=far) for name in ("a", "b"))

    def ask(i):
        if i == 1:
            wait_until(lambda: upstream.effects("/orders"), "the first one runs")
        return (one, other)[i].post("/orders", "long")

    first, second = at_once(2, ask)
    assert (first.status, first.get("Idempotency-Status")) == (201, "executed")
    assert (second.status, second.get("Idempotency-Status")) == (201, "attached")
    assert len(upstream.effects("/orders")) == 1
    assert one.metric("hapax_store_errors_total") == other.metric("hapax_store_errors_total") == 0
