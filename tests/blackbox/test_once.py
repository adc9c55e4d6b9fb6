"""The heart of it: one effect per key, equal answers, whatever the client does."""

import gzip
import json
import threading
import zlib

import brotli
import pytest
from harness import Answer, Upstream, at_once, config_for, request_bytes, wait_until

JSON = [("Content-Type", "application/json")]


def same_answer(first, second):
    """Everything but what may differ: the markers and what the server says for each connection."""

    def kept(message):
        ours = {"date", "connection", "idempotency-status", "idempotent-replayed", "idempotency-expires"}
        return message.status, [h for h in message.headers if h[0].lower() not in ours], message.body

    assert kept(first) == kept(second)


def test_duplicate_after_success_is_replayed(gateway, upstream):
    upstream.answer = Answer(201, [("Location", "/orders/7"), ("ETag", '"v1"')], b'{"id":7}')
    first = gateway.post("/orders", "k-1")
    second = gateway.post("/orders", "k-1")
    assert (first.status, first.marker, first.get("Idempotent-Replayed")) == (201, "executed", None)
    assert (second.status, second.marker, second.get("Idempotent-Replayed")) == (201, "replayed", "true")
    same_answer(first, second)
    assert second.get("Location") == "/orders/7" and second.get("Idempotency-Expires").endswith(" GMT")
    assert len(upstream.effects()) == 1


def test_sixty_four_at_once_make_one_effect_and_sixty_four_equal_answers(gateway, upstream):
    upstream.answer = lambda r: Answer(201, [], b'{"number":%d}' % r.number, delay_s=1.0)
    answers = at_once(64, lambda _: gateway.post("/orders", "k-64"))
    assert len(upstream.effects()) == 1
    assert {(a.status, a.body) for a in answers} == {(201, b'{"number":1}')}
    markers = sorted(a.marker for a in answers)
    assert markers.count("executed") == 1 and set(markers) <= {"executed", "attached", "replayed"}
    assert markers.count("attached") >= 32
    assert gateway.metric("hapax_requests_total", route="orders", outcome="executed") == 1


def test_other_content_during_the_first_is_refused(gateway, upstream):
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    first = threading.Thread(target=gateway.post, args=("/orders", "k-2"))
    first.start()
    wait_until(upstream.effects, "the first runs")
    other = gateway.post("/orders", "k-2", b'{"amount":900}')
    release.set()
    first.join()
    assert (other.status, other.problem, other.marker) == (422, "key-reused", "rejected")
    assert other.json()["first_seen"] and other.json()["retryable"] is False
    assert len(upstream.effects()) == 1


def test_other_content_after_the_first_is_refused_and_the_first_stays(gateway, upstream):
    first = gateway.post("/orders", "k-3")
    other = gateway.post("/orders", "k-3", b'{"amount":900}')
    again = gateway.post("/orders", "k-3")
    assert (other.status, other.problem) == (422, "key-reused")
    same_answer(first, again)
    assert len(upstream.effects()) == 1


def chunked(body):
    half = len(body) // 2
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:half], body[half:]) if p) + b"0\r\n\r\n"


def test_one_request_in_all_its_forms_is_one_operation(gateway, upstream):
    body = b'{"amount":100,"lines":[{"sku":"a","n":2}],"note":"caf\xc3\xa9"}'
    reordered = b' {\n "note" : "caf\\u00e9", "lines":[ {"n":2.0,"sku":"a"} ], "amount":1e2 } '
    key = [("Idempotency-Key", "k-forms")]
    first = gateway.request("POST", "/orders", JSON + key, body)
    assert (first.status, first.marker) == (201, "executed")
    forms = {
        "reordered": (JSON, reordered, "HTTP/1.1"),
        "media type parameter": ([("Content-Type", "Application/JSON; charset=utf-8")], body, "HTTP/1.1"),
        "gzip": (JSON + [("Content-Encoding", "gzip")], gzip.compress(body), "HTTP/1.1"),
        "deflate": (JSON + [("Content-Encoding", "deflate")], zlib.compress(body), "HTTP/1.1"),
        "br": (JSON + [("Content-Encoding", "br")], brotli.compress(body), "HTTP/1.1"),
        "chunked": (JSON + [("Transfer-Encoding", "chunked")], chunked(body), "HTTP/1.1"),
        "HTTP/1.0": (JSON, body, "HTTP/1.0"),
    }
    for name, (headers, form, version) in forms.items():
        answer = gateway.request("POST", "/orders", headers + key, form, version=version)
        assert (name, answer.status, answer.marker) == (name, 201, "replayed")
        same_answer(first, answer)
    assert len(upstream.effects()) == 1


