"""What a close reading of the gateway found: memory, accounting, headers and endings."""

import threading

import pytest
from harness import Answer, at_once, config_for, is_sanitized, request_bytes, wait_until

JSON = ("Content-Type", "application/json")


@pytest.mark.skipif(is_sanitized(), reason="figures of memory mean nothing under sanitizers")
def test_a_request_that_waits_for_the_upstream_holds_its_body_and_not_what_reading_it_took(start, upstream):
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    gateway = start(config_for(upstream))
    body = b"[" + b"1," * 1_000_000 + b"1]"  # 20 MiB of nodes while it is read
    before = gateway.memory_kib()
    connections = [gateway.connect() for _ in range(20)]
    for i, connection in enumerate(connections):
        connection.send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", f"k-{i}")], body))
    wait_until(lambda: len(upstream.effects()) == len(connections), "all run")
    grown_mib = (gateway.memory_kib() - before) / 1024
    assert grown_mib < 20 * 2 * 2 + 64, grown_mib
    release.set()
    for connection in connections:
        assert connection.receive().marker == "executed"
        connection.close()
