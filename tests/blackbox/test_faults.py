"""What goes wrong between gateway and upstream, and what becomes of the operation."""

import contextlib
import socket
import struct
import threading
import time

import pytest
from harness import Answer, Listener, Upstream, at_once, config_for, wait_until

SCOPE = "orders POST /orders -"

CUT = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
FAULTS = {
    "no answer in time": (Answer(action="hang"), 504),
    "reset": (Answer(action="reset"), 502),
    "closed without an answer": (Answer(action="close"), 502),
    "closed in the head": (Answer(action="raw", raw=b"HTTP/1.1 201 Cre"), 502),
    "closed after an interim answer": (Answer(action="raw", raw=b"HTTP/1.1 102 Processing\r\n\r\n"), 502),
    "no HTTP": (Answer(action="raw", raw=b"SSH-2.0-OpenSSH_9.2\r\n"), 502),
    "body shorter than its length": (Answer(action="raw", raw=CUT + b"Content-Length: 9\r\n\r\n{\"id\""), 502),
    "last chunk missing": (Answer(action="raw", raw=CUT + b"Transfer-Encoding: chunked\r\n\r\n4\r\n{\"id\r\n"), 502),
    "chunk size broken": (Answer(action="raw", raw=CUT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"), 502),
    "502": (Answer(502, [], b"bad gateway"), 502),
    "504": (Answer(504, [], b"gateway timeout"), 504),
}


@pytest.fixture
def gateway(upstream, start):
    return start(config_for(upstream, timeout="500ms"))


@pytest.mark.parametrize("name", FAULTS)
def test_no_usable_answer_is_unknown_and_never_repeated_by_itself(start, upstream, name):
    fault, status = FAULTS[name]
    gateway = start(config_for(upstream, timeout="500ms" if fault.action == "hang" else "60s"))
    upstream.answer = fault
    first = gateway.post("/orders", "k")
    assert (first.status, first.problem, first.marker) == (status, "outcome-unknown", "unknown")
    assert first.json()["retryable"] is False
    upstream.answer = Answer()
    for _ in range(3):
        again = gateway.post("/orders", "k")
        assert (again.status, again.problem, again.marker) == (409, "outcome-unknown", "held")
        assert "hapax keys resolve" in again.json()["detail"] and len(again.json()["operation"]) == 32
    assert len(upstream.effects()) == 1
    assert gateway.operation(SCOPE, "k").json()["state"] == "unknown"
    assert gateway.metric("hapax_requests_total", route="orders", outcome="unknown") == 1
    assert gateway.metric("hapax_requests_total", route="orders", outcome="held") == 3
    assert gateway.metric("hapax_running", route="orders") == 0


def test_duplicates_that_wait_for_a_first_one_without_an_answer_are_held(gateway, upstream):
    release = threading.Event()
    upstream.answer = Answer(action="close", wait=release)
    first = threading.Thread(target=gateway.post, args=("/orders", "k"))
    first.start()
    wait_until(upstream.effects, "the first runs")
    answers = []
    others = [threading.Thread(target=lambda: answers.append(gateway.post("/orders", "k"))) for _ in range(4)]
    for other in others:
        other.start()
    wait_until(lambda: gateway.metric("hapax_waiters") == 4, "four wait")
    release.set()
    for thread in [first, *others]:
        thread.join()
    assert {(a.status, a.problem) for a in answers} == {(409, "outcome-unknown")} and len(answers) == 4
    assert len(upstream.effects()) == 1


# --- Resolving -------------------------------------------------------------------------------------


def make_unknown(gateway, upstream, key):
    upstream.answer = Answer(action="close")
    assert gateway.post("/orders", key).marker == "unknown"
    held = gateway.post("/orders", key)
    assert held.marker == "held"
    upstream.answer = Answer()
    return held.json()["operation"]


def test_an_operator_says_it_did_not_happen_and_the_next_request_runs(gateway, upstream):
    operation = make_unknown(gateway, upstream, "k")
    done = gateway.cli("keys", "resolve", "--id", operation, "--released")
    assert done.returncode == 0, done.stderr
    answer = wait_until(lambda: (a := gateway.post("/orders", "k")).marker != "held" and a, "it notices")
    assert (answer.status, answer.marker) == (201, "executed")
    assert gateway.post("/orders", "k").marker == "replayed"
    assert len(upstream.effects()) == 2


def test_an_operator_says_it_did_happen_and_requests_get_that_answer(gateway, upstream):
    make_unknown(gateway, upstream, "k")
    body = gateway.folder / "answer.json"
    body.write_text('{"id":17}')
    done = gateway.cli("keys", "resolve", "--done", "--status", "202", "--header", "Content-Type: application/json",
                       "--body", f"@{body}", SCOPE, "k")
    assert done.returncode == 0, done.stderr
    answer = wait_until(lambda: (a := gateway.post("/orders", "k")).marker != "held" and a, "it notices")
    assert (answer.status, answer.marker, answer.body) == (202, "replayed", b'{"id":17}')
    assert answer.get("Content-Type") == "application/json"
    assert len(upstream.effects()) == 1


def test_an_operator_forgets_a_done_record_and_its_cached_answer_goes_too(gateway, upstream):
    upstream.answer = lambda r: Answer(201, [], b"%d" % r.number)
    assert [gateway.post("/orders", "k").body for _ in range(3)] == [b"1"] * 3
    assert gateway.cli("keys", "forget", "--yes", SCOPE, "k").returncode == 0
    wait_until(lambda: gateway.post("/orders", "k").body == b"2", "the cache notices")
    assert gateway.post("/orders", "k").marker == "replayed"


# --- on_unknown: retry, probe ----------------------------------------------------------------------


def test_a_route_that_retries_takes_over_with_the_next_attempt_and_the_same_key(start, upstream):
    gateway = start(config_for(upstream, on_unknown="retry"))
    upstream.answer = lambda r: Answer(action="close") if r.number < 3 else Answer(201, [], b"third")
    markers = [gateway.post("/orders", "k").marker for _ in range(4)]
    assert markers == ["unknown", "unknown", "executed", "replayed"]
    assert [r.get("Idempotency-Attempt") for r in upstream.effects()] == ["1", "2", "3"]
    assert {r.get("Idempotency-Key") for r in upstream.effects()} == {"k"}


def probing(upstream, probe):
    """An upstream whose first POST gets no answer, and whose GET is the probe."""

    def answer(request):
        if request.method == "GET":
            return probe
        posts = [r for r in upstream.effects() if r.method == "POST"]
        return Answer(action="close") if len(posts) == 1 else Answer(201, [], b"second run")

    upstream.answer = answer


PROBES = {  # the probe's answer → status, marker, body of the retry; how often it ran in all
    "200": (Answer(200, [("X-Found", "yes")], b'{"id":7}'), 200, "replayed", b'{"id":7}', 1),
    "404": (Answer(404, [], b"none"), 201, "executed", b"second run", 2),
    "410": (Answer(410, [], b"gone"), 201, "executed", b"second run", 2),
    "500": (Answer(500, [], b"oops"), 409, "held", None, 1),
    "302": (Answer(302, [("Location", "/")], b""), 409, "held", None, 1),
    "401": (Answer(401, [], b""), 409, "held", None, 1),
    "closed": (Answer(action="close"), 409, "held", None, 1),
    "time-out": (Answer(action="hang"), 409, "held", None, 1),
    "200 that says released": (Answer(200, [("Hapax-Outcome", "released")], b"{}"), 201, "executed", b"second run", 2),
    "404 that says done": (Answer(404, [("Hapax-Outcome", "done")], b"not here"), 404, "replayed", b"not here", 1),
    "200 that says unknown": (Answer(200, [("Hapax-Outcome", "unknown")], b"{}"), 409, "held", None, 1),
}


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_decides_an_unknown_outcome(start, upstream, name):
    probe, status, marker, body, runs = PROBES[name]
    gateway = start(config_for(upstream, on_unknown="probe", probe=f"{upstream.url}/by-key/{{key}}?full=1", timeout="1s"))
    probing(upstream, probe)
    auth = [("Authorization", "Bearer t")]
    assert gateway.post("/orders", '"a/b c"', headers=auth).marker == "unknown"
    answer = gateway.post("/orders", '"a/b c"', headers=auth)
    assert (answer.status, answer.marker) == (status, marker)
    if body is not None:
        assert answer.body == body and answer.get("Hapax-Outcome") is None
        assert gateway.post("/orders", '"a/b c"', headers=auth).marker == "replayed"
    probes = [r for r in upstream.effects() if r.method == "GET"]
    assert [r.target for r in probes] == ["/by-key/a%2Fb%20c?full=1"]
    assert probes[0].get("Authorization") == "Bearer t"
    assert len([r for r in upstream.effects() if r.method == "POST"]) == runs
    assert gateway.metric("hapax_running", route="orders") == 0


def test_a_probe_that_can_not_be_reached_leaves_it_held(start, upstream):
    port = free_port()
    gateway = start(config_for(upstream, on_unknown="probe", probe=f"http://127.0.0.1:{port}/{{key}}"))
    upstream.answer = Answer(action="close")
    assert [gateway.post("/orders", "k").marker for _ in range(3)] == ["unknown", "held", "held"]
    assert len(upstream.effects()) == 1


def test_many_that_probe_at_once_run_it_once(start, upstream):
    gateway = start(config_for(upstream, on_unknown="probe", probe=f"{upstream.url}/by-key/{{key}}"))
    probing(upstream, Answer(404, delay_s=0.2))
    assert gateway.post("/orders", "k").marker == "unknown"
    answers = at_once(16, lambda _: gateway.post("/orders", "k"))
    assert {(a.status, a.body) for a in answers} == {(201, b"second run")}
    assert len([r for r in upstream.effects() if r.method == "POST"]) == 2


# --- An upstream that can't be reached -------------------------------------------------------------


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_an_upstream_that_refuses_connections_frees_the_key(start):
    port = free_port()
    gateway = start(config_for(f"http://127.0.0.1:{port}"))
    for _ in range(2):
        answer = gateway.post("/orders", "k")
        assert (answer.status, answer.problem, answer.marker) == (502, "upstream-unreachable", "released")
        assert answer.json()["retryable"] is True and int(answer.get("Retry-After")) >= 1
    assert gateway.operation(SCOPE, "k").status == 404
    upstream = Upstream(port=port)
    try:
        assert gateway.post("/orders", "k").marker == "executed"
        assert [r.get("Idempotency-Attempt") for r in upstream.effects()] == ["1"]
    finally:
        upstream.close()


def test_a_name_that_does_not_resolve_frees_the_key(start):
    gateway = start(config_for("http://nowhere.invalid:80"))
    answers = at_once(4, lambda i: gateway.post("/orders", f"k-{i}"))
    assert {(a.status, a.problem, a.marker) for a in answers} == {(502, "upstream-unreachable", "released")}
    assert gateway.operation(SCOPE, "k-0").status == 404


def test_an_upstream_that_does_not_accept_in_time_frees_the_key(start):
    """A full backlog: the kernel answers no further connection."""
    with contextlib.ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = open_sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        gateway = start(config_for(f"http://127.0.0.1:{port}", connect_timeout="300ms"))
        answer = gateway.post("/orders", "k")
        assert (answer.status, answer.problem, answer.marker) == (502, "upstream-unreachable", "released")
        assert gateway.operation(SCOPE, "k").status == 404


# --- Kept connections ------------------------------------------------------------------------------

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"


def test_a_connection_that_the_upstream_closed_meanwhile_harms_no_request(start):
    requests, noticed = [], []

    def handle(sock, reader, number):
        requests.append(reader.request())
        sock.sendall(OK)
        sock.shutdown(socket.SHUT_WR)
        reader.to_end()  # the gateway saw it, and closed
        noticed.append(number)

    upstream = Listener(handle)
    gateway = start(config_for(upstream))
    for i in range(10):
        answer = gateway.post("/orders", f"k-{i}")
        assert (answer.status, answer.marker) == (201, "executed")
        wait_until(lambda: len(noticed) == i + 1, "the gateway closes the connection")
    assert len(requests) == 10
    upstream.close()


def test_bytes_nobody_asked_for_are_not_the_next_answer(start):
    """A late 408 on an idle connection, as some servers send it, must not answer the next request."""
    closed = threading.Event()

    def handle(sock, reader, number):
        reader.request()
        sock.sendall(OK)
        if number == 1:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
            reader.to_end()
            closed.set()

    upstream = Listener(handle)
    gateway = start(config_for(upstream))
    assert gateway.post("/orders", "k-1").body == b"{}"
    wait_until(closed.is_set, "the gateway gives the connection up")
    assert gateway.post("/orders", "k-2").body == b"{}"
    upstream.close()


@pytest.mark.parametrize("end", ["closes", "resets"])
@pytest.mark.parametrize("size", [20, 200_000])
def test_a_request_on_a_kept_connection_that_breaks_is_sent_once_and_unknown(start, end, size):
    """HTTP clients like to repeat such a request on a new connection; the upstream may have executed it."""
    arrived = []

    def handle(sock, reader, number):
        arrived.append((number, reader.request()))
        sock.sendall(OK)
        arrived.append((number, reader.request()))
        if end == "resets":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    upstream = Listener(handle)
    gateway = start(config_for(upstream))
    body = b'{"pad":"' + b"x" * size + b'"}'
    assert gateway.post("/orders", "k-1", body).marker == "executed"
    second = gateway.post("/orders", "k-2", body)
    assert (second.status, second.problem, second.marker) == (502, "outcome-unknown", "unknown")
    assert gateway.post("/orders", "k-2", body).marker == "held"
    assert [(n, r.get("Idempotency-Key")) for n, r in arrived] == [(1, "k-1"), (1, "k-2")]
    upstream.close()


def test_an_upstream_that_answers_before_the_body_is_sent_is_heard(start):
    """413 while a large body is still on its way: the answer counts, not the broken pipe."""

    def handle(sock, reader, number):
        reader.head()
        sock.sendall(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        sock.shutdown(socket.SHUT_WR)
        reader.to_end()

    upstream = Listener(handle)
    gateway = start(config_for(upstream))
    answer = gateway.post("/orders", "k", b'{"pad":"' + b"x" * 4_000_000 + b'"}')
    assert (answer.status, answer.marker, answer.body) == (413, "executed", b"big")
    assert gateway.post("/orders", "k", b'{"pad":"' + b"x" * 4_000_000 + b'"}').marker == "replayed"
    assert len(upstream.connections) == 1
    upstream.close()


def test_waiting_for_a_connection_takes_nothing_of_the_time_for_the_answer(start, upstream):
    gateway = start(config_for(upstream, threads="1", upstream_connections="1", timeout="3s"))
    release = threading.Event()
    upstream.answer = lambda r: Answer(wait=release) if r.method == "GET" else Answer(action="hang")
    answers = []
    clients = [threading.Thread(target=lambda: gateway.request("GET", "/orders")),
               threading.Thread(target=lambda: answers.append((gateway.post("/orders", "k"), time.monotonic())))]
    clients[0].start()
    wait_until(upstream.effects, "the only connection is in use")
    clients[1].start()
    wait_until(lambda: gateway.metric("hapax_running", route="orders") == 1, "the other waits for it")
    time.sleep(0.5)
    released_at = time.monotonic()
    release.set()
    for client in clients:
        client.join()
    answer, answered_at = answers[0]
    assert (answer.status, answer.problem, answer.marker) == (504, "outcome-unknown", "unknown")
    assert answered_at - released_at >= 3.0
    assert len(upstream.effects()) == 2


def test_more_requests_than_upstream_connections_wait_and_are_answered(start, upstream):
    gateway = start(config_for(upstream, upstream_connections="2"))
    upstream.answer = Answer(delay_s=0.02)
    answers = at_once(30, lambda i: gateway.post("/orders", f"k-{i}"))
    assert {(a.status, a.marker) for a in answers} == {(201, "executed")}
    assert len(upstream.effects()) == 30 and len(upstream.connections) <= 2