def test_tenants_paths_and_methods_do_not_meet(gateway, upstream):
    upstream.answer = lambda r: Answer(201, [], b"%d" % r.number)
    variants = [
        ("POST", "/orders", [("Authorization", "Bearer alice")]),
        ("POST", "/orders", [("Authorization", "Bearer bob")]),
        ("POST", "/orders", []),
        ("POST", "/refunds", [("Authorization", "Bearer alice")]),
        ("PATCH", "/orders", [("Authorization", "Bearer alice")]),
    ]
    for expected in ("executed", "replayed"):
        answers = [gateway.request(m, t, JSON + h + [("Idempotency-Key", "same")], b"{}") for m, t, h in variants]
        assert [a.marker for a in answers] == [expected] * 5
        assert [a.body for a in answers] == [b"1", b"2", b"3", b"4", b"5"]
    assert len(upstream.effects()) == 5


def test_the_query_is_content_and_its_order_is_not(gateway, upstream):
    first = gateway.post("/orders?dry=1&a=2", "k-q")
    reordered = gateway.post("/orders?a=2&dry=1", "k-q")
    real = gateway.post("/orders", "k-q")
    assert (first.marker, reordered.marker, real.problem) == ("executed", "replayed", "key-reused")


ANSWERS = {
    "204": Answer(204, [("X-Note", "nothing")], b""),
    "304": Answer(304, [("ETag", '"v3"')], b""),
    "empty 200": Answer(200, [], b""),
    "two headers of one name with commas": Answer(
        200, [("X-Link", "</a>; rel=next, </b>; rel=prev"), ("X-Other", "1"), ("X-Link", "Wed, 21 Oct 2026 07:28:00 GMT")], b"x"),
    "gzip": Answer(200, [("Content-Encoding", "gzip"), ("Content-Type", "application/json")], gzip.compress(b'{"a":1}')),
    "bytes": Answer(200, [("Content-Type", "application/octet-stream")], bytes(range(256))),
    "chunked": Answer(202, [("Content-Type", "text/plain")], b"in pieces", chunked=True),
    "redirect": Answer(303, [("Location", "/orders/1")], b""),
    "404": Answer(404, [("Content-Type", "text/plain")], b"no such thing"),
    "500": Answer(500, [("Content-Type", "text/html")], b"<h1>oops</h1>"),
    "1 MiB": Answer(200, [], b"m" * (1 << 20)),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_replayed_exactly(gateway, upstream, name):
    upstream.answer = ANSWERS[name]
    first = gateway.post("/orders", "k-exact")
    second = gateway.post("/orders", "k-exact")
    assert (first.status, first.marker, second.marker) == (upstream.answer.status, "executed", "replayed")
    assert first.body == upstream.answer.body
    for header in upstream.answer.headers:
        assert header in first.headers
    same_answer(first, second)
    assert len(upstream.effects()) == 1


def test_a_replay_survives_a_restart_of_the_gateway(gateway, upstream):
    upstream.answer = ANSWERS["two headers of one name with commas"]
    first = gateway.post("/orders", "k-restart")
    gateway.stop()
    gateway.start()
    second = gateway.post("/orders", "k-restart")
    assert second.marker == "replayed"
    same_answer(first, second)
    assert len(upstream.effects()) == 1


def test_cookies_dates_and_rate_limits_are_not_replayed(gateway, upstream):
    upstream.answer = Answer(200, [
        ("Set-Cookie", "sid=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"), ("X-RateLimit-Remaining", "3"),
        ("WWW-Authenticate", "Basic"), ("Access-Control-Allow-Origin", "https://a.test"),
        ("Connection", "X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "timeout=5"), ("X-Kept", "yes"),
        ("Idempotency-Status", "forged"), ("Idempotent-Replayed", "true"), ("Hapax-TTL", "60")], b"x")
    first = gateway.post("/orders", "k-cookie")
    second = gateway.post("/orders", "k-cookie")
    assert first.all("Idempotency-Status") == ["executed"] and first.get("Idempotent-Replayed") is None
    assert first.get("Set-Cookie") and first.get("X-RateLimit-Remaining") == "3"
    assert (second.marker, second.get("X-Kept"), second.body) == ("replayed", "yes", b"x")
    for gone in ("Set-Cookie", "X-RateLimit-Remaining", "WWW-Authenticate", "Access-Control-Allow-Origin", "X-Hop",
                 "Keep-Alive", "Hapax-TTL"):
        assert second.get(gone) is None, gone
    assert first.get("X-Hop") is None and len(first.all("Date")) == 1


def test_cookies_are_replayed_where_a_route_asks_for_it(start, upstream):
    gateway = start(config_for(upstream, keep_set_cookie="true"))
    upstream.answer = Answer(200, [("Set-Cookie", "a=1, b"), ("Set-Cookie", "c=2")], b"x")
    gateway.post("/orders", "k")
    assert gateway.post("/orders", "k").all("Set-Cookie") == ["a=1, b", "c=2"]


def test_an_answer_too_large_to_keep_leaves_a_tombstone(gateway, upstream):
    upstream.answer = Answer(200, [("Content-Type", "text/csv")], b"c" * (5 << 20))
    first = gateway.post("/orders", "k-5M")
    assert (first.status, first.marker, len(first.body)) == (200, "executed", 5 << 20)
    for _ in range(2):
        again = gateway.post("/orders", "k-5M")
        assert (again.status, again.problem, again.json()["original_status"]) == (409, "answer-not-kept", 200)
    gateway.kill()
    gateway.start()
    assert gateway.post("/orders", "k-5M").problem == "answer-not-kept"
    assert len(upstream.effects()) == 1


def test_a_large_answer_without_a_length_is_streamed_and_not_repeated(gateway, upstream):
    upstream.answer = Answer(200, [], b"d" * (3 << 20), chunked=True)
    first = gateway.post("/orders", "k-3M")
    assert (first.status, len(first.body)) == (200, 3 << 20)
    assert gateway.post("/orders", "k-3M").problem == "answer-not-kept"
    assert len(upstream.effects()) == 1


def test_duplicates_that_wait_for_an_answer_too_large_to_keep_learn_so(gateway, upstream):
    upstream.answer = Answer(200, [], b"e" * (2 << 20), delay_s=0.5)
    answers = at_once(8, lambda _: gateway.post("/orders", "k-big"))
    assert len(upstream.effects()) == 1
    assert sorted(a.status for a in answers) == [200] + [409] * 7
    assert {a.problem for a in answers if a.status == 409} == {"answer-not-kept"}


@pytest.mark.parametrize("status", [401, 403, 408, 421, 425, 429, 503])
def test_an_answer_that_means_not_executed_frees_the_key(gateway, upstream, status):
    upstream.answer = lambda r: Answer(status if r.number == 1 else 201, [], b"%d" % r.number)
    first = gateway.post("/orders", "k-free")
    second = gateway.post("/orders", "k-free")
    third = gateway.post("/orders", "k-free")
    assert (first.status, first.marker, first.body) == (status, "released", b"1")
    assert (second.status, second.marker, second.body) == (201, "executed", b"2")
    assert (third.marker, third.body) == ("replayed", b"2")


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500, 501])
def test_an_answer_that_means_executed_is_final(gateway, upstream, status):
    upstream.answer = lambda r: Answer(status, [], b"%d" % r.number)
    assert [gateway.post("/orders", "k").body for _ in range(3)] == [b"1"] * 3
    assert len(upstream.effects()) == 1


