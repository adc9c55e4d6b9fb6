"""What a request's Host decides, and what it does not."""

import pytest
from harness import Answer, config_for

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
