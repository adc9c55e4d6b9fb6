"""What a close reading of the gateway found: memory, accounting, headers and endings."""

import re
import signal
import socket
import struct
import threading
import time

import pytest
from harness import PATIENCE_S, Answer, Ended, Listener, at_once, config_for, is_sanitized, request_bytes, wait_until

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


# --- Headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sources", ['["json:/id", "header:Idempotency-Key"]', '"json:/id"'])
def test_the_upstream_gets_the_operations_key_whatever_else_the_client_sends(start, upstream, sources):
    gateway = start(config_for(upstream, key=sources))
    for other in ("other-1", "other-2"):
        gateway.post("/orders", other, b'{"id":"mine"}')
    assert [r.all("Idempotency-Key") for r in upstream.effects()] == [['"\\"mine\\""']]


def test_a_key_from_a_later_header_source_passes_as_it_came(start, upstream):
    gateway = start(config_for(upstream, key='["json:/id", "header:Idempotency-Key"]'))
    gateway.post("/orders", '"quoted"', b"{}")
    gateway.post("/orders", "bare", b"{}")
    assert [r.all("Idempotency-Key") for r in upstream.effects()] == [['"quoted"'], ["bare"]]


def test_every_line_of_the_forwarding_chain_is_kept(gateway, upstream):
    lines = ["198.51.100.7, 198.51.100.8", "", "203.0.113.9"]  # the last one is by a proxy in front, which adds lines
    gateway.request("GET", "/", [("X-Forwarded-For", line) for line in lines])
    long = ", ".join(["198.51.100.7"] * 400)
    gateway.request("GET", "/", [("X-Forwarded-For", long), ("x-forwarded-for", "203.0.113.9")])
    seen = [r.all("X-Forwarded-For") for r in upstream.effects()]
    assert seen == [["198.51.100.7, 198.51.100.8, 203.0.113.9, 127.0.0.1"], [long + ", 203.0.113.9, 127.0.0.1"]]


def test_fields_that_connection_lists_end_here_both_ways(gateway, upstream):
    upstream.answer = Answer(200, [("Connection", "x-mine,,X-Yours "), ("X-Mine", "1"), ("X-Yours", "2"), ("X-Ours", "3")])
    answer = gateway.request("GET", "/", [("Connection", "X-A, x-b"), ("Connection", ",x-c"), ("X-A", "1"), ("X-B", "2"),
                                          ("X-C", "3"), ("X-D", "4")])
    request = upstream.effects()[0]
    assert [request.get(n) for n in ("X-A", "X-B", "X-C", "X-D")] == [None, None, None, "4"]
    assert [answer.get(n) for n in ("X-Mine", "X-Yours", "X-Ours")] == [None, None, "3"]


def test_connection_lists_have_a_limit(gateway, upstream):
    """Each word is compared with each line: thirty thousand of them took 50 ms of the loop."""
    assert gateway.request("GET", "/", [("Connection", ",".join(["a"] * 16)), ("Connection", ",".join(["b"] * 16))]).status == 201
    refused = gateway.request("GET", "/", [("Connection", ",".join(["a"] * 16)), ("Connection", ",".join(["b"] * 17))])
    assert (refused.status, refused.problem) == (400, "malformed-request")
    assert gateway.request("GET", "/", [("Connection", "," * 20000)]).status == 201
    assert len(upstream.effects()) == 2
    upstream.answer = Answer(201, [("Connection", ",".join(["a"] * 33))])
    assert gateway.request("GET", "/").problem == "upstream-broken"
    assert gateway.post("/orders", "k").problem == "outcome-unknown"


# --- One count and one marker for each request -----------------------------------------------------


def outcomes(gateway):
    text = gateway.admin("/metrics").body.decode()
    pairs = re.findall(r'^hapax_requests_total\{route="orders",outcome="(\w+)"\} (\d+)$', text, re.M)
    return {name: int(n) for name, n in pairs if n != "0"}


def test_a_client_that_leaves_an_unprotected_request_counts_once(gateway, upstream):
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    with gateway.connect() as connection:
        connection.send(request_bytes("GET", "/slow"))
        wait_until(upstream.effects, "it runs")
        connection.reset()
    wait_until(lambda: gateway.metric("hapax_connections") == 0, "the gateway noticed")
    release.set()
    assert outcomes(gateway) == {"unprotected": 1}


CUT_SHORT = b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 10\r\n\r\nab"
BAD_CHUNK = b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"


