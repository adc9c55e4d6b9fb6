"""Clients that go away: their work is finished, its answer kept, and nothing of them stays behind."""

import socket
import threading

import pytest
from harness import Answer, at_once, config_for, request_bytes, wait_until

SCOPE = "orders POST /orders -"
JSON = [("Content-Type", "application/json")]


def keyed(key):
    return JSON + [("Idempotency-Key", key)]


def nothing_is_left(gateway):
    wait_until(lambda: gateway.metric("hapax_connections") == 0, "no connection is left")
    wait_until(lambda: gateway.metric("hapax_running", route="orders") == 0, "nothing runs")
    wait_until(lambda: gateway.metric("hapax_body_bytes") == 0, "no body is left in memory")
    assert (gateway.metric("hapax_queued"), gateway.metric("hapax_waiters")) == (0, 0)


@pytest.mark.parametrize("way", ["close", "reset"])
def test_the_answer_is_kept_for_a_client_that_left(gateway, upstream, way):
    release = threading.Event()
    upstream.answer = Answer(201, [("Location", "/orders/7")], b'{"id":7}', wait=release)
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/orders", keyed("k"), b"{}"))
    wait_until(upstream.effects, "the upstream works")
    getattr(connection, way)()
    gateway.admin("/healthz")  # a turn of the loop later
    release.set()
    wait_until(lambda: gateway.operation(SCOPE, "k").json()["state"] == "done", "the answer is stored")
    again = gateway.post("/orders", "k", b"{}")
    assert (again.status, again.marker, again.get("Location"), again.body) == (201, "replayed", "/orders/7", b'{"id":7}')
    assert len(upstream.effects()) == 1
    nothing_is_left(gateway)


def test_a_client_that_closes_its_half_still_gets_its_answer(gateway, upstream):
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", keyed("k"), b"{}"))
        connection.sock.shutdown(socket.SHUT_WR)
        wait_until(upstream.effects, "the upstream works")
        release.set()
        answer = connection.receive()
        assert (answer.status, answer.marker, answer.body) == (201, "executed", b'{"ok":true}')
        assert connection.is_closed_by_peer()
    nothing_is_left(gateway)


def test_a_waiting_duplicate_that_leaves_changes_nothing_for_the_others(gateway, upstream):
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    clients = [gateway.connect() for _ in range(5)]
    clients[0].send(request_bytes("POST", "/orders", keyed("k"), b"{}"))
    wait_until(upstream.effects, "the first runs")
    for client in clients[1:]:
        client.send(request_bytes("POST", "/orders", keyed("k"), b"{}"))
    wait_until(lambda: gateway.metric("hapax_waiters") == 4, "four wait")
    clients[0].close()
    clients[1].reset()
    clients[2].close()
    release.set()
    for client in clients[3:]:
        answer = client.receive()
        assert (answer.status, answer.marker) == (201, "attached")
        client.close()
    assert len(upstream.effects()) == 1
    nothing_is_left(gateway)


PARTS = {
    "before the body": request_bytes("POST", "/orders", keyed("k") + [("Content-Length", "100")], b""),
    "in the body": request_bytes("POST", "/orders", keyed("k") + [("Content-Length", "100")], b'{"amount":'),
    "in a chunk": request_bytes("POST", "/orders", keyed("k") + [("Transfer-Encoding", "chunked")], b"40\r\n{"),
    "before the last chunk": request_bytes("POST", "/orders", keyed("k") + [("Transfer-Encoding", "chunked")], b"2\r\n{}\r\n"),
    "in the head": b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-K",
}


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("part", PARTS)
def test_a_request_that_is_cut_short_claims_nothing(gateway, upstream, part, way):
    connection = gateway.connect()
    connection.send(PARTS[part])
    wait_until(lambda: gateway.metric("hapax_connections") == 1, "the gateway reads it")
    getattr(connection, way)()
    nothing_is_left(gateway)
    assert gateway.operation(SCOPE, "k").status == 404 and upstream.effects() == []
    answer = gateway.post("/orders", "k", b"{}")
    assert (answer.status, answer.marker) == (201, "executed")


def test_fifty_clients_that_vanish_leave_nothing_behind_but_their_answers(gateway, upstream):
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    body = b'{"pad":"' + b"x" * 20000 + b'"}'
    working = [gateway.connect() for _ in range(50)]
    for i, client in enumerate(working):
        client.send(request_bytes("POST", "/orders", keyed(f"k-{i}"), body))
    wait_until(lambda: len(upstream.effects()) == 50, "all are with the upstream")
    assert gateway.metric("hapax_running", route="orders") == 50
    held = gateway.metric("hapax_body_bytes")  # with what is reserved for their answers
    assert held >= 50 * len(body)
    sending = [gateway.connect() for _ in range(50)]
    for i, client in enumerate(sending):
        client.send(request_bytes("POST", "/orders", keyed(f"cut-{i}") + [("Content-Length", "30000")], body))
    wait_until(lambda: gateway.metric("hapax_body_bytes") == held + 50 * len(body), "the others' bodies arrive")
    for i, client in enumerate(working + sending):
        client.reset() if i % 2 else client.close()
    wait_until(lambda: gateway.metric("hapax_body_bytes") == held, "the unfinished ones are dropped")
    release.set()
    nothing_is_left(gateway)
    assert gateway.metric("hapax_requests_total", route="orders", outcome="executed") == 50
    answers = at_once(10, lambda t: [gateway.post("/orders", f"k-{i}", body) for i in range(t, 50, 10)])
    assert {a.marker for group in answers for a in group} == {"replayed"}
    assert len(upstream.effects()) == 50


def test_a_client_that_does_not_read_its_answer_is_cut_and_the_answer_kept(start, upstream):
    gateway = start(config_for(upstream, timeouts="{send: 300ms}", keep_body="16MiB"))
    upstream.answer = Answer(200, [], b"a" * (12 << 20))
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", keyed("k"), b"{}"))
        wait_until(lambda: gateway.metric("hapax_requests_total", route="orders", outcome="executed") == 1, "it ran")
        nothing_is_left(gateway)
    again = gateway.post("/orders", "k", b"{}")
    assert (again.marker, len(again.body)) == ("replayed", 12 << 20)
