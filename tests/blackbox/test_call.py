"""`hapax call`: the real program against servers that lose requests and answers in every way. Waits are those of the
program, cut short by its options; no time decides a verdict."""

import base64
import json
import os
import pty
import signal
import socket
import subprocess
import threading

import pytest
from caller import BODY, Caller, in_turn, keys_seen
from harness import BUILD, PATIENCE_S, Answer, Connection, Listener, Upstream, config_for
from harness import is_sanitized, wait_until
from test_tls import Authority, server_context

QUICK = ["--backoff", "1ms", "--backoff-max", "1ms"]


@pytest.fixture
def caller(tmp_path):
    return Caller(tmp_path)


@pytest.fixture
def listen():
    """Make servers whose every byte the test decides: listen(handle)."""
    made = []

    def begin(handle):
        made.append(Listener(handle))
        return made[-1]

    yield begin
    for listener in made:
        listener.close()


# --- the key, before anything else -------------------------------------------------------------------


def test_the_key_is_in_the_store_when_the_first_byte_comes(caller, listen):
    found = []

    def handle(sock, reader, number):
        found.append(caller.key_of("invoice 42"))  # nothing was read yet
        found.append(caller.state_of("invoice 42"))
        found.append(reader.request().get("Idempotency-Key"))
        sock.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    server = listen(handle)
    caller.run("POST", server.url, "--op", "invoice 42", "-d", BODY)
    assert found[0] == found[2] and len(found[0]) == 36 and found[1] == "running"


def test_without_an_op_the_key_is_in_the_store_first_too(caller, listen):
    found = []

    def handle(sock, reader, number):
        found.extend(json.loads(line) for line in caller.keys("list", "--json").splitlines())
        found.append(reader.request().get("Idempotency-Key"))
        sock.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    server = listen(handle)
    caller.run("POST", server.url + "/charges?token=hush", "-d", BODY)
    assert len(found) == 2 and found[0]["key"] == found[1]
    assert found[0]["scope"] == f"hapax call POST {server.url}/charges"


# --- through every failure ---------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [
    Answer(action="reset"),
    Answer(action="close"),
    Answer(action="hang"),
    Answer(action="raw", raw=b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf"),
    Answer(action="raw", raw=b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal"),
    Answer(action="raw", raw=b"HTTP/1.1 201 Cre"),
    Answer(action="raw", raw=b"\x16\x03nonsense\r\n\r\n"),
], ids=["reset", "closed", "time-out", "half a body", "half a chunk", "half a head", "no HTTP"])
def test_a_lost_answer_is_asked_for_again_with_the_same_key(caller, upstream, failure):
    upstream.answer = in_turn(failure, Answer(body=b"done"))
    told = caller.json("POST", upstream.url, "--op", "a", "-d", BODY, "--timeout", "3s" if failure.action == "hang" else "30s",
                       *QUICK)
    assert told["end"] == "answered" and told["body"] == "done"
    assert [a["news"] for a in told["attempts"]] == ["maybe", "definite"]
    assert keys_seen(upstream) == [told["key"]] * 2
    assert [r.body for r in upstream.requests] == [BODY.encode()] * 2


@pytest.mark.parametrize("status, headers, news", [
    (425, [], "nothing"), (429, [], "nothing"), (503, [], "maybe"), (524, [], "maybe"), (502, [], "maybe"), (504, [], "maybe"),
    (409, [("Retry-After", "0")], "maybe"),
])
def test_answers_that_pass_are_waited_for(caller, upstream, status, headers, news):
    upstream.answer = in_turn(Answer(status=status, headers=headers, body=b"later"), Answer(body=b"done"))
    told = caller.json("POST", upstream.url, "--op", "a", "-d", BODY, *QUICK)
    assert told["body"] == "done" and [a["news"] for a in told["attempts"]] == [news, "definite"]
    assert told["attempts"][0]["status"] == status
    assert keys_seen(upstream) == [told["key"]] * 2


@pytest.mark.parametrize("status, code", [
    (200, 0), (204, 0), (302, 1), (303, 0), (409, 1), (500, 1)])
