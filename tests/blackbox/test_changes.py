"""What a change of the configuration does to keys that are alive, as docs/OPERATIONS.md says ("Change a configuration")."""

import pytest
from harness import Answer, config_for

BODY = b'{"order": {"id": 7}, "sent_at": 1}'
AUTHORIZED = [("Authorization", "Bearer A"), ("X-Account", "shop")]

FOUND, EXECUTED, REFUSED, MALFORMED = (201, "replayed"), (201, "executed"), (422, "rejected"), (400, "rejected")

CHANGES = [
    # before, after, (status, marker) of an unchanged retry
    ({}, {"name": "sales"}, EXECUTED),
    ({}, {"path": "/orders"}, FOUND),
    ({}, {"host": "gateway.test"}, FOUND),
    ({}, {"preserve_host": "false"}, FOUND),
    ({}, {"tenant": "none"}, EXECUTED),
    ({}, {"tenant": "header:X-Account"}, EXECUTED),
    ({"tenant": "header:X-Account"}, {"tenant": "none"}, EXECUTED),
    ({}, {"key": "json:/order/id"}, EXECUTED),
    ({}, {"key": "[json:/absent, header:Idempotency-Key]"}, FOUND),
    ({"key": "header:X-Key"}, {"key": "header:Idempotency-Key"}, FOUND),
    ({}, {"key": "header:X-Other"}, MALFORMED),
    ({}, {"key_syntax": "strict"}, MALFORMED),
    ({}, {"protect": "[PUT]"}, (201, "unprotected")),
    ({}, {"protect": "[POST, PUT]"}, FOUND),
    ({}, {"missing": "pass"}, FOUND),
    ({}, {"forward_key": "none"}, FOUND),
    ({}, {"fingerprint": "bytes"}, REFUSED),
    ({}, {"fingerprint": "{fields: [/order/id]}"}, REFUSED),
    ({}, {"fingerprint": "none"}, REFUSED),
    ({"fingerprint": "none"}, {}, REFUSED),
    ({"fingerprint": "bytes"}, {}, REFUSED),
    ({}, {"ignore": "[/sent_at]"}, REFUSED),
    ({"ignore": "[/sent_at]"}, {}, REFUSED),
    ({}, {"outcome": "{201: released}"}, FOUND),
    ({}, {"on_unknown": "retry"}, FOUND),
    ({}, {"store_down": "open"}, FOUND),
    ({}, {"ttl": "1h"}, FOUND),
    ({}, {"keep_body": "0"}, FOUND),
    ({}, {"keep_set_cookie": "true"}, FOUND),
]


@pytest.mark.parametrize("before,after,expected", CHANGES, ids=lambda value: str(value))
def test_an_unchanged_retry_after_a_reload(upstream, start, before, after, expected):
    def ask():
        answer = gateway.post("/orders", "k-1", BODY, [*AUTHORIZED, ("X-Key", "k-1")])
        return answer.status, answer.marker

    upstream.answer = lambda request: Answer(201)
    gateway = start(config_for(upstream, **before))
    assert ask() == EXECUTED
    gateway.reload(config_for(upstream, **after))
    assert ask() == expected
    assert len(upstream.effects()) == (2 if expected[0] == 201 and expected != FOUND else 1)


def test_another_upstream_does_not_hear_of_what_is_done(upstream, start):
    """`to` is no part of a key: what the old one did counts."""
    gateway = start(config_for(upstream))
    first = gateway.post("/orders", "k-1")
    gateway.reload(config_for("http://127.0.0.1:1"))  # nothing listens there
    again = gateway.post("/orders", "k-1")
    assert (again.status, again.body, again.marker) == (first.status, first.body, "replayed")


def test_a_new_ttl_is_for_new_keys(upstream, start):
    gateway = start(config_for(upstream, ttl="2h"))
    first = gateway.post("/orders", "k-1")
    gateway.reload(config_for(upstream, ttl="1h"))
    again = gateway.post("/orders", "k-1")
    assert again.get("Idempotency-Expires") == first.get("Idempotency-Expires")


def test_on_unknown_counts_at_once(upstream, start):
    upstream.answer = lambda request: Answer(504) if request.number == 1 else Answer(201)
    gateway = start(config_for(upstream))
    assert gateway.post("/orders", "k-1").marker == "unknown"
    assert gateway.post("/orders", "k-1").marker == "held"
    gateway.reload(config_for(upstream, on_unknown="retry"))
    assert gateway.post("/orders", "k-1").marker == "executed"


def test_another_store_knows_no_key(upstream, start, tmp_path):
    start(config_for(upstream)).post("/orders", "k-1")
    elsewhere = start(config_for(upstream), store=f"sqlite:{tmp_path}/other.db")
    assert elsewhere.post("/orders", "k-1").marker == "executed"
