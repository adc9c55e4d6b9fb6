"""What went wrong in other systems of this kind, each as a test of the behaviour that is right."""

import gzip
import threading

import pytest
from harness import Answer, at_once, config_for, request_bytes, wait_until

JSON = [("Content-Type", "application/json")]
SCOPE = "orders POST /orders -"


def numbered(request):
    return Answer(201, [], b"%d" % request.number)


def keyed(key, *more):
    return [*JSON, ("Idempotency-Key", key), *more]


# --- Keys ------------------------------------------------------------------------------------------

BAD_KEYS = ["", "   ", "\t", '""', '"   "', "undefined", "null", "None", "NaN", "nil", "[object Object]", "{{ $json.id }}",
            "order-${ID}", "<key>", '"unclosed', '"a" "b"', '"a", "b"', '"a\\x"', "k\x80", "caf\xe9", "k" * 256]


@pytest.mark.parametrize("missing", ["reject", "pass"])
def test_a_key_that_is_there_but_means_nothing_is_refused(start, upstream, missing):
    """It is never taken for a missing key, where the route lets those pass, and never shared by those who send it."""
    gateway = start(config_for(upstream, missing=missing))
    for key in BAD_KEYS:
        answer = gateway.post("/orders", key)
        assert (key, answer.status, answer.problem, answer.marker) == (key, 400, "key-invalid", "rejected")
    assert upstream.effects() == []


GOOD_KEYS = {
    "k" * 255: "k" * 255, '"' + "k" * 255 + '"': "k" * 255, '"' + '\\"' * 255 + '"': '"' * 255, '"a\\\\b"': "a\\b",
    '"p";a=1;b="x"': "p", "with blanks, and commas": "with blanks, and commas", "0": "0", "nullable": "nullable",
    "a|b": "a|b", "\t trimmed ": "trimmed",
}


def test_keys_of_every_allowed_form(gateway, upstream):
    seen = set()
    for sent, key in GOOD_KEYS.items():
        answer = gateway.post("/orders", sent)
        assert (sent, answer.marker) == (sent, "replayed" if key in seen else "executed")
        assert gateway.operation(SCOPE, key).json()["key"] == key
        seen.add(key)
    assert len(upstream.effects()) == len(seen)


def test_one_key_on_two_lines_is_one_key(gateway, upstream):
    answer = gateway.post("/orders", "k-1", headers=[("idempotency-key", '"k-1"')])
    assert (answer.status, answer.marker) == (201, "executed")
    assert gateway.post("/orders", "k-1").marker == "replayed"
    assert len(upstream.effects()) == 1


def test_requests_without_a_key_never_share_an_answer(start, upstream):
    gateway = start(config_for(upstream, missing="pass"))
    upstream.answer = numbered
    answers = [gateway.post("/orders", None, body) for body in (b'{"a":1}', b'{"a":2}', b'{"a":1}')]
    assert [(a.marker, a.body) for a in answers] == [("unprotected", b"%d" % i) for i in (1, 2, 3)]
    assert upstream.effects()[0].get("Idempotency-Key") is None


def test_the_first_source_that_is_present_decides(start, upstream):
    gateway = start(config_for(upstream, key='["header:X-Key", "query:key", "json:/id"]'))
    upstream.answer = numbered
    body = b'{"id":"c"}'
    first = gateway.post("/orders?key=b", None, body, headers=[("X-Key", "a")])
    assert (first.marker, first.body) == ("executed", b"1")
    assert gateway.operation(SCOPE, "a").status == 200
    assert gateway.post("/orders?key=b", None, body, headers=[("X-Key", "null")]).problem == "key-invalid"
    assert gateway.post("/orders?key=b", None, body).marker == "executed"
    assert gateway.operation(SCOPE, "b").status == 200
    assert gateway.post("/orders", None, body).marker == "executed"
    assert gateway.operation(SCOPE, '"c"').status == 200
    assert gateway.post("/orders", None, b"{}").problem == "key-missing"
    assert len(upstream.effects()) == 3