def test_a_definite_answer_is_kept_and_printed_again_without_a_request(caller, upstream, status, code):
    upstream.answer = Answer(status=status, headers=[("X-A", "1"), ("X-A", "2")], body=b"text")
    first = caller.run("POST", upstream.url, "--op", "a", "-d", BODY, "-i", code=code)
    again = caller.run("POST", upstream.url, "--op", "a", "-d", BODY, "-i", code=code)
    assert first.stdout == again.stdout
    assert first.stdout.startswith(b"HTTP/1.1 %d\nX-A: 1\nX-A: 2\n" % status)
    assert first.stdout.endswith(b"\n\n" if status == 204 else b"\n\ntext")
    assert (b"redirect" in first.stderr) == (status == 302)
    assert len(upstream.requests) == 1


def test_seconds_and_dates_of_retry_after_are_obeyed(caller, upstream):
    upstream.answer = in_turn(
        Answer(status=503, headers=[("Retry-After", "1")]),
        Answer(status=429, headers=[("Date", "Mon, 07 Nov 1994 09:00:00 GMT"), ("Retry-After", "Mon, 07 Nov 1994 09:00:01 GMT")]),
        Answer())
    told = caller.json("POST", upstream.url, "--op", "a", "-d", BODY, *QUICK)
    assert [a["waited_ms"] for a in told["attempts"]] == [0, 1000, 1000]


def test_a_wait_beyond_the_deadline_is_not_begun(caller, upstream):
    upstream.answer = Answer(status=429, headers=[("Retry-After", "3600")])
    told = caller.json("POST", upstream.url, "--op", "a", "-d", BODY, "--max-time", "10m", code=75)
    assert told["end"] == "not-done" and len(told["attempts"]) == 1 and told["took_ms"] < 10 * 60 * 1000
    assert told["maybe_done"] is False


def test_a_deadline_ends_an_attempt_that_hangs(caller, upstream):
    upstream.answer = Answer(action="hang")
    told = caller.json("POST", upstream.url, "--op", "a", "-d", BODY, "--max-time", "3s", code=75)
    assert told["end"] == "unknown" and len(told["attempts"]) == 1 and told["maybe_done"] is True
    assert caller.state_of("a") == "unknown"


def test_a_deadline_that_is_over_before_the_first_attempt_says_so(caller, upstream):
    for i in range(100):  # two commits take longer than a millisecond, sooner or later
        done = caller.run("POST", upstream.url, "--op", f"a{i}", "-d", BODY, "--max-time", "1ms", code=None)
        if b"before the first attempt" in done.stderr:
            break
    assert done.returncode == 75 and b"--max-time was over" in done.stderr
    assert b"certainly not carried out" in done.stderr and b"another process" not in done.stderr


def test_an_unreachable_server_is_exit_5_and_nothing_happened(caller):
    with closed_port() as port:
        done = caller.run("POST", f"http://127.0.0.1:{port}/", "--op", "a", "-d", BODY, "-n", "3", *QUICK, code=5)
    assert b"gave up after 3 attempts" in done.stderr and b"certainly not carried out" in done.stderr
    assert done.stdout == b""
    assert [json.loads(line)["scope"] for line in caller.keys("list", "--json").splitlines()] == ["hapax call key"]


class closed_port:
    """A port where nobody listens, and nobody else will meanwhile."""

    def __enter__(self):
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        return self.sock.getsockname()[1]

    def __exit__(self, *_):
        self.sock.close()


def test_a_server_that_closes_during_a_long_upload_ends_an_attempt_and_not_the_program(caller, listen):
    (caller.folder / "big").write_bytes(b"x" * (8 << 20))
    server = listen(lambda sock, reader, number: None)
    told = caller.json("POST", server.url, "--op", "a", "-d", "@big", "-n", "3", *QUICK, code=75)
    assert told["end"] == "unknown" and len(told["attempts"]) == 3


# --- later processes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Answer(status=503, headers=[("Retry-After", "3000")]), Answer(action="hang")],
                         ids=["between attempts", "during one"])
