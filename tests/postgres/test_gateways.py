"""Several gateways on one database."""

from harness import at_once, config_for


def test_two_gateways_execute_a_key_once(database, upstream, start):
    gateways = [start(config_for(upstream), name, store=database) for name in ("a", "b")]
    answers = at_once(16, lambda i: gateways[i % 2].post("/orders", "one", b'{"amount":1}'))
    assert {a.status for a in answers} == {201}
    assert len({a.body for a in answers}) == 1
    assert len(upstream.effects("/orders")) == 1
