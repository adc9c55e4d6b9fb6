"""What a request's Host decides, and what it does not."""

import pytest
from harness import Answer, Connection, config_for

BODY = b'{"amount":100}'


def post(gateway, host, key="k"):
    return gateway.post("/orders", key, headers=[("Host", host)])


def names_its_host(request):
    return Answer(201, [], (request.get("Host") or "none").encode())


def test_hosts_that_share_a_route_share_keys(gateway, upstream):
    upstream.answer = names_its_host
    assert post(gateway, "a.example").marker == "executed"
    other = post(gateway, "b.example")
    assert (other.marker, other.body) == ("replayed", b"a.example")


def test_the_host_as_the_tenant_keeps_keys_apart(start, upstream):
    gateway = start(config_for(upstream, tenant="header:Host"))
    upstream.answer = names_its_host
    for marker in ("executed", "replayed"):
        for host in ("a.example", "b.example", "b.example:8080"):
            answer = post(gateway, host)
            assert (answer.marker, answer.body) == (marker, host.encode())
    assert [r.get("Host") for r in upstream.effects()] == ["a.example", "b.example", "b.example:8080"]


def test_routes_of_their_own_keep_hosts_keys_apart(start, upstream):
    routes = "".join(f"  - {{name: {name}, host: {name}.example, path: /, to: '{upstream.url}'}}\n" for name in "ab")
    gateway = start("routes:\n" + routes)
    upstream.answer = names_its_host
    for marker in ("executed", "replayed"):
        for host in ("a.example", "b.example"):
            answer = post(gateway, host)
            assert (answer.marker, answer.body) == (marker, host.encode())
    assert len(upstream.effects()) == 2


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_an_empty_host_is_as_good_as_none(gateway, upstream, method):
    lines = [("Host", ""), ("Content-Type", "application/json"), ("Idempotency-Key", "k")]
    answer = gateway.request(method, "/orders", lines, BODY if method == "POST" else b"")
    assert (answer.status, answer.marker) == (201, "executed" if method == "POST" else None)
    sent = upstream.effects()[0]
    assert sent.all("Host") == [f"127.0.0.1:{upstream.port}"] and sent.get("X-Forwarded-Host") is None


def test_options_of_the_whole_server_is_answered_by_the_gateway(gateway, upstream):
    with gateway.connect() as connection:
        for target in ("*", "http://gateway.test"):
            answer = connection.request("OPTIONS", target)
            assert (answer.status, answer.body, answer.marker) == (204, b"", None)
    assert upstream.effects() == []


HERE = ["localhost", "LocalHost:8081", "127.0.0.1", "127.9.9.9:1", "[::1]:8081", "[::1]"]
ELSEWHERE = ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1:8081",
             "[2001:db8::1]:8081", "x" * 200]


def test_no_page_under_another_name_reads_the_admin_listener(gateway):
    for host in HERE:
        assert gateway.admin("/healthz", host=host).status == 200, host
    for host in ELSEWHERE:
        for target in ("/metrics", "/v1/operations?id=" + "0" * 32, "/nothing"):
            answer = gateway.admin(target, host=host)
            assert (answer.status, answer.json()["title"]) == (421, "Misdirected request"), (host, target)


@pytest.mark.parametrize("head", [b"GET /healthz HTTP/1.0", b"GET /healthz HTTP/1.1\r\nHost:"], ids=["absent", "empty"])
def test_a_request_without_a_host_is_answered_by_the_admin_listener(gateway, head):
    with Connection(gateway.admin_port) as connection:
        connection.send(head + b"\r\n\r\n")
        assert connection.receive("GET").status == 200