def test_after_a_kill_a_new_process_sends_the_same_key(caller, upstream, failure):
    upstream.answer = in_turn(failure, Answer(body=b"done"))
    first = caller.start("POST", upstream.url, "--op", "invoice 42", "-d", BODY, "--max-time", "1h", "--timeout", "1h", "-v")
    wait_until(lambda: upstream.requests, "the first attempt")
    if failure.action != "hang":
        assert b"answered 503" in read_until(first.stderr, b"with the same key, in 50 m")
    first.kill()
    first.wait()
    first.stdout.close()
    first.stderr.close()
    done = caller.run("POST", upstream.url, "--op", "invoice 42", "-d", BODY)
    assert done.stdout == b"done"
    seen = keys_seen(upstream)
    assert len(seen) == 2 and seen[0] == seen[1] == caller.key_of("invoice 42")


@pytest.mark.parametrize("number, op", [(signal.SIGINT, "a"), (signal.SIGTERM, None), (signal.SIGHUP, None)])
def test_a_signal_ends_it_with_a_word_on_how_to_go_on(caller, upstream, number, op):
    upstream.answer = in_turn(Answer(action="hang"), Answer(body=b"done"))
    command = ["POST", upstream.url, "-d", BODY, *(["--op", op] if op else [])]
    first = caller.start(*command)
    wait_until(lambda: upstream.requests, "the first attempt")
    first.send_signal(number)
    _, said = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == -number and b"goes on with the same key" in said
    more = [] if op else ["--key", said.split(b"--key ")[1].split(b":")[0].decode()]
    assert caller.run(*command, *more).stdout == b"done"
    assert len(set(keys_seen(upstream))) == 1 and len(upstream.requests) == 2


def read_until(stream, mark):
    data = b""
    while mark not in data:
        piece = os.read(stream.fileno(), 4096)
        assert piece, data
        data += piece
    return data


def test_giving_up_leaves_the_key_to_the_next_command(caller, upstream):
    upstream.answer = in_turn(Answer(action="reset"), Answer(action="reset"), Answer(body=b"done"))
    command = ["POST", upstream.url, "--op", "a", "-d", BODY, "-n", "1"]
    for _ in range(2):
        done = caller.run(*command, code=75)
        assert b"Run the same command again" in done.stderr and done.stdout == b""
    assert caller.run(*command).stdout == b"done"
    assert len(set(keys_seen(upstream))) == 1 and len(upstream.requests) == 3


def test_without_an_op_the_printed_key_leads_back(caller, upstream):
    upstream.answer = in_turn(Answer(action="reset"), Answer(body=b"done"))
    done = caller.run("POST", upstream.url, "-d", BODY, "-n", "1", code=75)
    key = done.stderr.split(b"--key ")[1].split(b":")[0].decode()
    assert caller.run("POST", upstream.url, "-d", BODY, "--key", key).stdout == b"done"
    assert keys_seen(upstream) == [key] * 2


def test_an_operation_of_unknown_outcome_is_not_sent_once_its_key_is_too_old(caller, upstream):
    upstream.answer = in_turn(Answer(action="reset"), Answer(body=b"done"))
    caller.run("POST", upstream.url, "--op", "a", "-d", BODY, "-n", "1", code=75)
    done = caller.run("POST", upstream.url, "--op", "a", "-d", BODY, "--key-lifetime", "1ms", code=75)
    assert b"--key-lifetime" in done.stderr and len(upstream.requests) == 1
    assert caller.run("POST", upstream.url, "--op", "a", "-d", BODY).stdout == b"done"


def printed_commands(stderr):
    return [line.split(":", 1)[1].strip() for line in stderr.decode().splitlines() if ": " in line and "hapax keys " in line]


def shell(caller, line):
    path = f"{BUILD}:{os.environ['PATH']}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S, cwd="/",
                          env={**caller.environment, "PATH": path})


def test_the_printed_commands_work_when_they_are_pasted(caller, upstream, tmp_path):
    caller.store = f"sqlite:{tmp_path}/it's a $tore.db"
    upstream.answer = in_turn(Answer(action="reset"), Answer(action="reset"), Answer(body=b"done"))
    command = ["POST", upstream.url, "--op=-it's \"42\" $HOME", "-d", BODY, "-n", "1"]
    look, released, done = printed_commands(caller.run(*command, code=75).stderr)
    assert "unknown" in shell(caller, look).stdout
    assert shell(caller, released).returncode == 0
    assert shell(caller, look).returncode == 3
    look, released, done = printed_commands(caller.run(*command, code=75).stderr)
    assert shell(caller, done).returncode == 0
    again = caller.run(*command)
    assert again.stdout == b"" and len(upstream.requests) == 2
    assert len(set(keys_seen(upstream))) == 1


