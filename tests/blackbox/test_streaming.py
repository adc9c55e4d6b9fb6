"""What passes through is neither kept nor held up: bytes go on as they come, slowness reaches the other side,
and memory stays flat."""

import hashlib
import socket
import struct
import threading
import time

import pytest
from harness import Answer, Ended, Listener, config_for, is_sanitized, request_bytes, wait_until

SANITIZED = is_sanitized()
MEMORY_KIB_MAX = 100 * 1024
PIECE = bytes(range(256)) * 4096  # 1 MiB
MIB = 1 << 20


@pytest.fixture
def behind(start):
    """behind(handle): a gateway in front of a Listener; both are closed, and checked, at the end."""
    listeners = []

    def begin(handle, **fields):
        listeners.append(Listener(handle))
        return start(config_for(listeners[-1], **fields))

    yield begin
    for listener in listeners:
        listener.close()


def assert_memory_is_flat(gateway):
    kib = gateway.memory_kib("VmHWM")
    print(f"most memory the gateway had: {kib} KiB")
    assert SANITIZED or kib < MEMORY_KIB_MAX


def standstill(counter, seconds=1.0):
    """Wait until counter() has not changed for a while; its value then."""
    last, since = counter(), time.monotonic()

    def stands():
        nonlocal last, since
        now = counter()
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > seconds

    wait_until(stands, "it stands still", 120)
    return last


def digest_of(pieces):
    digest = hashlib.blake2b()
    for _ in range(pieces):
        digest.update(PIECE)
    return digest.digest()


# --- Down ------------------------------------------------------------------------------------------


def test_events_arrive_one_by_one_while_the_upstream_is_still_sending(behind):
    seen = threading.Semaphore(0)

    def handle(sock, reader, number):
        reader.request()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(20):
            event = b"data: %d\n\n" % i
            sock.sendall(b"%x\r\n%s\r\n" % (len(event), event))
            assert seen.acquire(timeout=60), "the client has not seen the event"
        sock.sendall(b"0\r\n\r\n")
        reader.to_end()

    gateway = behind(handle)
    with gateway.connect() as connection:
        connection.send(request_bytes("GET", "/events"))
        head = connection.reader.head()
        assert (head.status, head.get("Content-Type"), head.marker) == (200, "text/event-stream", None)
        for i in range(20):
            event = b"data: %d\n\n" % i
            size = int(connection.reader.until(b"\r\n"), 16)
            assert connection.reader.exactly(size + 2) == event + b"\r\n"
            seen.release()
        assert connection.reader.exactly(5) == b"0\r\n\r\n"


def test_a_gibibyte_passes_with_flat_memory(behind):
    pieces = 64 if SANITIZED else 1024

    def handle(sock, reader, number):
        reader.request()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (pieces * MIB))
        for _ in range(pieces):
            sock.sendall(PIECE)
        reader.to_end()

    gateway = behind(handle)
    with gateway.connect() as connection:
        connection.send(request_bytes("GET", "/large"))
        head = connection.reader.head()
        assert head.get("Content-Length") == str(pieces * MIB)
        assert connection.reader.digest(pieces * MIB) == digest_of(pieces)
    assert_memory_is_flat(gateway)


