"""What a problem document says of sending the same request again, and `hapax call`, which does what it says: where once
too often does harm it says no, where the route finds out by itself it says yes."""

import json

import pytest
from caller import BODY, Caller, in_turn, keys_seen
from harness import Answer, Connection, config_for
from test_faults import probing
from test_store_trouble import Trouble

QUICK = ["--backoff", "1ms", "--backoff-max", "1ms"]
LOST = Answer(action="close")


@pytest.fixture
def caller(tmp_path):
    return Caller(tmp_path)


def says(answer):
    """(status, type, retryable), and that Retry-After stands only where it is worth it."""
    document = answer.json()
    assert document["retryable"] or answer.get("Retry-After") is None
    return answer.status, answer.problem, document["retryable"]


# --- without protection ------------------------------------------------------------------------------


@pytest.mark.parametrize("method, again", [
    ("POST", False), ("PATCH", False), ("delete", False), ("QUERY", False),
    ("GET", True), ("OPTIONS", True), ("PUT", True), ("DELETE", True)])
def test_what_may_have_been_carried_out_unprotected_is_not_simply_sent_again(start, upstream, method, again):
    gateway = start(config_for(upstream, protect="[]"))
    upstream.answer = LOST
    answer = gateway.request(method, "/orders", [("Content-Length", "2")], b"{}")
    assert says(answer) == (502, "upstream-broken", again)
    assert "may have been carried out" in answer.json()["detail"] and len(upstream.effects()) == 1


def test_a_request_that_passes_without_its_key_is_not_simply_sent_again(start, upstream):
    gateway = start(config_for(upstream, missing="pass", stream_timeout="300ms"))
    upstream.answer = in_turn(LOST, Answer(action="hang"))
    assert says(gateway.post("/orders")) == (502, "upstream-broken", False)
    assert says(gateway.post("/orders")) == (504, "upstream-timeout", False)
    assert len(upstream.effects()) == 2


def test_a_request_that_passes_while_the_store_is_down_is_not_simply_sent_again(start, upstream, tmp_path):
    trouble = Trouble(tmp_path)
    gateway = start(config_for(upstream, store_down="open"), store=trouble.uri)
    trouble.begin("every=1")
    upstream.answer = LOST
    answer = gateway.post("/orders", "k")
    assert (answer.marker, *says(answer)) == ("unprotected", 502, "upstream-broken", False)
    assert len(upstream.effects()) == 1


def test_a_body_that_stops_on_the_way_through_is_not_simply_sent_again(start, upstream):
    """The upstream has its beginning."""
    for protect, again in (("[]", False), ("[POST]", True)):
        gateway = start(config_for(upstream, protect=protect, timeouts="{body: 100ms}"))
        with Connection(gateway.port) as connection:
            connection.send(b"POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 9\r\n\r\n{}")
            assert says(connection.receive()) == (408, "request-timeout", again)
        gateway.stop()


# --- an outcome that nobody knows ---------------------------------------------------------------------


def test_where_a_person_has_to_find_out_asking_again_is_no_use(gateway, upstream):
    upstream.answer = LOST
    first, second = gateway.post("/orders", "k"), gateway.post("/orders", "k")
    assert says(first) == (502, "outcome-unknown", False) and says(second) == (409, "outcome-unknown", False)
    assert "hapax keys resolve" in first.json()["detail"]


@pytest.mark.parametrize("lost, status", [(LOST, 502), (Answer(504, [], b""), 504)], ids=["closed", "504"])
def test_where_the_route_retries_asking_again_is_the_way(start, upstream, lost, status):
    gateway = start(config_for(upstream, on_unknown="retry"))
    upstream.answer = in_turn(lost, Answer())
    first = gateway.post("/orders", "k")
    assert says(first) == (status, "outcome-unknown", True) and first.get("Retry-After") == "1"
    assert gateway.post("/orders", "k").marker == "executed"


def test_where_a_probe_could_not_tell_it_may_be_asked_again(start, upstream):
    gateway = start(config_for(upstream, on_unknown="probe", probe=f"{upstream.url}/by-key/{{key}}"))
    probing(upstream, Answer(500))
    first, second = gateway.post("/orders", "k"), gateway.post("/orders", "k")
    assert says(first) == (502, "outcome-unknown", True) and says(second) == (409, "outcome-unknown", True)
    assert second.marker == "held" and first.get("Retry-After") == second.get("Retry-After") == "1"
    probing(upstream, Answer(200, [], b"found"))
    assert gateway.post("/orders", "k").body == b"found"


# --- the caller does what it is told ------------------------------------------------------------------


@pytest.mark.parametrize("how, runs", [("retry", 2), ("probe", 1)])
def test_a_call_goes_on_where_the_gateway_finds_out(caller, start, upstream, how, runs):
    probe = {"probe": f"{upstream.url}/by-key/{{key}}"} if how == "probe" else {}
    gateway = start(config_for(upstream, on_unknown=how, **probe))
    probing(upstream, Answer(200, [], b"found"))
    told = caller.json("POST", f"http://127.0.0.1:{gateway.port}/charges", "--op", "a", "-d", BODY, *QUICK)
    assert told["body"] == {"retry": "second run", "probe": "found"}[how]
    assert [a["news"] for a in told["attempts"]] == ["maybe", "definite"]
    posts = [r for r in upstream.effects() if r.method == "POST"]
    assert len(posts) == runs and {r.get("Idempotency-Key") for r in posts} == {told["key"]}


def test_a_call_ends_where_nothing_protects_it_on_the_way(caller, start, upstream):
    """The upstream may know keys or not: the one that answered can't tell."""
    gateway = start(config_for(upstream, protect="[]"))
    upstream.answer = LOST
    told = caller.json("POST", f"http://127.0.0.1:{gateway.port}/charges", "--op", "a", "-d", BODY, *QUICK, code=75)
    assert told["end"] == "held" and told["maybe_done"] and len(upstream.effects()) == 1


def test_a_call_believes_other_servers_only_what_they_say(caller, upstream):
    """A plain 502 says nothing; a document without the word is as good as one that says no."""
    document = {"type": "urn:hapax:problem:outcome-unknown", "status": 502}
    upstream.answer = in_turn(Answer(502, [], b"<html>"), Answer(
        502, [("Content-Type", "application/problem+json")], json.dumps(document).encode()))
    told = caller.json("POST", upstream.url, "--op", "a", "-d", BODY, *QUICK, code=75)
    assert [a["news"] for a in told["attempts"]] == ["maybe", "held"]
    assert keys_seen(upstream) == [told["key"]] * 2