def test_what_was_settled_with_a_status_and_body_is_printed(caller, upstream):
    upstream.answer = Answer(action="reset")
    caller.run("POST", upstream.url, "--op", "a", "-d", BODY, "-n", "1", code=75)
    caller.keys("resolve", "--done", "--status", "201", "--body", '{"id":7}', "hapax call", "a")
    assert caller.run("POST", upstream.url, "--op", "a", "-d", BODY).stdout == b'{"id":7}'
    assert len(upstream.requests) == 1


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [["-d", '{"amount":6}'], ["-d", BODY, "-H", "Content-Type: text/plain"], ["-d", BODY, "--key", "k"]],
                         ids=["body", "type", "key"])
def test_another_request_under_the_name_is_refused(caller, upstream, change):
    caller.run("POST", upstream.url + "/charges", "--op", "a", "-d", BODY)
    done = caller.run("POST", upstream.url + "/charges", "--op", "a", *change, code=4)
    assert b"another request" in done.stderr and done.stdout == b""
    caller.run("POST", upstream.url + "/refunds", "--op", "a", "-d", BODY, code=4)
    caller.run("PUT", upstream.url + "/charges", "--op", "a", "-d", BODY, code=4)
    assert len(upstream.requests) == 1


def test_the_same_request_in_another_form_is_not_refused(caller, upstream):
    caller.run("POST", upstream.url + "/?x=1&y=2", "--op", "a", "-d", '{"a":1,"b":2}', "-H", "Authorization: Bearer one")
    caller.run("POST", upstream.url + "/?y=2&x=1", "--op", "a", "-d", '{ "b":2, "a":1.0 }', "-H", "Authorization: Bearer two")
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("arguments, hint", [
    (["POST", "nonsense"], "http://"),
    (["POST", "ftp://h/"], "http://"),
    (["POST", "http://u:hush@h/"], "Authorization"),
    (["POST", "http://h/#x"], "fragment"),
    (["POST", "http://h:99999/"], "port"),
    (["POST", "http://h/a b"], "%XX"),
    (["PO ST", "http://h/"], "method"),
    (["POST", "http://h/", "-H", "hush"], "Name: value"),
    (["POST", "http://h/", "-H", "Content-Length: 3"], "leave it out"),
    (["POST", "http://h/", "-H", "Idempotency-Key: hush"], "give the key itself"),
    (["POST", "http://h/", "-H", "X-A: hush\x1b[0m"], "control characters"),
    (["POST", "http://h/", "--header-name", "Host"], "one of its own"),
    (["POST", "http://h/", "--key", "{{ id }}"], "placeholder"),
    (["POST", "http://h/", "--key", "a", "--key-from", "json:/a"], "not both"),
    (["POST", "http://h/", "--key-from", "json:/a", "-d", "{}"], "value at /a"),
    (["POST", "http://h/", "--key-field", "/a", "-d", "x=1"], "not JSON"),
    (["POST", "http://h/", "--key-field", "/a", "-d", '{"a":1}'], "already"),
    (["POST", "http://h/", "--key-field", "/a", "--header-name", "X-Key", "-d", "{}"], "not both"),
    (["POST", "http://h/", "--op", "a\nb"], "control characters"),
    (["POST", "http://h/", "--op", "x" * 201], "200 bytes"),
    (["POST", "http://h/", "--timeout", "soon"], "30m"),
    (["POST", "http://h/", "--max-time", "0"], "--max-time"),
    (["POST", "http://h/", "--attempts", "101"], "from 1 to 100"),
    (["POST", "https://h/", "--cacert", "no-such-file"], "no-such-file"),
    (["POST"], "URL is missing"),
])
def test_a_wrong_command_line_says_what_is_wrong_and_repeats_no_secret(caller, arguments, hint):
    done = caller.run(*arguments, code=2)
    assert hint in done.stderr.decode() and b"hush" not in done.stderr


def test_a_store_in_memory_would_forget_the_key(caller):
    caller.store = "memory:"
    assert b"memory store" in caller.run("POST", "http://h/", code=2).stderr