@pytest.mark.parametrize("sent, ends, count, problem", [
    (CUT_SHORT, True, "client_gone", "malformed-request"),
    (CUT_SHORT, False, "rejected", "request-timeout"),
    (BAD_CHUNK, False, "rejected", "malformed-request"),
])
def test_a_protected_request_that_never_became_complete_counts_once_and_is_marked(start, upstream, sent, ends, count, problem):
    gateway = start(config_for(upstream, timeouts="{body: 200ms}"))
    with gateway.connect() as connection:
        connection.send(sent)
        if ends:
            connection.sock.shutdown(socket.SHUT_WR)
        answer = connection.receive()
    assert (answer.problem, answer.marker) == (problem, "rejected")
    assert outcomes(gateway) == {count: 1} and upstream.effects() == []


@pytest.mark.parametrize("key", ["header:Idempotency-Key", "json:/id"])
def test_requests_that_lack_their_key_are_told_from_others_that_pass(start, upstream, key):
    """Who introduces keys sees in the numbers when all clients send one."""
    gateway = start(config_for(upstream, key=key, missing="pass"))
    assert gateway.post("/orders").marker == "unprotected"
    gateway.request("GET", "/orders")
    gateway.request("PUT", "/orders", body=b"{}")
    assert outcomes(gateway) == {"key_missing": 1, "unprotected": 2}


@pytest.mark.parametrize("method, marker", [("GET", None), ("PUT", "unprotected")])
def test_an_unprotected_request_is_marked_so_when_the_upstream_is_down_too(start, upstream, method, marker):
    gateway = start(config_for(upstream))
    upstream.close()
    answer = gateway.request(method, "/orders")
    assert (answer.status, answer.problem, answer.marker) == (502, "upstream-unreachable", marker)


@pytest.mark.parametrize("method, headers, body", [("HEAD", [("Content-Length", "2")], b"ab"), ("X" * 40, [], b"")])
def test_a_request_that_can_not_be_sent_on_is_the_clients_mistake(gateway, upstream, method, headers, body):
    with gateway.connect() as connection:
        connection.send(request_bytes(method, "/", headers, body))
        assert connection.receive(method).status == 400
    assert upstream.effects() == [] and outcomes(gateway) == {"unprotected": 1}


def test_the_added_latency_of_a_streamed_answer_is_without_the_upstreams_time(start, upstream):
    upstream.answer = Answer(200, [], b"x" * 100_000, delay_s=2)
    gateway = start(config_for(upstream, keep_body="1KiB"))
    assert gateway.post("/orders", "k").marker == "executed"
    sum_s = gateway.metric("hapax_added_latency_seconds_sum", route="orders")
    assert gateway.metric("hapax_added_latency_seconds_count", route="orders") == 1 and sum_s < 2


# --- Settlement ------------------------------------------------------------------------------------


def test_a_release_that_the_store_does_not_take_for_long_is_not_called_released(start, upstream, tmp_path):
    """The key is not free before the release is durable; a gateway that dies now leaves an unknown outcome."""
    release = threading.Event()
    upstream.answer = Answer(429, [], b"later", wait=release)
    control = tmp_path / "trouble"
    gateway = start(config_for(upstream), store=f"fault:control={control}:sqlite:{tmp_path}/hapax.db")
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", "k")], b'{"amount":100}'))
        wait_until(upstream.effects, "it runs")
        control.write_text("every=1")
        release.set()
        told = connection.receive()  # after ten seconds
    assert (told.status, told.problem, told.marker) == (502, "outcome-unknown", "unknown")
    assert told.json()["original_status"] == 429
    control.unlink()
    wait_until(lambda: gateway.metric("hapax_running", route="orders") == 0, "the release is stored")
    upstream.answer = Answer()
    assert gateway.post("/orders", "k").marker == "executed"
    assert outcomes(gateway) == {"released": 1, "executed": 1}
    assert gateway.metric("hapax_added_latency_seconds_count", route="orders") == 2


def test_the_limit_of_running_operations_holds_for_those_claimed_at_once(start, upstream, tmp_path):
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    control = tmp_path / "trouble"
    gateway = start(config_for(upstream, running=2), store=f"fault:control={control}:sqlite:{tmp_path}/hapax.db")
    control.write_text("delay=300")  # all pass the first look at the limit before one of them runs

    def post(i):
        if i < 8:
            return gateway.post("/orders", f"k-{i}")
        wait_until(lambda: outcomes(gateway).get("overloaded") == 6 or release.is_set(), "six are refused", 30)
        release.set()

    try:
        answers = at_once(9, post)[:8]
    finally:
        release.set()
    assert sorted(a.marker for a in answers) == ["executed"] * 2 + ["rejected"] * 6
    assert {(a.status, a.problem) for a in answers if a.marker == "rejected"} == {(429, "overloaded")}
    assert len(upstream.effects()) == 2
    assert outcomes(gateway) == {"executed": 2, "overloaded": 6}
    control.unlink()
    assert all(gateway.post("/orders", f"k-{i}").marker in ("executed", "replayed") for i in range(8))
    assert len(upstream.effects()) == 8 and gateway.metric("hapax_running", route="orders") == 0