@pytest.mark.parametrize("digits", ["1152921506151679042", "9007199254740993", "1" + "0" * 200, "1.10", "-0"])
def test_an_operator_finds_a_number_by_its_exact_digits(start, upstream, digits):
    gateway = start(config_for(upstream, key="json:/id"))
    assert gateway.post("/orders", None, b'{"id":%s}' % digits.encode()).marker == "executed"
    found = gateway.operation(SCOPE, digits)
    assert (found.status, found.json()["key"]) == (200, digits)
    assert upstream.effects()[0].get("Idempotency-Key") == f'"{digits}"'


def test_a_body_in_chunks_gives_its_key(start, upstream):
    gateway = start(config_for(upstream, key="json:/id"))
    body = b'{"id":"A-1","note":"in three chunks"}'
    pieces = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(p), p) for p in (body[:1], body[1:20], body[20:]))
    first = gateway.request("POST", "/orders", [*JSON, ("Transfer-Encoding", "chunked")], pieces + b"0\r\nX-Trailer: 1\r\n\r\n")
    assert first.marker == "executed" and upstream.effects()[0].body == body
    assert gateway.post("/orders", None, body).marker == "replayed"


def test_a_trailer_is_no_key(gateway, upstream):
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", [*JSON, ("Transfer-Encoding", "chunked"), ("Trailer", "Idempotency-Key")]))
        connection.send(b"2\r\n{}\r\n0\r\nIdempotency-Key: k-late\r\n\r\n")
        assert connection.receive().problem == "key-missing"
    assert upstream.effects() == []


def test_an_empty_body_gives_no_key(start, upstream):
    gateway = start(config_for(upstream, key="json:/id"))
    answer = gateway.post("/orders", None, b"")
    assert (answer.status, answer.problem) == (400, "key-missing")
    assert upstream.effects() == []


# --- Who may share a key ---------------------------------------------------------------------------


def test_who_does_not_say_who_he_is_gets_no_shared_namespace(start, upstream):
    gateway = start(config_for(upstream, tenant="header:X-Account"))
    upstream.answer = numbered
    for bad in ([], [("X-Account", "")], [("X-Account", "a"), ("X-Account", "b")]):
        answer = gateway.post("/orders", "k", headers=bad)
        assert (answer.status, answer.problem) == (400, "key-invalid")
    ann = [("X-Account", "ann"), ("Authorization", "Bearer 1")]
    again = [("X-Account", "ann"), ("Authorization", "Bearer 2")]
    assert [gateway.post("/orders", "k", headers=h).body for h in (ann, [("X-Account", "bob")], again)] == [b"1", b"2", b"1"]


def test_credentials_share_keys_only_where_the_route_says_so(start, upstream):
    gateway = start(config_for(upstream, tenant="none"))
    first = gateway.post("/orders", "k", headers=[("Authorization", "Bearer ann")])
    second = gateway.post("/orders", "k", headers=[("Authorization", "Bearer bob")])
    assert (first.marker, second.marker) == ("executed", "replayed")


@pytest.mark.parametrize("second", ["Bearer bob", "Bearer ann"])
def test_two_credentials_are_nobody(gateway, upstream, second):
    """The upstream might take the other one."""
    answer = gateway.post("/orders", "k", headers=[("Authorization", "Bearer ann"), ("Authorization", second)])
    assert (answer.status, answer.problem) == (400, "key-invalid")
    assert upstream.effects() == []


def test_a_method_in_small_letters_is_protected_as_well(gateway, upstream):
    """Browsers send "patch" as it was written, and many upstreams take it for PATCH."""
    for method in ("patch", "Post"):
        answers = [gateway.request(method, "/orders", keyed("k", ("Content-Length", "2")), b"{}") for _ in range(2)]
        assert [a.marker for a in answers] == ["executed", "replayed"]
    assert [r.method for r in upstream.effects()] == ["patch", "Post"]


def test_every_way_to_override_the_method_makes_another_operation(gateway, upstream):
    name, long = "X-HTTP-Method-Override", "D" * 40
    ways = [[], [(name, "PATCH")], [(name, "DELETE")], [("X-HTTP-Method", "DELETE"), (name, "PATCH")], [(name, long)],
            [("x-method-override", "")], [(name, ""), (name, "PURGE")], [("X-Method-Override", "PUT")]]
    answers = [gateway.request("POST", "/orders", keyed("k", *way), b"{}") for way in ways]
    assert [a.marker for a in answers] == ["executed"] * 5 + ["replayed"] + ["executed"] * 2  # an empty one says nothing