def test_headers_come_from_a_file_too(caller, upstream):
    (caller.folder / "lines").write_text("Authorization: Bearer hush\r\n\n  X-A:  1 2 \nX-A: 3")
    caller.run("POST", upstream.url, "--op", "a", "-H", "@lines", "-H", "X-B: 4")
    request, = upstream.requests
    assert request.get("Authorization") == "Bearer hush" and request.all("X-A") == ["1 2", "3"] and request.get("X-B") == "4"
    (caller.folder / "lines").write_text("hush")
    assert b"hush" not in caller.run("POST", upstream.url, "--op", "b", "-H", "@lines", code=2).stderr
    assert b"no-such-file" in caller.run("POST", upstream.url, "--op", "b", "-H", "@no-such-file", code=2).stderr
    (caller.folder / "lines").write_text("X: " + "x" * (65 << 10))
    assert b"longer than 65536" in caller.run("POST", upstream.url, "--op", "b", "-H", "@lines", code=2).stderr
    assert len(upstream.requests) == 1


def test_a_body_that_can_not_be_read_or_is_too_long_is_not_sent(caller, upstream):
    assert b"no-such-file" in caller.run("POST", upstream.url, "-d", "@no-such-file", code=2).stderr
    (caller.folder / "big").write_bytes(b"x" * ((16 << 20) + 1))
    assert b"16777216 bytes" in caller.run("POST", upstream.url, "-d", "@big", code=2).stderr
    assert upstream.requests == []


@pytest.mark.parametrize("status", [401, 308])
def test_what_was_rejected_before_it_was_carried_out_can_be_corrected(caller, upstream, status):
    upstream.answer = in_turn(Answer(status=status, body=b"no", headers=[("Location", "/b")]), Answer(body=b"done"))
    done = caller.run("POST", upstream.url + "/a", "--op", "a", "-d", BODY, "-H", "Authorization: hush1", code=1)
    assert done.stdout == b"no" and b"not carried out" in done.stderr
    again = caller.run("POST", upstream.url + "/b", "--op", "a", "-d", BODY, "-H", "Authorization: hush2")
    assert again.stdout == b"done"
    assert len(set(keys_seen(upstream))) == 1 and len(upstream.requests) == 2


# --- keys of other kinds -----------------------------------------------------------------------------


def test_the_key_goes_where_the_server_wants_it(caller, upstream):
    caller.run("POST", upstream.url, "--op", "a", "-d", BODY, "--header-name", "PayPal-Request-Id")
    caller.run("POST", upstream.url, "--op", "b", "-d", '{"amount" : 5}', "--key-field", "/idempotency_key")
    caller.run("POST", upstream.url, "--op", "c", "-d", BODY, "--quote-key")
    first, second, third = upstream.requests
    assert first.get("PayPal-Request-Id") == caller.key_of("a") and first.get("Idempotency-Key") is None
    assert second.body == b'{"idempotency_key":"%s","amount" : 5}' % caller.key_of("b").encode()
    assert second.get("Idempotency-Key") is None
    assert third.get("Idempotency-Key") == f'"{caller.key_of("c")}"'


def test_a_key_from_the_body_names_the_operation(caller, upstream):
    command = ["--key-from", "json:/invoice/id", "-d"]
    caller.run("POST", upstream.url + "/charges", *command, '{"invoice":{"id":42}}')
    caller.run("POST", upstream.url + "/charges", *command, '{"invoice":{"id":42} }')
    assert keys_seen(upstream) == ["42"]
    caller.run("POST", upstream.url + "/charges", *command, '{"invoice":{"id":42},"more":1}', code=4)
    caller.run("POST", upstream.url + "/refunds", *command, '{"invoice":{"id":42}}')
    caller.run("POST", upstream.url + "/charges", *command, '{"invoice":{"id":43}}')
    assert keys_seen(upstream) == ["42", "42", "43"]