def test_the_upstream_says_itself_what_its_answer_means(gateway, upstream):
    told = iter(["released", "unknown"])
    upstream.answer = lambda r: Answer(200, [("Hapax-Outcome", next(told, "done"))], b"%d" % r.number)
    first = gateway.post("/orders", "k-told")
    second = gateway.post("/orders", "k-told")
    third = gateway.post("/orders", "k-told")
    assert (first.status, first.marker, first.get("Hapax-Outcome")) == (200, "released", None)
    assert (second.status, second.problem) == (502, "outcome-unknown")
    assert (third.status, third.problem, third.marker) == (409, "outcome-unknown", "held")
    assert len(upstream.effects()) == 2


def test_an_upstream_that_contradicts_itself_leaves_the_outcome_unknown(gateway, upstream):
    upstream.answer = Answer(200, [("Hapax-Outcome", "released"), ("Hapax-Outcome", "done")])
    assert gateway.post("/orders", "k").problem == "outcome-unknown"
    assert gateway.post("/orders", "k").marker == "held"
    assert len(upstream.effects()) == 1


def test_a_route_decides_what_statuses_mean(start, upstream):
    gateway = start(config_for(upstream, outcome="{429: done, 5xx: released}"))
    upstream.answer = lambda r: Answer(429 if r.target == "/a" else 500, [], b"%d" % r.number)
    assert [gateway.post("/a", "k").body for _ in range(2)] == [b"1", b"1"]
    assert [gateway.post("/b", "k").body for _ in range(2)] == [b"2", b"3"]