def test_strangers_with_one_key_and_other_content_learn_nothing(gateway, upstream):
    upstream.answer = Answer(201, [("X-Secret", "s3cret")], b"s3cret")
    gateway.post("/orders", "k", b'{"for":"ann"}')
    other = gateway.post("/orders", "k", b'{"for":"bob"}')
    assert other.problem == "key-reused"
    assert b"s3cret" not in other.body and b"ann" not in other.body and other.get("X-Secret") is None


# --- What is the same request ----------------------------------------------------------------------

SAME = {
    "members in another order": (b'{"a":1,"b":[1,2]}', b'{"b":[1,2],"a":1}'),
    "members beyond the basic plane": ('{"\U0001f600":1,"\ufb33":2}'.encode(), '{"\ufb33":2,"\U0001f600":1}'.encode()),
    "a pair of surrogates": (b'["\\ud83d\\ude00"]', '["\U0001f600"]'.encode()),
    "numbers": (b"[1.0,1e2,-0,0.10]", b"[1,100,0,1e-1]"),
    "a large exponent": (b"[1e400]", b"[10E+399]"),
    "white space": (b"[ 1 ,\r\n\t2 ]", b"[1,2]"),
}
OTHER = {
    "elements in another order": (b"[1,2]", b"[2,1]"),
    "a number and its text": (b"[1]", b'["1"]'),
    "null and absent": (b'{"a":null}', b"{}"),
    "an empty body and an empty object": (b"", b"{}"),
    "an empty body and null": (b"", b"null"),
    "composed and decomposed letters": ('["\u00e9"]'.encode(), '["e\u0301"]'.encode()),
    "a newline and blanks": (b'["a\\nb"]', b'["a  b"]'),
    "a blank at the end": (b'["a"]', b'["a "]'),
    "integers beyond double precision": (b"[9007199254740992]", b"[9007199254740993]"),
    "a fraction that a double can't hold": (b"[0.1]", b"[0.1000000000000000055511151231257827]"),
    "false and zero": (b"[false]", b"[0]"),
    "a sign": (b"[1]", b"[-1]"),
}


@pytest.mark.parametrize("name", SAME)
def test_one_content_in_two_spellings(gateway, upstream, name):
    one, two = SAME[name]
    assert [gateway.post("/orders", "k", body).marker for body in (one, two)] == ["executed", "replayed"]
    assert [r.body for r in upstream.effects()] == [one]


@pytest.mark.parametrize("name", OTHER)
def test_two_contents_that_look_alike(gateway, upstream, name):
    one, two = OTHER[name]
    assert gateway.post("/orders", "k", one).marker == "executed"
    other = gateway.post("/orders", "k", two)
    assert (other.status, other.problem) == (422, "key-reused")
    assert len(upstream.effects()) == 1


def multipart(boundary, amount="100", file_name="a.txt"):
    parts = [('name="amount"', "", amount), (f'name="file"; filename="{file_name}"', "Content-Type: text/plain\r\n", "-- x")]
    text = "".join(f"--{boundary}\r\nContent-Disposition: form-data; {d}\r\n{h}\r\n{v}\r\n" for d, h, v in parts)
    return [("Content-Type", f"multipart/form-data; boundary={boundary}")], f"{text}--{boundary}--\r\n".encode()


def test_an_upload_repeated_under_another_boundary_is_the_same_upload(gateway, upstream):
    key = [("Idempotency-Key", "k")]
    words = []
    for headers, body in (multipart("aaa"), multipart("----WebKitFormBoundary7"), multipart("aaa", amount="900"),
                          multipart("aaa", file_name="b.txt")):
        answer = gateway.request("POST", "/orders", headers + key, body)
        words.append(answer.problem or answer.marker)
    assert words == ["executed", "replayed", "key-reused", "key-reused"]
    assert len(upstream.effects()) == 1