@pytest.mark.parametrize("source", ["json:/id", "{json:/id}|{header:X-Job}", "query:job"])
def test_derived_keys_of_any_characters_pass_through_the_gateway(caller, gateway, upstream, source):
    url = f"http://127.0.0.1:{gateway.port}/orders?job=a%20%22b%22"
    for _ in range(2):
        told = caller.json("POST", url, "--key-from", source, "-d", '{"id":"caf\\u00e9 \\"7\\"","step":2}', "-H", "X-Job: a, b; c")
        assert told["status"] == 201
    (caller.folder / "call.db").unlink()  # another machine: the gateway has to know the key
    told = caller.json("POST", url, "--key-from", source, "-d", '{"id":"caf\\u00e9 \\"7\\"","step":2}', "-H", "X-Job: a, b; c")
    assert ["Idempotency-Status", "replayed"] in told["headers"]
    assert len(upstream.effects()) == 1


# --- through the gateway -----------------------------------------------------------------------------


def test_a_hundred_processes_with_one_op_make_one_effect(caller, gateway, upstream):
    url = f"http://127.0.0.1:{gateway.port}/charges"
    count = 8 if is_sanitized() else 100  # a sanitizer makes each a long start
    processes = [caller.start("POST", url, "--op", "invoice 42", "-d", BODY) for _ in range(count)]
    ends = [p.communicate(timeout=2 * PATIENCE_S) + (p.returncode,) for p in processes]
    assert {(code, out) for out, _, code in ends} == {(0, b'{"ok":true}')}, [e for e in ends if e[2] != 0][:3]
    assert len(upstream.effects()) == 1
    assert keys_seen(upstream) == [caller.key_of("invoice 42")]


def test_replies_lost_on_the_way_from_the_gateway_make_one_effect(caller, gateway, upstream, listen):
    """Between the two, something that swallows the first three replies."""

    def handle(sock, reader, number):
        request = reader.request()
        with Connection(gateway.port) as to:
            answer = to.request("POST", request.target, [h for h in request.headers if h[0] != "Content-Length"], request.body)
        if number > 3:
            lines = "".join(f"{n}: {v}\r\n" for n, v in answer.headers)
            sock.sendall(f"{answer.start}\r\n{lines}\r\n".encode() + answer.body)

    told = caller.json("POST", listen(handle).url + "/charges", "--op", "a", "-d", BODY, *QUICK)
    assert told["status"] == 201 and len(told["attempts"]) == 4
    assert ["Idempotent-Replayed", "true"] in told["headers"]
    assert len(upstream.effects()) == 1


def test_an_outcome_that_the_gateway_holds_as_unknown_is_never_sent_again_by_itself(caller, gateway, upstream):
    upstream.answer = Answer(action="reset")
    command = ["POST", f"http://127.0.0.1:{gateway.port}/charges", "--op", "a", "-d", BODY]
    told = caller.json(*command, code=75)
    assert told["end"] == "held" and len(told["attempts"]) == 1 and told["status"] == 502
    told = caller.json(*command, code=75)
    assert told["end"] == "held" and told["status"] == 409
    assert b"settles it there" in caller.run(*command, code=75).stderr
    assert len(upstream.effects()) == 1
    held, = [json.loads(line) for line in gateway.cli("keys", "list", "--state", "unknown", "--json").stdout.splitlines()]
    gateway.cli("keys", "resolve", "--id", held["id"], "--done", "--status", "201", "--body", '{"id":7}', check=True)
    assert caller.run(*command).stdout == b'{"id":7}'
    assert caller.run(*command).stdout == b'{"id":7}'
    assert len(upstream.effects()) == 1


def test_an_operation_that_still_runs_behind_the_gateway_is_waited_for(caller, start, upstream):
    gateway = start(config_for(upstream, wait="0s"))
    gate = threading.Event()
    upstream.answer = Answer(wait=gate)
    url = f"http://127.0.0.1:{gateway.port}/charges"
    gateway_key = "k-1"
    other = threading.Thread(target=lambda: gateway.post("/charges", key=gateway_key, body=BODY.encode()))
    other.start()
    wait_until(lambda: upstream.effects(), "the first one runs")
    second = caller.start("POST", url, "--key", gateway_key, "-d", BODY, "-v")
    read_until(second.stderr, b"answered 409")
    gate.set()
    out, _ = second.communicate(timeout=PATIENCE_S)
    other.join(PATIENCE_S)
    assert (second.returncode, out) == (0, b'{"ok":true}')
    assert len(upstream.effects()) == 1


# --- bytes -------------------------------------------------------------------------------------------

ALL_BYTES = bytes(range(256)) * 40 + b"\r\n\r\n\0"


