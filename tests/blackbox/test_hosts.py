"""What a request's Host decides, and what it does not."""

from harness import Answer, config_for


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
