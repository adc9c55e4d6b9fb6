"""Past every limit there is a clear answer, and others are served meanwhile."""

import gzip
import resource
import selectors
import threading
import time

import pytest
from harness import Answer, at_once, config_for, is_sanitized, request_bytes, wait_until

SCOPE = "orders POST /orders -"
JSON = [("Content-Type", "application/json")]


def keyed(key, *more):
    return JSON + [("Idempotency-Key", key), *more]


def in_background(function, *arguments):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)))
    thread.start()
    return thread, results


# --- Bodies and heads ------------------------------------------------------------------------------


def chunked(body, size=1000):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_over_the_limit_is_refused_and_one_at_it_is_not(start, upstream, framing):
    gateway = start(config_for(upstream, body_size="10000"))

    def post(key, size):
        body = b'"' + b"x" * (size - 2) + b'"'
        more = [("Transfer-Encoding", "chunked")] if framing == "chunked" else []
        return gateway.request("POST", "/orders", keyed(key, *more), chunked(body) if more else body)

    assert post("k-1", 10000).marker == "executed"
    answer = post("k-2", 10001)
    assert (answer.status, answer.problem, answer.marker) == (413, "body-too-large", "rejected")
    assert answer.json()["limit_bytes"] == 10000
    assert len(upstream.effects()) == 1 and gateway.operation(SCOPE, "k-2").status == 404
    wait_until(lambda: gateway.metric("hapax_body_bytes") == 0, "nothing is kept of it")


def test_an_announced_body_over_the_limit_is_refused_before_it_is_sent(start, upstream):
    gateway = start(config_for(upstream, body_size="10000"))
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", keyed("k", ("Content-Length", "99999999999"))))
        answer = connection.receive()
        assert (answer.status, answer.problem) == (413, "body-too-large")


def test_a_body_that_grows_past_the_limit_when_unpacked_is_refused(start, upstream):

    gateway = start(config_for(upstream, body_size="100KiB"))
    bomb = gzip.compress(b"[" + b" " * (50 << 20) + b"]")
    assert len(bomb) < 100 * 1024
    before = gateway.memory_kib("VmHWM")
    answer = gateway.request("POST", "/orders", keyed("k", ("Content-Encoding", "gzip")), bomb)
    assert (answer.status, answer.problem) == (413, "body-too-large")
    assert is_sanitized() or gateway.memory_kib("VmHWM") < before + 8 * 1024
    assert upstream.effects() == []


