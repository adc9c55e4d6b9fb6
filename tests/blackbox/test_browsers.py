"""Pages of another origin: what the upstream allowed an origin, a replay allows it too, and no other one."""

import threading

import pytest
from harness import Answer, config_for, wait_until

SHOP = "https://shop.test"
ALLOWED = [("Access-Control-Allow-Credentials", "true"), ("access-control-expose-headers", "Location"), ("Vary", "Origin")]


def from_page(gateway, origin, key="k"):
    lines = [("Origin", o) for o in ([origin] if isinstance(origin, str) else origin or [])]
    return gateway.post("/orders", key, headers=lines)


def allowed(answer):
    return sorted((n.lower(), v) for n, v in answer.headers if n.lower().startswith("access-control-")
                  and not v.startswith("Idempotency-Status"))


@pytest.fixture
def first(gateway, upstream):
    upstream.answer = Answer(201, [("Access-Control-Allow-Origin", SHOP), *ALLOWED], b"paid")
    return from_page(gateway, SHOP)


@pytest.mark.parametrize("cached", [True, False], ids=["from memory", "from the store"])
def test_a_replay_is_readable_to_the_page_that_may_read_the_first_answer(first, gateway, upstream, cached):
    if not cached:
        gateway.stop()
        gateway.start()
    again = from_page(gateway, SHOP)
    assert (again.marker, again.body, len(upstream.effects())) == ("replayed", b"paid", 1)
    assert allowed(again) == allowed(first) and ("access-control-allow-origin", SHOP) in allowed(again)
    assert again.all("Access-Control-Expose-Headers")[0].startswith("Idempotency-Status")


@pytest.mark.parametrize("origin", [
    None, "https://evil.test", "https://shop.test.evil.test", "https://shop.tes", "HTTPS://SHOP.TEST", "https://shop.test:443",
    "null", "*", "", [SHOP, SHOP], [SHOP, "https://evil.test"]], ids=str)
def test_what_one_origin_may_no_other_is_told(first, gateway, origin):
    again = from_page(gateway, origin)
    assert (again.marker, again.body, again.get("Vary")) == ("replayed", b"paid", "Origin")
    assert allowed(again) == []


@pytest.mark.parametrize("origin", [None, SHOP, "null"])
def test_what_everybody_may_everybody_is_told(gateway, upstream, origin):
    upstream.answer = Answer(201, [("Access-Control-Allow-Origin", "*"), ("Access-Control-Max-Age", "9")], b"paid")
    from_page(gateway, SHOP)
    assert allowed(from_page(gateway, origin)) == [("access-control-allow-origin", "*"), ("access-control-max-age", "9")]


@pytest.mark.parametrize("lines", [[], [SHOP, SHOP], [SHOP, "*"], [""], ["https://a.test, " + SHOP]], ids=str)
def test_an_answer_that_allows_nobody_clearly_allows_nobody(gateway, upstream, lines):
    upstream.answer = Answer(201, [("Access-Control-Allow-Origin", line) for line in lines] + ALLOWED, b"paid")
    from_page(gateway, SHOP)
    assert allowed(from_page(gateway, SHOP)) == []


def test_who_waits_for_the_first_one_reads_its_answer_by_the_same_rule(gateway, upstream):
    release = threading.Event()
    upstream.answer = Answer(201, [("Access-Control-Allow-Origin", SHOP)], b"paid", wait=release)
    answers = {}
    threads = []

    def ask(origin):
        answers[origin] = from_page(gateway, origin)

    for n, origin in enumerate([SHOP + "/first", SHOP, "https://evil.test"]):
        threads.append(threading.Thread(target=ask, args=(origin,)))
        threads[-1].start()
        wait_until(lambda n=n: len(upstream.effects()) == 1 and gateway.metric("hapax_waiters") == n, "it is there")
    release.set()
    for thread in threads:
        thread.join()
    assert answers[SHOP].marker == answers["https://evil.test"].marker == "attached"
    assert allowed(answers[SHOP]) == [("access-control-allow-origin", SHOP)] and allowed(answers["https://evil.test"]) == []