@pytest.mark.parametrize(("rule", "reordered", "other", "other_query"), [
    ("auto", "replayed", "key-reused", "key-reused"),
    ("bytes", "key-reused", "key-reused", "key-reused"),
    ("{fields: [/a]}", "replayed", "replayed", "key-reused"),
    ("none", "replayed", "replayed", "replayed"),
])
def test_a_route_decides_what_counts_as_the_same(start, upstream, rule, reordered, other, other_query):
    gateway = start(config_for(upstream, fingerprint=rule))
    requests = [("/orders", b'{"a":1,"b":2}'), ("/orders", b'{"b":2,"a":1}'), ("/orders", b'{"a":1,"b":3}'),
                ("/orders?x=1", b'{"a":1,"b":2}'), ("/orders", b'{"a":1,"b":2}')]
    answers = [gateway.post(target, "k", body) for target, body in requests]
    assert [a.problem or a.marker for a in answers] == ["executed", reordered, other, other_query, "replayed"]


def test_what_a_sender_changes_on_a_retry_can_be_left_out(start, upstream):
    gateway = start(config_for(upstream, ignore="[/metadata/attempt, /sent_at]"))
    bodies = [b'{"amount":1,"metadata":{"attempt":1},"sent_at":"10:00"}', b'{"amount":1,"metadata":{"attempt":2}}',
              b'{"amount":1,"metadata":{"attempt":1,"more":1}}', b'{"amount":2,"metadata":{"attempt":1},"sent_at":"10:00"}']
    answers = [gateway.post("/orders", "k", body) for body in bodies]
    assert [a.problem or a.marker for a in answers] == ["executed", "replayed", "key-reused", "key-reused"]


# --- Other content is refused on every way to an answer --------------------------------------------


def assert_other_content_is_refused(gateway):
    other = gateway.post("/orders", "k", b'{"amount":900}')
    assert (other.status, other.problem, other.marker) == (422, "key-reused", "rejected")


@pytest.mark.parametrize("cache", ["32MiB", "0"])
def test_other_content_is_refused_wherever_the_answer_comes_from(start, upstream, cache):
    gateway = start(config_for(upstream, limits=f"{{replay_cache: {cache}}}"))
    gateway.post("/orders", "k")
    assert_other_content_is_refused(gateway)
    assert gateway.post("/orders", "k").marker == "replayed"
    assert_other_content_is_refused(gateway)
    gateway.stop()
    gateway.start()
    assert_other_content_is_refused(gateway)
    assert gateway.post("/orders", "k").marker == "replayed"
    assert_other_content_is_refused(gateway)
    assert len(upstream.effects()) == 1


def test_other_content_is_refused_while_others_wait(start, upstream):
    gateway = start(config_for(upstream))
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    running = [threading.Thread(target=gateway.post, args=("/orders", "k")) for _ in range(2)]
    for thread in running:
        thread.start()
    wait_until(lambda: gateway.metric("hapax_waiters") == 1, "one runs, one waits")
    assert_other_content_is_refused(gateway)
    assert gateway.metric("hapax_waiters") == 1
    release.set()
    for thread in running:
        thread.join()
    assert len(upstream.effects()) == 1


def test_other_content_is_refused_where_the_outcome_is_unknown(gateway, upstream):
    upstream.answer = Answer(action="close")
    assert gateway.post("/orders", "k").problem == "outcome-unknown"
    assert_other_content_is_refused(gateway)
    held = gateway.post("/orders", "k")
    assert (held.status, held.problem, held.marker) == (409, "outcome-unknown", "held")


def test_other_content_is_refused_where_the_answer_was_not_kept(gateway, upstream):
    upstream.answer = Answer(200, [], b"m" * (2 << 20))
    gateway.post("/orders", "k")
    assert_other_content_is_refused(gateway)
    assert gateway.post("/orders", "k").problem == "answer-not-kept"


def test_a_refused_duplicate_leaves_the_record_as_it_was(gateway, upstream):
    gateway.post("/orders", "k")
    before = gateway.operation(SCOPE, "k").json()
    assert_other_content_is_refused(gateway)
    gateway.post("/orders", "k", b"{broken")
    gateway.post("/orders", "k")
    assert gateway.operation(SCOPE, "k").json() == before
    assert (before["state"], before["attempt"]) == ("done", 1)