def test_an_answer_that_streams_is_not_counted_as_held(start, upstream):
    """What was held of it until it was known to be too large went to the client."""
    release = threading.Event()

    def serve(sock, reader, number):
        reader.request()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200010\r\n\r\n" + b"x" * 200_000)
        release.wait(PATIENCE_S)
        sock.sendall(b"y" * 10)

    behind = Listener(serve)
    gateway = start(config_for(behind, keep_body="100KiB"))
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", "k")], b"{}"))
        head = connection.reader.head()
        connection.reader.exactly(200_000)
        held = gateway.metric("hapax_body_bytes")
        release.set()
        connection.reader.exactly(10)
    behind.close()
    assert head.status == 200 and held == 2  # the request's
    assert gateway.post("/orders", "k", b"{}").problem == "answer-not-kept"
    wait_until(lambda: gateway.metric("hapax_body_bytes") == 0, "nothing is held")


@pytest.mark.skipif(is_sanitized(), reason="figures of memory mean nothing under sanitizers")
def test_many_that_are_slow_to_read_one_stored_answer_share_it(start, upstream):
    size = 8 << 20
    upstream.answer = Answer(200, [], b"x" * size)
    gateway = start(config_for(upstream, keep_body="8MiB"))
    assert gateway.post("/orders", "k").marker == "executed"
    before = gateway.memory_kib()
    slow = []
    for _ in range(40):
        slow.append(gateway.connect())
        slow[-1].sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow[-1].send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", "k")], b'{"amount":100}'))
    wait_until(lambda: outcomes(gateway).get("replayed") == len(slow), "all are being answered")
    assert (gateway.memory_kib() - before) / 1024 < 100
    assert gateway.post("/orders", "k").body == b"x" * size
    for connection in slow:
        connection.reset()


def test_a_reload_names_every_time_out_that_needs_a_restart(start, upstream):
    gateway = start(config_for(upstream))
    gateway.reload(config_for(upstream, timeouts="{store: 1s}"))
    assert "except what needs a restart: limits and timeouts" in gateway.log_text()


# --- The ends of a streamed answer, in each order with its settlement ------------------------------


@pytest.mark.parametrize("upstream_end", ["complete", "breaks", "resets"])
@pytest.mark.parametrize("client", ["stays", "leaves"])
@pytest.mark.parametrize("store", ["before", "late"])
def test_a_streamed_answer_ends_well_in_every_order(start, tmp_path, upstream_end, client, store):
    """The rest of the answer, its end and the client's leaving come before or after the settlement."""
    go_on = threading.Event()
    ended = threading.Event()
    first, rest = b"x" * 200_000, b"y" * 100_000

    def serve(sock, reader, number):
        reader.request()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n")
        sock.sendall(first)
        go_on.wait(PATIENCE_S)
        if upstream_end == "complete":
            sock.sendall(rest)
        elif upstream_end == "resets":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        ended.set()

    behind = Listener(serve)
    control = tmp_path / "trouble"
    gateway = start(config_for(behind, keep_body="100KiB"), store=f"fault:control={control}:sqlite:{tmp_path}/hapax.db")
    with gateway.connect() as connection:
        if store == "late":
            control.write_text("delay=700")
        connection.send(request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", "k")], b"{}"))
        wait_until(lambda: behind.connections, "the upstream works")
        if store == "before":
            assert connection.reader.head().marker == "executed"
        else:
            wait_until(lambda: gateway.metric("hapax_queued") == 1, "the settlement is with the store")
        if client == "leaves":
            connection.reset()
        go_on.set()
        if client == "stays":
            check_stays(connection, store, upstream_end, first + rest)
    ended.wait(PATIENCE_S)
    wait_until(lambda: gateway.metric("hapax_running", route="orders") == 0, "it is settled")
    again = gateway.post("/orders", "k", b"{}")
    assert (again.problem, again.json()["original_status"]) == ("answer-not-kept", 200)
    assert len(behind.connections) == 1
    assert outcomes(gateway) == {"executed": 1, "not_kept": 1}
    behind.close()
    wait_until(lambda: gateway.metric("hapax_body_bytes") == 0, "nothing is held")


def check_stays(connection, store, upstream_end, whole):
    if upstream_end == "complete":
        if store == "late":
            assert connection.reader.head().marker == "executed"
        assert connection.reader.exactly(len(whole)) == whole
    else:
        with pytest.raises(Ended):
            if store == "late":
                connection.reader.head()
            connection.reader.exactly(len(whole))