@pytest.mark.parametrize("protected", [False, True])
def test_a_reader_that_stops_stops_the_sender(behind, protected):
    sent = []
    size = 256 * MIB

    def handle(sock, reader, number):
        reader.request()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // MIB):
            sock.sendall(PIECE)
            sent.append(MIB)
        reader.to_end()

    gateway = behind(handle)
    with gateway.connect() as connection:
        if protected:
            connection.send(request_bytes("POST", "/large", [("Idempotency-Key", "k")]))
        else:
            connection.send(request_bytes("GET", "/large"))
        head = connection.reader.head()
        assert head.marker == ("executed" if protected else None)
        assert sum(sent[:standstill(lambda: len(sent))]) < 64 * MIB
        assert_memory_is_flat(gateway)
        assert connection.reader.digest(size) == digest_of(size // MIB)
    assert sum(sent) == size
    assert_memory_is_flat(gateway)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_large_answers_on_kept_connections_arrive_whole(start, upstream, method):
    """One that comes so fast that it is paused at once used to be taken for bytes that nobody had asked for."""
    gateway = start(config_for(upstream))
    upstream.answer = Answer(200, [], PIECE * 3)
    for i in range(60):
        with gateway.connect() as connection:
            connection.send(request_bytes(method, "/large", [("Idempotency-Key", f"k-{i}")]))
            assert connection.reader.head().status == 200
            assert connection.reader.digest(3 * MIB) == digest_of(3)


BODYLESS = {
    "HEAD": ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nX-A: 1\r\n\r\n", 200),
    "HEAD chunked": ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n", 200),
    "304": ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nX-A: 1\r\n\r\n", 304),
    "204": ("DELETE", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", 204),
    "empty": ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: 1\r\n\r\n", 200),
}


@pytest.mark.parametrize("name", BODYLESS)
def test_answers_without_a_body_pass_and_the_connection_goes_on(behind, name):
    method, answer, status = BODYLESS[name]

    def handle(sock, reader, number):
        while True:
            reader.request()
            sock.sendall(answer)

    gateway = behind(handle)
    with gateway.connect() as connection:
        for _ in range(3):
            got = connection.request(method, "/x")
            assert (got.status, got.get("X-A"), got.body) == (status, "1", b"")
            if name == "HEAD":
                assert got.get("Content-Length") == "12345"


def test_interim_answers_do_not_confuse(behind):
    def handle(sock, reader, number):
        while True:
            reader.request()
            sock.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
                         b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    gateway = behind(handle)
    for method, headers in (("GET", []), ("POST", [("Idempotency-Key", "k")])):
        answer = gateway.request(method, "/x", headers)
        assert (answer.status, answer.body) == (200, b"ok")


@pytest.mark.parametrize("method, headers", [("GET", []), ("POST", [("Idempotency-Key", "k")])])
@pytest.mark.parametrize("framing", ["chunked", "closed", "length"])
def test_http_1_0_clients_get_a_body_that_ends_with_the_connection_or_its_length(behind, framing, method, headers):
    body = b"b" * 100_000

    def handle(sock, reader, number):
        reader.request()
        if framing == "chunked":
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        elif framing == "length":
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        else:
            sock.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)

    gateway = behind(handle)
    with gateway.connect() as connection:
        answer = connection.request(method, "/x", headers, version="HTTP/1.0")
        assert answer.get("Transfer-Encoding") is None and answer.body == body
        assert connection.is_closed_by_peer()


BREAKS = {
    "in a length": b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n",
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2dc6c0\r\n",
}


@pytest.mark.parametrize("protected", [False, True])
@pytest.mark.parametrize("name", BREAKS)
def test_a_stream_that_breaks_off_can_not_be_taken_for_complete(behind, name, protected):
    def handle(sock, reader, number):
        reader.request()
        sock.sendall(BREAKS[name] + PIECE + PIECE)

    gateway = behind(handle)
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/x", [("Idempotency-Key", "k")]) if protected else request_bytes("GET", "/x"))
        with pytest.raises(Ended):
            connection.receive()
    assert "upstream-failed" in gateway.log_text()
    if protected:  # it was too large to keep: done, and never executed again
        assert gateway.request("POST", "/x", [("Idempotency-Key", "k")]).problem == "answer-not-kept"
    assert gateway.admin("/healthz").status == 200


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_client_that_leaves_a_stream_ends_the_upstreams_connection(behind, way):
    left = threading.Event()

    def handle(sock, reader, number):
        reader.request()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                sock.sendall(b"data: tick\n\n")
                time.sleep(0.01)
        except OSError:
            left.set()

    gateway = behind(handle)
    connection = gateway.connect()
    connection.send(request_bytes("GET", "/events"))
    connection.reader.until(b"data: tick")
    getattr(connection, way)()
    wait_until(left.is_set, "the upstream's connection ends")
    wait_until(lambda: gateway.metric("hapax_connections") == 0, "nothing is left")


def test_a_silent_stream_is_ended_after_the_routes_time(behind):
    def handle(sock, reader, number):
        reader.request()
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        reader.to_end()

    gateway = behind(handle, stream_timeout="300ms")
    with gateway.connect() as connection:
        connection.send(request_bytes("GET", "/x"))
        with pytest.raises(Ended):
            connection.receive()


def test_a_stream_behind_a_protected_request_outlasts_its_timeout_and_is_not_repeated(behind):
    go_on = threading.Event()
    requests = []

    def handle(sock, reader, number):
        requests.append(reader.request())
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        assert go_on.wait(60)
        sock.sendall(b"data: 2\n\n")

    gateway = behind(handle, timeout="400ms")
    with gateway.connect() as connection:
        started = time.monotonic()
        connection.send(request_bytes("POST", "/chat", [("Idempotency-Key", "k-sse")], b"{}"))
        head = connection.reader.head()
        assert (head.status, head.marker) == (200, "executed")
        connection.reader.until(b"data: 1")
        wait_until(lambda: time.monotonic() - started > 1.2, "well past the timeout")
        go_on.set()
        connection.reader.until(b"data: 2")
    again = gateway.request("POST", "/chat", [("Idempotency-Key", "k-sse")], b"{}")
    assert (again.status, again.problem) == (409, "answer-not-kept")
    assert len(requests) == 1


UNPROTECTED_FAULTS = {
    "unreachable": (None, 502, "upstream-unreachable"),
    "closed": (Answer(action="close"), 502, "upstream-broken"),
    "no HTTP": (Answer(action="raw", raw=b"220 mail.test ESMTP\r\n"), 502, "upstream-broken"),
    "silent": (Answer(action="hang"), 504, "upstream-timeout"),
}


@pytest.mark.parametrize("name", UNPROTECTED_FAULTS)
def test_faults_of_unprotected_requests_have_problems_of_their_own(start, upstream, name):
    fault, status, problem = UNPROTECTED_FAULTS[name]
    gateway = start(config_for(upstream if fault else "http://127.0.0.1:1", stream_timeout="300ms"))
    upstream.answer = fault
    for method in ("GET", "PUT"):
        answer = gateway.request(method, "/x")
        assert (answer.status, answer.problem) == (status, problem)


# --- Up --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_large_upload_is_as_slow_as_the_upstream_reads_and_memory_is_flat(behind, framing):
    pieces = 32 if SANITIZED else 256
    may_read = threading.Event()
    read, announced = [], []

    def handle(sock, reader, number):
        head = reader.head()
        announced.append((head.get("Content-Length"), head.get("Transfer-Encoding")))
        assert may_read.wait(120)
        if framing == "chunked":
            body = []
            while (size := int(reader.until(b"\r\n"), 16)) > 0:
                body.append(reader.exactly(size))
                reader.exactly(2)
            reader.exactly(2)
            read.append(hashlib.blake2b(b"".join(body)).digest())
        else:
            read.append(reader.digest(pieces * MIB))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    gateway = behind(handle)
    with gateway.connect() as connection:
        length = ("Content-Length", str(pieces * MIB)) if framing == "length" else ("Transfer-Encoding", "chunked")
        connection.send(request_bytes("PUT", "/file", [length]))
        sent = []

        def send():
            for _ in range(pieces):
                connection.send(PIECE if framing == "length" else b"%x\r\n%s\r\n" % (MIB, PIECE))
                sent.append(MIB)
            if framing == "chunked":
                connection.send(b"0\r\n\r\n")

        sender = threading.Thread(target=send)
        sender.start()
        assert sum(sent[:standstill(lambda: len(sent))]) < (24 if SANITIZED else 64) * MIB
        assert_memory_is_flat(gateway)
        may_read.set()
        answer = connection.receive("PUT")
        sender.join()
    assert (answer.status, answer.body, answer.marker) == (200, b"ok", "unprotected")
    assert read == [digest_of(pieces)]
    assert announced == [(str(pieces * MIB), None) if framing == "length" else (None, "chunked")]
    assert_memory_is_flat(gateway)


def test_the_beginning_of_an_upload_arrives_before_its_end_is_sent(behind):
    arrived = threading.Semaphore(0)

    def handle(sock, reader, number):
        reader.head()
        for _ in range(5):
            assert reader.exactly(5) == b"piece"
            arrived.release()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    gateway = behind(handle)
    with gateway.connect() as connection:
        connection.send(request_bytes("PUT", "/file", [("Content-Length", "25")]))
        for _ in range(5):
            connection.send(b"piece")
            assert arrived.acquire(timeout=60)
        assert connection.receive("PUT").status == 200


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("framing", [("Content-Length", "1000"), ("Transfer-Encoding", "chunked")])
def test_a_client_that_leaves_an_upload_breaks_it_off_for_the_upstream(behind, framing, way):
    arrived, ended = threading.Event(), []

    def handle(sock, reader, number):
        reader.head()
        reader.until(b"half")
        arrived.set()
        try:
            reader.until(b"0\r\n\r\n") if framing[1] == "chunked" else reader.exactly(993)
            ended.append("complete")
        except Ended:
            ended.append("broken")

    gateway = behind(handle)
    connection = gateway.connect()
    connection.send(request_bytes("PUT", "/file", [framing], b"4\r\nhalf"))
    wait_until(arrived.is_set, "the first half arrives")
    getattr(connection, way)()
    wait_until(lambda: ended, "the upload ends for the upstream")
    assert ended == ["broken"]


def test_an_upstream_that_refuses_an_upload_early_is_heard(behind):
    def handle(sock, reader, number):
        reader.head()
        sock.sendall(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        sock.shutdown(socket.SHUT_WR)
        reader.to_end()

    gateway = behind(handle)
    with gateway.connect() as connection:
        connection.send(request_bytes("PUT", "/file", [("Content-Length", str(64 * MIB))], PIECE))
        answer = connection.receive("PUT")
        assert (answer.status, answer.body) == (413, b"big")


def test_an_upload_through_reset_upstream_is_a_problem(behind):
    def handle(sock, reader, number):
        reader.head()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    gateway = behind(handle)
    answer = gateway.request("PUT", "/file", [], b"x" * 100_000)
    assert (answer.status, answer.problem) == (502, "upstream-broken")