def test_a_corrected_form_may_keep_its_key_where_validation_failures_release_it(start, upstream):
    gateway = start(config_for(upstream, outcome="{422: released}"))
    upstream.answer = lambda r: Answer(422 if r.number == 1 else 201, [], b"%d" % r.number)
    first = gateway.post("/orders", "k", b'{"card":"bad"}')
    assert (first.status, first.marker, first.problem) == (422, "released", None)
    corrected = gateway.post("/orders", "k", b'{"card":"good"}')
    assert (corrected.status, corrected.marker, corrected.body) == (201, "executed", b"2")
    assert gateway.post("/orders", "k", b'{"card":"bad"}').problem == "key-reused"


# --- Answers ---------------------------------------------------------------------------------------


def test_what_describes_the_answer_is_replayed_as_it_was(gateway, upstream):
    kept = [("Location", "/orders/9"), ("Content-Location", "/orders/9"), ("ETag", 'W/"1,2"'), ("Link", '</a>; rel="x", </b>'),
            ("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT"), ("Content-Type", "text/csv; charset=utf-8"),
            ("Content-Disposition", "attachment; filename=\"a, b.csv\"; filename*=UTF-8''a%2C%20b.csv"),
            ("Content-Language", "de"), ("Vary", "Accept, Origin"), ("X-Empty", ""), ("x-LOWER", "1")]
    upstream.answer = Answer(201, kept, b"a;b\n")
    answers = [gateway.post("/orders", "k") for _ in range(2)]
    assert [a.marker for a in answers] == ["executed", "replayed"]
    for answer in answers:
        assert [h for h in answer.headers if h in kept] == kept


def test_a_replay_tells_the_same_expiry(gateway):
    first, second = (gateway.post("/orders", "k").get("Idempotency-Expires") for _ in range(2))
    assert first == second and first.endswith(" GMT")


def test_an_answer_without_a_length_is_kept_whole(gateway, upstream):
    body = bytes(i % 251 for i in range(300_000))
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:1], body[1:100_000], body[100_000:]))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    upstream.answer = Answer(action="raw", raw=head + pieces + b"0\r\nX-Trailer: 1\r\n\r\n")
    first, second = (gateway.post("/orders", "k") for _ in range(2))
    assert (first.marker, second.marker) == ("executed", "replayed")
    assert first.body == second.body == body
    assert second.get("X-Trailer") is None


def test_an_answer_that_ends_with_the_connection_is_whole(gateway, upstream):
    upstream.answer = Answer(action="raw", raw=b"HTTP/1.0 200 OK\r\nX-Old: 1\r\n\r\nall of it")
    first, second = (gateway.post("/orders", "k") for _ in range(2))
    assert (first.marker, second.marker) == ("executed", "replayed")
    assert first.body == second.body == b"all of it"


