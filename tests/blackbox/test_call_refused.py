"""`hapax call` and what is no answer of its operation: refusals of the key, by the gateway, by a server that compares in its
own way, and by the own store. None of them is kept, and each can be corrected."""

import subprocess

import pytest
from caller import BODY, Caller, in_turn, keys_seen
from harness import BUILD, PATIENCE_S, Answer
from test_call import closed_port, printed_commands, shell

QUICK = ["--backoff", "1ms", "--backoff-max", "1ms"]


@pytest.fixture
def caller(tmp_path):
    return Caller(tmp_path)


def test_a_key_that_the_gateway_knows_from_another_program_is_refused_and_can_be_replaced(caller, gateway, upstream):
    gateway.post("/charges", key="K9", body=b'{"another":"operation"}')
    command = ["POST", f"http://127.0.0.1:{gateway.port}/charges", "--op", "inv9", "-d", BODY]
    for _ in range(2):  # not kept: asked again
        told = caller.json(*command, "--key", "K9", code=1)
        assert (told["end"], told["status"], told["stored"], told["maybe_done"]) == ("rejected", 422, False, False)
        assert len(told["attempts"]) == 1 and "key-reused" in told["body"]
    done = caller.run(*command, "--key", "K10", code=4)
    _, forget = printed_commands(done.stderr)
    assert shell(caller, forget).returncode == 0
    assert caller.json(*command, "--key", "K10")["status"] == 201
    assert len(upstream.effects()) == 2


def test_a_server_that_compares_bytes_does_not_hide_the_answer_of_the_first_form(caller, upstream):
    """It does the work and loses the reply; the same JSON in another order is another request to it."""
    forms = {}

    def serve(request):
        first = not forms
        if forms.setdefault(request.get("Idempotency-Key"), request.body) != request.body:
            return Answer(422, [], b"the key came with another body")
        return Answer(action="reset") if first else Answer(201, [], b"the charge")

    upstream.answer = serve
    command = ["POST", upstream.url, "--op", "a", *QUICK, "-d"]
    caller.run(*command, '{"a":1,"b":2}', "-n", "1", code=75)
    done = caller.run(*command, '{"b":2,"a":1}', code=75)
    assert b"answered 422" in done.stderr and b"may have done it" in done.stderr and done.stdout == b"the key came with another body"
    assert caller.state_of("a") == "unknown"
    assert caller.run(*command, '{"a":1,"b":2}').stdout == b"the charge"
    assert caller.run(*command, '{"b":2,"a":1}').stdout == b"the charge"
    assert len(upstream.requests) == 3 and len(set(keys_seen(upstream))) == 1


def test_a_first_422_is_the_answer(caller, upstream):
    upstream.answer = Answer(422, [], b"no such account")
    for _ in range(2):
        assert caller.run("POST", upstream.url, "--op", "a", "-d", BODY, code=1).stdout == b"no such account"
    assert len(upstream.requests) == 1


def test_a_mistyped_key_can_be_replaced_by_the_printed_command(caller, upstream):
    with closed_port() as port:
        caller.run("POST", f"http://127.0.0.1:{port}/", "--op", "it's 50% off", "--key", "K1", "-n", "1", code=5)
    command = ["POST", upstream.url, "--op", "it's 50% off", "--key", "K2", "-d", BODY]
    done = caller.run(*command, code=4)
    assert b"another key" in done.stderr and upstream.requests == []
    look, forget = printed_commands(done.stderr)
    assert "done" in shell(caller, look).stdout and shell(caller, f"{look} --body").stdout == "K1"
    assert shell(caller, forget).returncode == 0
    caller.run(*command)
    assert keys_seen(upstream) == ["K2"]
    done = caller.run(*command[:-3], "K3", "-d", BODY, code=4)  # that it was done matters more, from now on
    look, = printed_commands(done.stderr)
    assert "'hapax call' 'it'\\''s 50%25 off'" in look and "done" in shell(caller, look).stdout


def test_an_answer_without_a_body_that_is_kept_still_has_its_head(caller, upstream):
    upstream.answer = Answer(201, [("Location", "/charges/7")], body=b"x" * ((15 << 20) + 1), chunked=True)
    (caller.folder / "answer").write_bytes(b"of before")
    for _ in range(2):
        done = caller.run("POST", upstream.url, "--op", "a", "-i", code=1)
        assert done.stdout.startswith(b"HTTP/1.1 201\nLocation: /charges/7\n") and done.stdout.endswith(b"\n\n")
        assert len(done.stdout) < 1000
    for json in ([], ["--json"]):
        done = caller.run("POST", upstream.url, "--op", "a", "-o", "answer", *json, code=1)
        assert b"answer is not written" in done.stderr and (caller.folder / "answer").read_bytes() == b"of before"
    assert len(upstream.requests) == 1


def test_the_example_program_does_not_take_a_possible_charge_for_refused(caller, upstream):
    upstream.answer = in_turn(Answer(action="reset"), Answer(401, [], b"no"), Answer(201, [], b"charged"))
    command = [BUILD / "examples" / "charge_once", caller.folder / "pay.db", upstream.url + "/charges", "invoice 42", "5"]
    first = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (first.returncode, first.stdout) == (75, "") and "may have charged" in first.stderr
    again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (again.returncode, again.stdout) == (0, "charged\n")
    assert len(set(keys_seen(upstream))) == 1