def test_the_upstream_shortens_how_long_an_answer_is_kept(gateway, upstream):
    upstream.answer = lambda r: Answer(200, [("Hapax-TTL", "200ms")], b"%d" % r.number)
    assert gateway.post("/orders", "k-ttl").body == b"1"
    wait_until(lambda: gateway.post("/orders", "k-ttl").body == b"2", "the answer expires")


def test_waiting_is_bounded_by_the_route(start, upstream):
    gateway = start(config_for(upstream, wait="0"))
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    first = threading.Thread(target=gateway.post, args=("/orders", "k-w"))
    first.start()
    wait_until(upstream.effects, "the first runs")
    second = gateway.post("/orders", "k-w")
    assert (second.status, second.problem, second.marker) == (409, "in-progress", "in-progress")
    assert int(second.get("Retry-After")) >= 1 and second.json()["retryable"] is True
    release.set()
    first.join()
    assert gateway.post("/orders", "k-w").marker == "replayed"
    assert len(upstream.effects()) == 1


def test_the_upstream_gets_the_key_the_attempt_and_where_it_came_from(gateway, upstream):
    gateway.post("/orders?x=%2F", "k-down", headers=[
        ("X-Forwarded-For", "203.0.113.9"), ("Idempotency-Attempt", "9"), ("Connection", "keep-alive, X-Private"),
        ("X-Private", "1"), ("X-Multi", "a"), ("X-Multi", "b"), ("TE", "trailers")])
    request = upstream.effects()[0]
    assert request.target == "/orders?x=%2F"
    assert request.all("Idempotency-Key") == ["k-down"] and request.all("Idempotency-Attempt") == ["1"]
    assert request.get("X-Forwarded-For") == "203.0.113.9, 127.0.0.1"
    assert request.get("X-Forwarded-Proto") == "http" and request.get("X-Forwarded-Host") == "gateway.test"
    assert request.all("X-Multi") == ["a", "b"]
    assert request.get("X-Private") is None and request.get("TE") is None
    version, trace, span, _ = request.get("traceparent").split("-")
    assert (version, len(trace), len(span)) == ("00", 32, 16)


@pytest.mark.parametrize("rule, proto, host", [
    ("set", ["http"], ["gateway.test"]), ("keep", ["https"], ["shop.example", "inner.example"])])