def test_bodies_of_any_bytes_are_sent_and_printed_exactly(caller, upstream):
    (caller.folder / "body").write_bytes(ALL_BYTES)
    upstream.answer = lambda request: Answer(body=request.body[::-1])
    first = caller.run("POST", upstream.url, "--op", "a", "-d", "@body")
    with open(caller.folder / "body", "rb") as file:
        again = caller.run("POST", upstream.url, "--op", "a", "-d", "@-", stdin=file)
    assert upstream.requests[0].body == ALL_BYTES and len(upstream.requests) == 1
    assert first.stdout == again.stdout == ALL_BYTES[::-1]
    to_file = caller.run("POST", upstream.url, "--op", "a", "-d", "@body", "-o", "answer")
    assert to_file.stdout == b"" and (caller.folder / "answer").read_bytes() == ALL_BYTES[::-1]
    told = caller.json("POST", upstream.url, "--op", "a", "-d", "@body")
    assert told["body"] is None and base64.b64decode(told["body_base64"]) == ALL_BYTES[::-1]


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_base64_is_padded_as_it_should_be(caller, upstream, length):
    upstream.answer = Answer(body=b"\xff" * length)
    told = caller.json("POST", upstream.url, "--op", "a")
    assert told["body_bytes"] == length
    if length == 0:
        assert told["body"] == "" and told["body_base64"] is None
    else:
        assert base64.b64decode(told["body_base64"], validate=True) == b"\xff" * length


def test_an_answer_at_the_limit_is_kept_and_one_beyond_is_told_of(caller, upstream):
    limit = 15 << 20
    upstream.answer = lambda request: Answer(body=b"x" * (limit + (request.target == "/beyond")), chunked=request.target == "/beyond")
    assert len(caller.run("POST", upstream.url, "--op", "a").stdout) == limit
    assert len(caller.run("POST", upstream.url, "--op", "a").stdout) == limit
    for _ in range(2):
        done = caller.run("POST", upstream.url + "/beyond", "--op", "b", code=1)
        assert done.stdout == b"" and b"neither printed nor kept" in done.stderr
    assert [r.target for r in upstream.requests] == ["/", "/beyond"]


def test_json_is_announced_as_such_unless_the_user_says_otherwise(caller, upstream):
    caller.run("POST", upstream.url, "--op", "a", "-d", BODY)
    caller.run("POST", upstream.url, "--op", "b", "-d", "amount=5")
    caller.run("POST", upstream.url, "--op", "c", "-d", BODY, "-H", "content-type: application/vnd.x+json")
    caller.run("POST", upstream.url, "--op", "d")
    assert [r.get("Content-Type") for r in upstream.requests] == [
        "application/json", None, "application/vnd.x+json", None]
    assert [r.get("Content-Length") for r in upstream.requests] == ["12", "8", "12", "0"]


# --- what is shown -----------------------------------------------------------------------------------


def test_json_tells_attempts_key_and_times(caller, upstream):
    upstream.answer = in_turn(Answer(status=503), Answer(headers=[("X-A", "1")], body="é".encode()))
    told = caller.json("POST", upstream.url, "--op", "invoice 42", "-d", BODY, *QUICK)
    assert told["op"] == "invoice 42" and told["key"] == caller.key_of("invoice 42")
    assert (told["end"], told["status"], told["replayed"], told["stored"], told["exit_code"]) == ("answered", 201, False, True, 0)
    assert [(a["number"], a["status"], a["detail"]) for a in told["attempts"]] == [(1, 503, "answered 503"), (2, 201, "answered 201")]
    assert all(a["took_ms"] >= 0 and a["waited_ms"] >= 0 and a["started"] for a in told["attempts"])
    assert ["X-A", "1"] in told["headers"] and told["body"] == "é"
    again = caller.json("POST", upstream.url, "--op", "invoice 42", "-d", BODY)
    assert (again["end"], again["replayed"], again["attempts"], again["body"]) == ("replayed", True, [], "é")
    assert again["claimed"] == told["claimed"] and again["key"] == told["key"]