HEADS = {
    "a long line": request_bytes("GET", "/" + "x" * 40000),
    "a long header": request_bytes("GET", "/", [("X-Long", "x" * 40000)]),
    "many headers": request_bytes("GET", "/", [(f"X-{i}", "1") for i in range(200)]),
    "a long trailer of headers": request_bytes("GET", "/", [(f"X-{i}", "x" * 500) for i in range(100)]),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_over_the_limit_is_refused(gateway, upstream, name):
    with gateway.connect() as connection:
        connection.send(HEADS[name])
        answer = connection.receive("GET")
        assert (answer.status, answer.problem) == (431, "head-too-large")
        assert connection.is_closed_by_peer()
    assert upstream.effects() == []
    fine = gateway.request("GET", "/" + "x" * 8000, [(f"X-{i}", "x" * 200) for i in range(90)])
    assert fine.status == 201


def test_an_answer_head_over_the_limit_is_no_usable_answer(gateway, upstream):
    upstream.answer = Answer(200, [(f"X-{i}", "x" * 4000) for i in range(300)])
    answer = gateway.post("/orders", "k")
    assert (answer.status, answer.problem) == (502, "outcome-unknown")
    assert gateway.request("GET", "/").status == 502


# --- Slow clients ----------------------------------------------------------------------------------


def test_a_body_that_stops_coming_is_timed_out_and_claims_nothing(start, upstream):
    gateway = start(config_for(upstream, timeouts="{body: 300ms}"))
    for framing in ([("Content-Length", "100")], [("Transfer-Encoding", "chunked")]):
        with gateway.connect() as connection:
            connection.send(request_bytes("POST", "/orders", keyed("k", *framing), b"2\r\n{}\r\n"))
            answer = connection.receive()
            assert (answer.status, answer.problem) == (408, "request-timeout")
            assert connection.is_closed_by_peer()
    assert upstream.effects() == [] and gateway.operation(SCOPE, "k").status == 404


def test_a_slow_body_that_keeps_coming_is_taken(start, upstream):
    gateway = start(config_for(upstream, timeouts="{body: 2s}"))
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", keyed("k", ("Content-Length", "30")), b""))
        for _ in range(30):
            connection.send(b"1")
            time.sleep(0.1)
        answer = connection.receive()
        assert (answer.status, answer.marker) == (201, "executed")


def test_a_head_that_does_not_end_is_cut_though_it_keeps_coming(start, upstream):
    """A thousand such clients, while others are served."""
    gateway = start(config_for(upstream, timeouts="{header: 1s}"))
    loris = [gateway.connect() for _ in range(1000)]
    chooser = selectors.DefaultSelector()
    for client in loris:
        client.send(b"POST /orders HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        chooser.register(client.sock, selectors.EVENT_READ, client)
    answers = []
    end = time.monotonic() + 60
    served = 0
    while len(answers) < 1000:
        assert time.monotonic() < end, "they are still there"
        for entry, _ in chooser.select(0):
            client = entry.data
            chooser.unregister(client.sock)
            answers.append(client.receive().status)
            client.close()
        for client in [entry.data for entry in chooser.get_map().values()]:
            try:
                client.send(b"x")
            except OSError:
                pass  # cut meanwhile: its answer is read above
        assert gateway.post("/orders", f"k-{served}").marker == "executed"
        served += 1
    assert set(answers) == {408} and served >= 2
    wait_until(lambda: gateway.metric("hapax_connections") == 0, "nothing is left of them")


def test_ten_thousand_idle_connections_leave_the_gateway_serving(start, upstream, record_property):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_500:
        pytest.skip(f"10,000 connections need 10,500 descriptors, the hard limit here is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        gateway = start(config_for(upstream))
        before = gateway.memory_kib()
        idle = []
        for i in range(10_000):
            idle.append(gateway.connect())
            if i % 10 == 0:  # some that have been used
                assert idle[-1].request("GET", "/x").status == 201
        wait_until(lambda: gateway.metric("hapax_connections") >= 10_000, "all are accepted")
        answers = at_once(8, lambda t: [gateway.post("/orders", f"k-{t}-{i}").marker for i in range(20)])
        assert {m for group in answers for m in group} == {"executed"}
        kib = gateway.memory_kib()
        record_property("rss_kib_with_10000_idle", kib)
        print(f"10,000 idle connections: {before} KiB before, {kib} KiB with them")
        assert is_sanitized() or kib - before < 64 * 1024
        for i in range(0, 10_000, 1000):
            assert idle[i].request("GET", "/x").status == 201
        for connection in idle:
            connection.close()
        wait_until(lambda: gateway.metric("hapax_connections") == 0, "all are gone")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_past_the_limit_wait_for_their_turn(start, upstream):
    gateway = start(config_for(upstream, limits="{connections: 4}", timeouts="{keepalive: 300ms}"))
    idle = [gateway.connect() for _ in range(4)]
    wait_until(lambda: gateway.metric("hapax_connections") == 4, "the places are taken")
    answers = at_once(8, lambda i: gateway.post("/orders", f"k-{i}"))
    assert {a.marker for a in answers} == {"executed"}
    assert all(c.is_closed_by_peer() for c in idle)


def test_idle_connections_are_closed_after_their_time(start, upstream):
    gateway = start(config_for(upstream, timeouts="{keepalive: 200ms}"))
    with gateway.connect() as unused, gateway.connect() as used:
        assert used.request("GET", "/x").status == 201
        assert unused.is_closed_by_peer() and used.is_closed_by_peer()


# --- Operations ------------------------------------------------------------------------------------


def test_operations_past_the_running_limit_are_refused_until_one_ends(start, upstream):
    gateway = start(config_for(upstream, running="2"))
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    running = [in_background(gateway.post, "/orders", f"k-{i}") for i in range(2)]
    wait_until(lambda: len(upstream.effects()) == 2, "two run")
    answer = gateway.post("/orders", "k-2")
    assert (answer.status, answer.problem, answer.marker) == (429, "overloaded", "rejected")
    assert int(answer.get("Retry-After")) >= 1 and answer.json()["retryable"] is True
    release.set()
    for thread, results in running:
        thread.join()
        assert results[0].marker == "executed"
    assert gateway.post("/orders", "k-2").marker == "executed"
    assert gateway.metric("hapax_requests_total", route="orders", outcome="overloaded") == 1


@pytest.mark.parametrize("limits, waiting", [("{waiters_per_key: 2}", 2), ("{waiters: 3}", 3)])
def test_duplicates_past_the_waiting_limit_are_told_at_once(start, upstream, limits, waiting):
    gateway = start(config_for(upstream, limits=limits, wait="10m"))
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    first, _ = in_background(gateway.post, "/orders", "k")
    wait_until(upstream.effects, "the first runs")
    duplicates = [in_background(gateway.post, "/orders", "k") for _ in range(6)]
    wait_until(lambda: sum(len(r) for _, r in duplicates) == 6 - waiting, "the others are told")
    assert gateway.metric("hapax_waiters") == waiting
    for _, results in duplicates:
        assert not results or (results[0].status, results[0].problem) == (409, "in-progress")
    release.set()
    first.join()
    for thread, _ in duplicates:
        thread.join()
    assert sorted(r[0].status for _, r in duplicates) == [201] * waiting + [409] * (6 - waiting)
    assert len(upstream.effects()) == 1


def test_waiters_that_fill_the_queue_do_not_hinder_what_they_wait_for(start, upstream):
    gateway = start(config_for(upstream, limits="{queue: 4}", wait="10m"))
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    first, firsts = in_background(gateway.post, "/orders", "k")
    wait_until(upstream.effects, "the first runs")
    duplicates = [in_background(gateway.post, "/orders", "k") for _ in range(8)]
    wait_until(lambda: gateway.metric("hapax_queued") == 4 and sum(len(r) for _, r in duplicates) == 4, "the queue is full")
    refused = gateway.post("/orders", "other")
    assert (refused.status, refused.problem, refused.marker) == (503, "overloaded", "rejected")
    release.set()
    first.join()
    assert (firsts[0].status, firsts[0].marker) == (201, "executed")
    for thread, _ in duplicates:
        thread.join()
    told = sorted((r[0].status, r[0].marker) for _, r in duplicates)
    assert told == [(201, "attached")] * 4 + [(503, "rejected")] * 4
    assert len(upstream.effects()) == 1


def test_bodies_past_the_memory_limit_are_refused_until_there_is_room(start, upstream):
    gateway = start(config_for(upstream, limits="{body_memory: 64KiB}", body_size="64KiB", keep_body="16KiB"))
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    body = b'"' + b"x" * 40000 + b'"'
    first, firsts = in_background(gateway.post, "/orders", "k-1", body)
    wait_until(upstream.effects, "the first runs")
    answer = gateway.post("/orders", "k-2", body)
    assert (answer.status, answer.problem, answer.marker) == (503, "overloaded", "rejected")
    assert int(answer.get("Retry-After")) >= 1
    release.set()
    first.join()
    assert firsts[0].marker == "executed"
    wait_until(lambda: gateway.metric("hapax_body_bytes") == 0, "the body is let go")
    assert gateway.post("/orders", "k-2", body).marker == "executed"
    assert [r.get("Idempotency-Key") for r in upstream.effects()] == ["k-1", "k-2"]


def test_answers_past_the_memory_limit_still_reach_their_clients(start, upstream):
    gateway = start(config_for(upstream, limits="{body_memory: 64KiB}", body_size="1KiB", keep_body="1MiB"))
    release = threading.Event()
    upstream.answer = Answer(200, [], b"a" * 500_000, wait=release)
    asked = [in_background(gateway.post, "/orders", f"k-{i}") for i in range(4)]
    wait_until(lambda: len(upstream.effects()) == 4, "all of them run: no request finds the memory full of answers")
    release.set()
    for thread, _ in asked:
        thread.join()
    answers = [found[0] for _, found in asked]
    assert {(a.status, len(a.body)) for a in answers} == {(200, 500_000)}
    assert gateway.post("/orders", "k-0").marker == "replayed"  # with its answer, or as answer-not-kept
    assert len(upstream.effects()) == 4
    wait_until(lambda: gateway.metric("hapax_body_bytes") == 0, "nothing is kept")


def fill_with_an_unfinished_upload(gateway, size):
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/orders", keyed("unfinished", ("Content-Length", str(size + 1))), b"x" * size))
    wait_until(lambda: gateway.metric("hapax_body_bytes") == size, "the request bodies' part is full")
    return connection


@pytest.mark.parametrize("answer_bytes", [20, 60_000], ids=["small", "larger"])
def test_clients_that_only_upload_cost_nobody_an_answer(start, upstream, answer_bytes):
    gateway = start(config_for(upstream, limits="{body_memory: 256KiB}", body_size="256KiB"))
    upstream.answer = Answer(201, [], b"a" * answer_bytes)
    with fill_with_an_unfinished_upload(gateway, (256 << 10) - 1):
        assert gateway.post("/orders", "k", body=b"").marker == "executed"
        again = gateway.post("/orders", "k", body=b"")
    assert (again.status, again.marker, len(again.body)) == (201, "replayed", answer_bytes)
    assert len(upstream.effects()) == 1


def test_what_finds_no_room_for_its_answer_is_not_sent(start, upstream):
    gateway = start(config_for(upstream, limits="{body_memory: 64KiB}", body_size="64KiB"))
    release = threading.Event()
    upstream.answer = Answer(wait=release)
    asked = [in_background(gateway.post, "/orders", f"k-{i}", b"") for i in range(5)]  # 16 KiB each: 64 and a quarter
    wait_until(lambda: len(upstream.effects()) == 5, "they run")
    refused = gateway.post("/orders", "one-more", b"")
    assert (refused.status, refused.problem, refused.marker) == (503, "overloaded", "rejected")
    assert gateway.operation(SCOPE, "one-more").status == 404
    release.set()
    for thread, _ in asked:
        thread.join()
    assert {found[0].marker for _, found in asked} == {"executed"}
    wait_until(lambda: gateway.metric("hapax_body_bytes") == 0, "nothing is reserved any more")
    assert gateway.post("/orders", "one-more", b"").marker == "executed"
    assert gateway.metric("hapax_requests_total", route="orders", outcome="overloaded") == 1


# --- Expectations, upgrades ------------------------------------------------------------------------

EXPECT = ("Expect", "100-continue")


def test_a_body_is_asked_for_with_100_continue(gateway, upstream):
    with gateway.connect() as connection:
        for i in range(2):
            connection.send(request_bytes("POST", "/orders", keyed(f"k-{i}", EXPECT, ("Content-Length", "2"))))
            assert connection.reader.head().status == 100
            connection.send(b"{}")
            answer = connection.receive()
            assert (answer.status, answer.marker, answer.interim) == (201, "executed", [])
    assert [r.body for r in upstream.effects()] == [b"{}", b"{}"]


EARLY = {
    "no key": (JSON + [EXPECT, ("Content-Length", "2")], 400, "key-missing"),
    "bad key": (keyed("undefined", EXPECT, ("Content-Length", "2")), 400, "key-invalid"),
    "too large": (keyed("k", EXPECT, ("Content-Length", "999999999")), 413, "body-too-large"),
    "another expectation": (keyed("k", ("Expect", "a-miracle"), ("Content-Length", "2")), 417, "expectation-unknown"),
}


@pytest.mark.parametrize("name", EARLY)
def test_a_request_that_can_not_be_taken_is_refused_before_its_body(gateway, upstream, name):
    headers, status, problem = EARLY[name]
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", headers))
        answer = connection.receive()
        assert (answer.status, answer.problem, answer.interim) == (status, problem, [])
    assert upstream.effects() == []


def test_http_1_0_clients_are_not_sent_100_continue(gateway):
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", keyed("k", EXPECT), b"{}", version="HTTP/1.0"))
        answer = connection.receive()
        assert (answer.status, answer.interim) == (201, [])


@pytest.mark.parametrize("fields, status", [
    ([("Expect", "a-miracle")], 417), ([("Connection", "Upgrade"), ("Upgrade", "websocket")], 501)])
def test_what_the_head_alone_rules_out_is_marked_where_a_route_protects(start, upstream, fields, status):
    gateway = start(config_for(upstream, path="/orders"))
    for method, target, marker in (("POST", "/orders", "rejected"), ("PUT", "/orders/1", "rejected"), ("GET", "/orders", None),
                                   ("POST", "/elsewhere", None)):
        answer = gateway.request(method, target, fields)
        assert (answer.status, answer.marker) == (status, marker), (method, target)
    assert upstream.effects() == []


@pytest.mark.parametrize("request_head", [
    request_bytes("GET", "/ws", [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]),
    b"CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n\r\n",
])
def test_upgrades_and_tunnels_are_refused(gateway, upstream, request_head):
    with gateway.connect() as connection:
        connection.send(request_head)
        answer = connection.receive("GET")
        assert (answer.status, answer.problem) == (501, "upgrade-unsupported")
        assert connection.is_closed_by_peer()
    assert upstream.effects() == []


def test_more_answers_than_the_cache_may_hold_are_replayed_from_the_store(start, upstream):
    gateway = start(config_for(upstream, limits="{replay_cache: 1MiB}"))
    upstream.answer = Answer(200, [], b"a" * 20_000)

    def client(c):
        with gateway.connect() as connection:
            for i in range(60):
                answer = connection.request("POST", "/orders", keyed(f"k-{c}-{i}"), b"{}")
                assert (answer.marker, len(answer.body)) == ("executed", 20_000)

    at_once(8, client)
    assert 0 < gateway.metric("hapax_cache_bytes") <= 1 << 20
    for c in range(8):
        assert gateway.post("/orders", f"k-{c}-0", b"{}").marker == "replayed"
    assert len(upstream.effects()) == 480