def test_interim_answers_are_not_the_answer(gateway, upstream):
    upstream.answer = Answer(action="raw", raw=b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
                                               b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Real: 1\r\n\r\nok")
    first, second = (gateway.post("/orders", "k") for _ in range(2))
    for answer in (first, second):
        assert (answer.status, answer.body, answer.get("X-Real"), answer.get("Link")) == (201, b"ok", "1", None)


def test_an_answer_with_two_lengths_is_no_answer(gateway, upstream):
    upstream.answer = Answer(action="raw", raw=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk")
    first = gateway.post("/orders", "k")
    assert (first.status, first.problem, first.marker) == (502, "outcome-unknown", "unknown")
    assert gateway.post("/orders", "k").marker == "held"


def test_the_largest_answer_that_is_kept(start, upstream):
    gateway = start(config_for(upstream, keep_body="1000"))
    upstream.answer = lambda r: Answer(200, [], b"x" * int(r.get("Idempotency-Key")))
    for key, problem in (("1000", None), ("1001", "answer-not-kept")):
        assert len(gateway.post("/orders", key).body) == int(key)
        again = gateway.post("/orders", key)
        assert (again.marker, again.problem) == ("replayed", problem)
    assert len(upstream.effects()) == 2


def test_markers_that_a_client_sends_do_not_reach_the_upstream(gateway, upstream):
    gateway.post("/orders", "k", headers=[("Idempotency-Status", "replayed"), ("Idempotent-Replayed", "true"),
                                          ("Idempotency-Expires", "x"), ("Hapax-Outcome", "done"), ("Hapax-TTL", "1")])
    request = upstream.effects()[0]
    for name in ("Idempotency-Status", "Idempotent-Replayed", "Idempotency-Expires", "Hapax-Outcome", "Hapax-TTL"):
        assert request.get(name) is None, name


def test_the_body_goes_upstream_as_it_came(gateway, upstream):
    """Signatures are over bytes: nothing is parsed and written again, or unpacked, on the way."""
    spaced = b' {"b" : 1.0,\r\n\t"a":"\\u00e9\\/" } \n'
    gateway.request("POST", "/orders", keyed("k-1"), spaced)
    gateway.request("POST", "/orders", keyed("k-2", ("Content-Encoding", "gzip")), gzip.compress(spaced))
    plain, packed = upstream.effects()
    assert (plain.body, plain.get("Content-Type")) == (spaced, "application/json")
    assert (gzip.decompress(packed.body), packed.get("Content-Encoding")) == (spaced, "gzip")


# --- Framing and limits ----------------------------------------------------------------------------


def test_a_client_that_waits_for_100_gets_it(gateway, upstream):
    body = b'{"a":"' + b"x" * 1100 + b'"}'
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", keyed("k", ("Expect", "100-continue"), ("Content-Length", str(len(body))))))
        assert connection.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        assert upstream.effects() == []
        connection.send(body)
        assert connection.receive().marker == "executed"
    assert (upstream.effects()[0].body, upstream.effects()[0].get("Expect")) == (body, None)
    again = gateway.request("POST", "/orders", keyed("k", ("Expect", "100-continue")), body)  # without waiting
    assert again.marker == "replayed"


def test_a_client_that_waits_for_100_is_refused_without_it(gateway, upstream):
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", [*JSON, ("Expect", "100-continue"), ("Content-Length", "9")]))
        answer = connection.receive()
    assert (answer.problem, answer.interim) == ("key-missing", [])
    assert upstream.effects() == []


def test_the_largest_body_that_is_taken(start, upstream):
    gateway = start(config_for(upstream, body_size="1000"))
    fits, too_large = b"x" * 1000, b"x" * 1001
    assert gateway.request("POST", "/orders", [("Idempotency-Key", "k-1")], fits).marker == "executed"
    answer = gateway.request("POST", "/orders", [("Idempotency-Key", "k-2")], too_large)
    assert (answer.status, answer.problem, answer.json()["limit_bytes"]) == (413, "body-too-large", 1000)
    packed = gateway.request("POST", "/orders", keyed("k-3", ("Content-Encoding", "gzip")), gzip.compress(b"[" + b" " * 1000 + b"]"))
    assert (packed.status, packed.problem) == (413, "body-too-large")
    assert len(upstream.effects()) == 1


def test_a_length_over_the_limit_is_refused_before_the_body_comes(gateway, upstream):
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", keyed("k", ("Content-Length", str(1 << 40)))))
        assert connection.receive().problem == "body-too-large"
    assert upstream.effects() == []


def test_a_body_without_a_length_is_cut_off_at_the_limit(start, upstream):
    gateway = start(config_for(upstream, body_size="64KiB"))
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with gateway.connect() as connection:
        connection.send(request_bytes("POST", "/orders", [("Idempotency-Key", "k"), ("Transfer-Encoding", "chunked")]))
        connection.send(chunk + b"1\r\nx\r\n")
        assert connection.receive().problem == "body-too-large"
        with pytest.raises(OSError):
            for _ in range(1 << 14):  # 1 GiB: it does not read on for ever
                connection.send(chunk)
    assert upstream.effects() == []


def test_answers_in_memory_stay_below_their_limit_and_are_replayed_beyond_it(start, upstream):
    gateway = start(config_for(upstream, limits="{replay_cache: 64KiB}"))
    upstream.answer = lambda r: Answer(200, [], r.get("Idempotency-Key").encode() * 500)
    keys = [f"k-{i:03}" for i in range(200)]
    for expected in ("executed", "replayed"):
        with gateway.connect() as connection:
            for key in keys:
                answer = connection.request("POST", "/orders", keyed(key), b"{}")
                assert (answer.marker, answer.body) == (expected, key.encode() * 500)
        assert 0 < gateway.metric("hapax_cache_bytes") <= 64 * 1024
    assert len(upstream.effects()) == 200


def test_operations_beyond_a_routes_limit_are_refused_and_may_come_again(start, upstream):
    gateway = start(config_for(upstream, running="1"))
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    first = threading.Thread(target=gateway.post, args=("/orders", "k-1"))
    first.start()
    wait_until(upstream.effects, "the first runs")
    refused = gateway.post("/orders", "k-2")
    assert (refused.status, refused.problem, refused.json()["retryable"]) == (429, "overloaded", True)
    assert int(refused.get("Retry-After")) >= 1
    release.set()
    first.join()
    assert gateway.post("/orders", "k-2").marker == "executed"


def test_duplicates_beyond_the_limit_of_waiters_are_told_at_once(start, upstream):
    gateway = start(config_for(upstream, limits="{waiters_per_key: 1}", wait="10m"))
    release = threading.Event()
    upstream.answer = Answer(201, wait=release)
    threads = [threading.Thread(target=gateway.post, args=("/orders", "k")) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: gateway.metric("hapax_waiters") == 1, "one runs, one waits")
    assert gateway.post("/orders", "k").problem == "in-progress"
    release.set()
    for thread in threads:
        thread.join()
    assert len(upstream.effects()) == 1


def test_a_slow_operation_holds_up_no_other(gateway, upstream):
    release = threading.Event()
    upstream.answer = lambda r: Answer(201, wait=release if r.get("Idempotency-Key") == "slow" else None)
    slow = [threading.Thread(target=gateway.post, args=("/orders", "slow")) for _ in range(8)]
    for thread in slow:
        thread.start()
    wait_until(lambda: gateway.metric("hapax_waiters") == 7, "one runs, seven wait")
    for i in range(20):
        assert gateway.post("/orders", f"k-{i}").marker == "executed"
    assert all(thread.is_alive() for thread in slow)
    release.set()
    for thread in slow:
        thread.join()


# --- The store -------------------------------------------------------------------------------------


@pytest.fixture
def pair(start, upstream, tmp_path):
    """Two gateways, two processes, one store."""
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(start(config_for(upstream), tmp_path / name, store=f"sqlite:{tmp_path}/shared.db"))
    return made


def test_two_processes_on_one_store_make_one_effect(pair, upstream):
    upstream.answer = lambda r: Answer(201, [], b"%d" % r.number, delay_s=0.3)
    for round_number in range(5):
        answers = at_once(8, lambda i: pair[i % 2].post("/orders", f"k-{round_number}"))
        assert {(a.status, a.body) for a in answers} == {(201, b"%d" % (round_number + 1))}
        assert [a.marker for a in answers].count("executed") == 1
    assert len(upstream.effects()) == 5


def test_each_of_two_processes_knows_what_the_other_did(pair, upstream):
    first, second = pair
    upstream.answer = lambda r: Answer(200, [], b"m" * (2 << 20)) if r.target == "/large" else numbered(r)
    first.post("/orders", "k")
    assert second.post("/orders", "k").marker == "replayed"
    assert second.post("/orders", "k", b"{}").problem == "key-reused"
    second.post("/large", "k")
    assert first.post("/large", "k").problem == "answer-not-kept"
    assert len(upstream.effects()) == 2


def test_expired_records_go_while_traffic_never_stops(start, upstream):
    gateway = start(config_for(upstream, ttl="200ms", lease="200ms"))
    sent = 0

    def expired():
        nonlocal sent
        with gateway.connect() as connection:
            for _ in range(20):
                connection.request("POST", "/orders", keyed(f"k-{sent}"), b"{}")
                sent += 1
        return gateway.metric("hapax_records_expired_total") >= 100

    wait_until(expired, "a hundred records have expired and gone")
    assert len(upstream.effects()) == sent


def test_one_event_delivered_forty_six_times_has_one_effect(gateway, upstream):
    answers = [gateway.post("/orders", "k") for _ in range(46)]
    assert [a.marker for a in answers] == ["executed"] + ["replayed"] * 45
    assert len(upstream.effects()) == 1
