"""What a close reading of the gateway found: memory, accounting, headers and endings."""

import signal
import threading
import time

import pytest
from harness import PATIENCE_S, Answer, at_once, config_for, is_sanitized, request_bytes, wait_until

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


def test_a_stop_while_a_probes_finding_is_written_ends_cleanly(start, upstream, tmp_path):
    def behave(request):
        return Answer(200, [], b"it did") if request.target == "/probe/k" else Answer(action="close")

    upstream.answer = behave
    control = tmp_path / "trouble"
    gateway = start(config_for(upstream, on_unknown="probe", probe=f"{upstream.url}/probe/{{key}}"),
                    store=f"fault:control={control}:sqlite:{tmp_path}/hapax.db")
    assert gateway.post("/orders", "k").problem == "outcome-unknown"
    control.write_text("delay=1000")
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", "k")], b'{"amount":100}'))
        wait_until(lambda: upstream.effects("/probe/k") and gateway.metric("hapax_queued") == 1,
                   "what the probe found is with the store")
        for _ in range(2):  # at once
            gateway.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)  # two signals pending are one
        answer = connection.receive()
    assert (answer.status, answer.problem) == (503, "overloaded")
    assert gateway.process.wait(PATIENCE_S) == 0, gateway.log_text()
    control.unlink()
    gateway.start()
    again = gateway.post("/orders", "k")
    assert (again.status, again.marker, again.body) == (200, "replayed", b"it did")
    assert len(upstream.effects("/orders")) == 1