def test_a_proxy_in_front_says_how_the_client_came_where_the_route_believes_it(start, upstream, rule, proto, host):
    gateway = start(config_for(upstream, forwarded=rule))
    came = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "shop.example"), ("x-forwarded-host", "inner.example"),
            ("X-Forwarded-For", "203.0.113.9")]
    gateway.post("/orders", "k", headers=came)
    gateway.request("GET", "/", came)
    gateway.post("/orders", "k-2")
    for request in upstream.effects()[:2]:
        assert (request.all("X-Forwarded-Proto"), request.all("X-Forwarded-Host")) == (proto, host)
        assert request.all("X-Forwarded-For") == ["203.0.113.9, 127.0.0.1"]
    bare = upstream.effects()[2]
    assert (bare.all("X-Forwarded-Proto"), bare.all("X-Forwarded-Host")) == (["http"], ["gateway.test"])


def test_a_key_from_the_body_goes_upstream_in_quotes(start, upstream):
    gateway = start(config_for(upstream, key="'{json:/order_id}|{json:/step}'"))
    body = json.dumps({"order_id": "A|1", "step": 2}).encode()
    first = gateway.post("/orders", None, body, headers=[("Idempotency-Key", "not-the-key")])
    assert first.marker == "executed"
    assert upstream.effects()[0].all("Idempotency-Key") == ['"\\"A|1\\"|2"']
    assert gateway.post("/orders", None, body).marker == "replayed"


def test_markers_are_exposed_to_browsers(gateway):
    answer = gateway.post("/orders", "k", headers=[("Origin", "https://shop.test")])
    exposed = answer.get("Access-Control-Expose-Headers")
    assert {"Idempotency-Status", "Idempotent-Replayed", "Idempotency-Expires"} <= set(exposed.split(", "))


def test_store_and_operator_see_the_scope_and_key_as_text(gateway):
    gateway.post("/orders", "k-look")
    found = gateway.operation("orders POST /orders -", "k-look")
    assert (found.status, found.json()["state"], found.json()["attempt"]) == (200, "done", 1)
    assert found.json()["answer"]["status"] == 201
    assert gateway.operation("orders POST /orders -", "other").status == 404


def test_keys_bodies_and_credentials_do_not_reach_the_log_or_metrics(start, upstream):
    gateway = start(config_for(upstream, log="{level: debug}"))
    upstream.answer = lambda r: Answer(action="close") if r.number == 1 else Answer()
    for i in range(3):
        gateway.post("/orders", "k-secret-key", b'{"card":"4242424242424242"}', [("Authorization", "Bearer s3cr3t")])
        gateway.post("/orders", "k secret-{{key}}", b"x", [("Authorization", "Bearer s3cr3t")])
    text = gateway.log_text() + gateway.admin("/metrics").body.decode()
    for secret in ("k-secret", "secret-{{key", "4242", "s3cr3t"):
        assert secret not in text
    assert gateway.metric("hapax_requests_total", route="orders", outcome="held") == 2


def test_many_keys_pipelined_and_kept_alive_stay_apart(gateway, upstream):
    upstream.answer = lambda r: Answer(200, [], r.get("Idempotency-Key").encode())
    with gateway.connect() as connection:
        for start_at in (0, 50):
            connection.send(b"".join(
                request_bytes("POST", "/orders", JSON + [("Idempotency-Key", f"p-{i}")], b"{}")
                for i in range(start_at, start_at + 50)))
            answers = [connection.receive() for _ in range(50)]
            assert [a.body for a in answers] == [f"p-{i}".encode() for i in range(start_at, start_at + 50)]
    assert len(upstream.effects()) == 100


def test_a_key_of_one_route_is_another_key_on_another_route(start, upstream):
    other = Upstream()
    try:
        gateway = start(f"""routes:
  - {{name: orders, path: /orders, to: "{upstream.url}"}}
  - {{name: mail, path: /mail, to: "{other.url}/base"}}
  - {{name: host, path: /orders, host: api.test, to: "{other.url}"}}
""")
        assert gateway.post("/orders/1", "k").marker == "executed"
        assert gateway.post("/mail", "k").marker == "executed"
        assert gateway.post("/orders/1", "k", host="API.test:80").marker == "executed"
        assert (gateway.post("/nowhere", "k").status, gateway.post("/ordersx", "k").problem) == (404, "no-route")
        assert [r.target for r in upstream.effects()] == ["/orders/1"]
        assert [r.target for r in other.effects()] == ["/base/mail", "/orders/1"]
    finally:
        other.close()