def on_terminal(caller, *arguments):
    """What the program says when stderr is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(caller.command(*arguments), stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL,
                               env=caller.environment, cwd=caller.folder)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    process.communicate(timeout=PATIENCE_S)
    return said.decode()


def test_progress_is_for_terminals_and_those_who_ask(caller, upstream):
    upstream.answer = lambda request: Answer(status=503 if request.number % 2 else 201)
    command = ["POST", upstream.url, "-d", BODY, *QUICK, "--op"]
    assert "attempt 1: answered 503; attempt 2, with the same key, in " in on_terminal(caller, *command, "a")
    said = on_terminal(caller, *command, "f")
    assert "attempt 1: sending (time-out 30s)" in said and "attempt 2: sending" in said
    assert "nothing was sent" in on_terminal(caller, *command, "a")
    assert on_terminal(caller, *command, "b", "-q") == ""
    assert caller.run(*command, "c").stderr == b""
    assert b"answered 503" in caller.run(*command, "d", "-v").stderr
    said = caller.run("POST", upstream.url, "-d", BODY, "--op", "e", "-v", *QUICK).stderr
    assert b"with the key " + caller.key_of("e").encode() in said


def test_credentials_and_bodies_reach_no_message_and_no_store(caller, upstream):
    upstream.answer = Answer(action="reset")
    said = b""
    for op in ("a", "b"):
        said += caller.run("POST", upstream.url + "/x?token=hush-query", "--op", op, "-d", '{"card":"hush-body"}', "-H",
                           "Authorization: Bearer hush-header", "-v", "-n", "2", *QUICK, code=75).stderr
    upstream.answer = Answer(status=401, body=b"hush-answer")
    said += caller.run("POST", upstream.url, "--op", "c", "-H", "Cookie: hush-cookie", code=1).stderr
    assert b"hush" not in said and b"gave up" in said
    for path in caller.folder.glob("call.db*"):
        assert b"hush" not in path.read_bytes()


def test_a_password_of_the_store_is_not_shown(caller):
    caller.store = "postgresql://user:hush@127.0.0.1:1/nowhere"
    done = caller.run("POST", "http://127.0.0.1:1/", "--op", "a", "-n", "1", code=5)
    assert b"hush" not in done.stderr + done.stdout


def test_a_store_that_can_not_be_used_means_that_nothing_is_sent(caller, upstream):
    caller.store = "sqlite:/proc/no/such/folder/call.db"
    caller.run("POST", upstream.url, "--op", "a", "-d", BODY, code=5)
    assert upstream.requests == []


def test_a_damaged_store_means_the_same(caller, upstream):
    (caller.folder / "call.db").write_bytes(b"no database" * 1000)
    caller.run("POST", upstream.url, "--op", "a", "-d", BODY, code=5)
    (caller.folder / "call.db").unlink()
    caller.run("POST", upstream.url, "--op", "a", "-d", BODY)
    assert len(upstream.requests) == 1


# --- TLS ---------------------------------------------------------------------------------------------


def test_a_server_is_believed_only_with_a_certificate_of_a_known_authority(caller, tmp_path):
    authority = Authority(tmp_path, "authority")
    server = Upstream(tls=server_context(authority.issue("good", "DNS:localhost")))
    try:
        told = caller.json("POST", server.url, "--op", "a", "-d", BODY, "-n", "2", *QUICK, code=5)
        assert "TLS" in told["attempts"][0]["detail"] and told["end"] == "not-done"
        assert server.requests == []
        caller.run("POST", server.url, "--op", "a", "-d", BODY, "--cacert", authority.path)
        assert len(server.requests) == 1
    finally:
        server.close()


# --- the library -------------------------------------------------------------------------------------


def test_the_example_program_charges_once(caller, upstream):
    program = BUILD / "examples" / "charge_once"
    upstream.answer = in_turn(Answer(action="reset"), Answer(status=503), Answer(body=b'{"id":7}'))
    for _ in range(2):
        done = subprocess.run([program, caller.folder / "pay.db", upstream.url + "/charges", "invoice 42", "5"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout) == (0, '{"id":7}\n'), done.stderr
    assert len(upstream.requests) == 3 and len(set(keys_seen(upstream))) == 1
    other = subprocess.run([program, caller.folder / "pay.db", upstream.url + "/charges", "invoice 42", "6"],
                           capture_output=True, text=True, timeout=PATIENCE_S)
    assert other.returncode == 4
