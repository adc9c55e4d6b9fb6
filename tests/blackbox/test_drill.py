"""`hapax drill` as a command: options, counters, reports, exit codes. That it catches what is wrong is tested in
tests/drill, with servers that are wrong on purpose."""

import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import threading
import time

import pytest
from harness import HAPAX, PATIENCE_S, Answer, Upstream, wait_until
from test_tls import Authority, server_context

BODY = '{"order":"{unique}","amount":5}'
FAST = ["--settle", "5ms", "--settle-max", "300ms", "--recover", "1s"]


class Endpoint(Upstream):
    """Right as far as `once` lets it: an effect a key, or one for each request. The key is a header or the body's id."""

    def __init__(self, once=True, log=None, **more):
        self.once, self.log = once, log
        self.work = threading.Lock()
        self.done = {}
        self.count = 0
        super().__init__(self.respond, **more)

    @property
    def orders(self):
        return f"{self.url}/orders"

    @property
    def counter(self):
        return f"{self.url}/count#/orders/total"

    def respond(self, request):
        if request.target == "/count":
            return Answer(200, [], json.dumps({"orders": {"total": self.count}}).encode())
        try:
            body = json.loads(request.body or b"{}")
        except ValueError:
            return Answer(400, [], b"no JSON")
        keys = request.all("Idempotency-Key") or [str(body.pop("id", ""))]
        if len(keys) != 1 or len(keys[0].strip('"')) not in range(1, 256) or not keys[0].isascii():
            return Answer(400, [], b"a key is needed")
        with self.work:
            if keys[0] in self.done and self.once:
                first, answer = self.done[keys[0]]
                return answer if first == body else Answer(422, [], b"another payload")
            self.effect(keys[0])
            self.done[keys[0]] = body, Answer(201, [("Location", f"/orders/{self.count}")], b'{"n":%d}' % self.count)
            return self.done[keys[0]][1]

    def effect(self, key):
        self.count += 1
        if self.log:
            with open(self.log, "a") as log:
                log.write(f"order made for {key}\n")


@pytest.fixture
def endpoint():
    server = Endpoint()
    yield server
    server.close()


@pytest.fixture
def naive():
    server = Endpoint(once=False)
    yield server
    server.close()


def drill(*arguments, code=0, **more):
    done = subprocess.run([HAPAX, "drill", *arguments], capture_output=True, text=True, timeout=4 * PATIENCE_S, **more)
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done


def against(server, *arguments, code=0, body=BODY, **more):
    return drill("POST", server.orders, "-d", body, *FAST, *arguments, code=code, **more)


def report(server, *arguments, **more):
    found = json.loads(against(server, "-e", server.counter, "--json", *arguments, **more).stdout)
    found["by_id"] = {c["id"]: c for c in found["cases"]}
    return found


# --- What is asked -----------------------------------------------------------------------------------


def test_a_right_endpoint_holds_in_all_that_applies(endpoint):
    found = report(endpoint, "--skip", "series.*")
    assert found["verdicts"]["broken"] == found["verdicts"]["inconclusive"] == 0
    assert found["verdicts"]["holds"] > 70 and found["stopped"] is None
    matrix = [c for c in found["cases"] if c["group"] == "matrix"]
    assert len(matrix) == 2 * 3 ** 4 == len({tuple(c["axes"].values()) for c in matrix})
    assert all(c["id"] == ".".join(c["axes"].values()) for c in matrix)
    for case in found["cases"]:
        assert (case["requests"] > 0) == (case["curl"] != "") and (case["requests"] > 0 or case["verdict"] == "not applicable")
        assert case["what"] or case["verdict"] == "holds"
        assert sum(s["times"] for s in case["statuses"]) == case["requests"]
    assert found["requests"] == sum(c["requests"] for c in found["cases"])
    cut = [c for c in matrix if c["axes"]["delivery"] == "request-lost" and c["requests"]]
    assert found["requests"] == len([r for r in endpoint.requests if r.target == "/orders"]) + len(cut)


def test_one_that_knows_no_keys_is_broken_wherever_something_comes_twice(naive):
    found = report(naive, "--skip", "series.*,*.request-lost.*", code=1)
    for case in found["cases"]:
        if case["group"] in ("repeats", "matrix") and case["requests"]:
            assert case["verdict"] == "broken", case
    hundred = found["by_id"]["repeats.100-at-once"]
    assert hundred["effects"] == {"least": 1, "most": 1, "seen": 101} and "101 effects instead of 1" in hundred["what"]


def test_a_plan_sends_nothing(endpoint):
    plan = against(endpoint, "-e", endpoint.counter, "--dry-run").stdout
    assert "once.read.same.here.after" in plan and "there is no --tenant-header" in plan and "nothing was sent" in plan
    assert endpoint.requests == []
    ids = drill("--list").stdout.split("\n")
    assert len(ids) > 243 + 20


def test_only_what_is_named_is_run(endpoint):
    found = report(endpoint, "--only", "keys.*,once.read.*.here.after", "--skip", "keys.8-kib")
    ids = [c["id"] for c in found["cases"] if c["group"] != "check"]
    assert "keys.8-kib" not in ids and "keys.256-bytes" in ids and "once.read.other.here.after" in ids
    assert all(i.startswith(("keys.", "once.read.")) for i in ids)
    against(endpoint, "-e", endpoint.counter, "--only", "no.such", code=2)


@pytest.mark.parametrize("arguments, said", [
    (["POST", "http://127.0.0.1:1/"], "how effects are counted"),
    (["POST", "http://127.0.0.1:1/", "--effect-cmd", "echo 1", "--effect-log", "x"], "how effects are counted"),
    (["POST", "ftp://127.0.0.1:1/", "--effect-cmd", "echo 1"], "http://"),
    (["POST", "http://me:secret@127.0.0.1:1/", "--effect-cmd", "echo 1"], "no user or password"),
    (["POST", "http://192.0.2.1/", "--effect-cmd", "echo 1"], "--yes-remote"),
    (["POST", "http://127.0.0.1:1/", "--other-url", "http://192.0.2.1/", "--effect-cmd", "echo 1"], "--yes-remote"),
    (["POST", "https://192.0.2.1/", "--yes-remote", "--insecure", "--effect-cmd", "echo 1"], "--insecure"),
    (["POST", "http://127.0.0.1:1/", "--effect-url", "http://192.0.2.1/#/n"], "--yes-remote"),
    (["POST", "http://127.0.0.1:1/", "--effect-cmd", "echo 1", "--final-url", "http://192.0.2.1/"], "--yes-remote"),
    (["POST", "http://127.0.0.1:1/", "--yes-remote", "--insecure", "--effect-url", "https://192.0.2.1/#/n"], "--insecure"),
    (["POST", "http://127.0.0.1:1/", "--yes-remote", "--insecure", "--effect-cmd", "echo 1", "--final-url",
      "https://192.0.2.1/"], "--insecure"),
    (["POST", "http://127.0.0.1:1/", "--effect-cmd", "echo 1", "-H", "no colon"], "Name: value"),
    (["POST", "http://127.0.0.1:1/", "--effect-cmd", "echo 1", "-H", "Content-Length: 5"], "own business"),
    (["POST", "http://127.0.0.1:1/", "--effect-cmd", "echo 1", "-d", "@/no/such/file"], "can't read"),
    (["POST", "http://127.0.0.1:1/", "--effect-cmd", "echo 1", "--settle", "soon"], "duration"),
    (["POST", "http://127.0.0.1:1/", "--effect-cmd", "echo 1", "--json", "--tap", "-"], "one report"),
    (["POST", "http://127.0.0.1:1/", "--effect-url", "http://127.0.0.1:1/#no-slash"], "ointer"),
])
def test_a_wrong_command_line_is_told_before_anything_is_sent(arguments, said):
    done = drill(*arguments, code=2)
    assert said in done.stderr and done.stdout == "" and "secret" not in done.stderr


def test_events_need_a_fresh_state(tmp_path, endpoint):
    for name in ("1", "2"):
        (tmp_path / name).write_text("{}")
    more = ["-e", endpoint.counter, "--events", tmp_path]
    assert "--final-url" in against(endpoint, *more, code=2).stderr
    assert "--reset-cmd" in against(endpoint, *more, "--final-url", endpoint.url, code=2).stderr


def test_a_final_state_that_can_not_be_read_is_told_without_its_query(tmp_path, endpoint):
    for name in ("1", "2"):
        (tmp_path / name).write_text('{"order":"{unique}"}')
    found = report(endpoint, "--events", tmp_path, "--final-url", endpoint.url + "/state/{unique}?token=hush#/status",
                   "--only", "events.twice", code=1)
    case = found["by_id"]["events.twice"]
    assert case["verdict"] == "inconclusive" and case["what"].endswith(f"at 127.0.0.1:{endpoint.port} is answered with 400")
    assert case["what"].startswith("GET /state/") and "hush" not in json.dumps(found) and "$TOKEN" in case["curl"]


# --- Counters ----------------------------------------------------------------------------------------


def test_effects_are_counted_by_a_command(endpoint):
    command = f"curl -s {endpoint.url}/count | tr -dc 0-9"
    against(endpoint, "--effect-cmd", command, "--only", "once.read.same.here.after")
    assert "no whole number" in against(endpoint, "--effect-cmd", "echo many", code=5).stderr
    assert "exit code 3" in against(endpoint, "--effect-cmd", "exit 3", code=5).stderr


def test_effects_are_counted_by_the_lines_of_a_log(tmp_path, naive):
    naive.log = tmp_path / "log"
    naive.log.write_text("a line of somebody else's\n" * 10)
    done = against(naive, "--effect-log", naive.log, "--only", "series.read.same.here.after", "--json", code=1)
    assert json.loads(done.stdout)["cases"][1]["effects"]["seen"] == 10
    naive.once = True
    naive.log = tmp_path / "not-there-yet"
    against(naive, "--effect-log", naive.log, "--only", "series.read.same.here.after")


def rename(path):
    path.rename(path.with_suffix(".1"))
    path.touch()


def empty(path):
    os.truncate(path, 0)


class Rotating(Endpoint):
    """Has its log rotated before its third effect."""

    def __init__(self, rotate, **more):
        self.rotate = rotate
        super().__init__(**more)

    def effect(self, key):
        if self.count == 2:
            self.rotate(self.log)
        super().effect(key)


@pytest.mark.parametrize("rotate", [rename, empty, pathlib.Path.unlink], ids=["renamed", "cut", "removed"])
def test_a_log_that_was_rotated_proves_nothing(tmp_path, rotate):
    server = Rotating(rotate, log=tmp_path / "log")
    try:
        server.log.write_text("a line of somebody else's, long enough\n" * 100)
        done = against(server, "--effect-log", server.log, "--only", "once.read.same.here.*", "--json", code=1)
        cases = [c for c in json.loads(done.stdout)["cases"] if c["verdict"] != "not applicable"]
        verdicts = [c["verdict"] for c in cases]
        first = verdicts.index("inconclusive")
        assert 0 < first < len(cases) and set(verdicts) == {"holds", "inconclusive"}
        assert set(verdicts[first:]) == {"inconclusive"} and "replaced or cut" in cases[first]["what"]
    finally:
        server.close()


class Jumping(Endpoint):
    """Its counter goes beyond all bounds with the second effect."""

    def effect(self, key):
        self.count = self.count + 1 if self.count < 0 else 2 ** 63 - 1


def test_a_counter_beyond_all_bounds_proves_nothing():
    server = Jumping()
    server.count = -2 ** 63
    try:
        assert "beyond 10^18" in against(server, "-e", server.counter, code=5).stderr
        server.count = -1
        found = report(server, "--only", "once.read.same.here.after", code=1)["cases"]
        assert [c["verdict"] for c in found][:2] == ["holds", "inconclusive"] and "beyond 10^18" in found[1]["what"]
    finally:
        server.close()


class Failing(Endpoint):
    """Can't be counted when it is asked for the n-th time since its third effect."""

    def __init__(self, fails, **more):
        self.fails, self.asked = fails, 0
        super().__init__(**more)

    def respond(self, request):
        if request.target == "/count" and self.count >= 3:
            self.asked += 1
            if self.asked == self.fails:
                return Answer(500)
        return super().respond(request)


def test_whichever_reading_fails_too_many_effects_are_broken_only_if_all_are_read():
    """One of them is that which watches whether somebody else moves the counter."""
    verdict = None
    fails = 0
    while verdict != "broken":
        fails += 1
        server = Failing(fails, once=False)
        try:
            found = report(server, "--profile", "queue", "--only", "once.read.same.here.after", code=1)
            case = found["by_id"]["once.read.same.here.after"]
            verdict = case["verdict"]
            assert (verdict == "inconclusive") == ("answered with 500" in case["what"]), case
        finally:
            server.close()
    assert fails > 2


def test_a_counter_that_stands_still_ends_it_at_once(endpoint):
    done = against(endpoint, "--effect-cmd", "echo 7", code=1)
    assert "the counter is wrong" in done.stdout and "It ended early" in done.stdout
    assert len(endpoint.requests) == 1


def test_an_endpoint_that_refuses_the_request_ends_it_at_once(endpoint):
    done = drill("POST", endpoint.orders, "-d", "{}", "-e", endpoint.counter, "--key-header", "X-Key", *FAST, code=1)
    assert 'refused with 400: "a key is needed"' in done.stdout


def test_effects_that_come_later_than_is_waited_for_are_noticed(tmp_path, endpoint):
    """The counter is a file; an effect is added to it once the drill has seen it stand still."""
    script = tmp_path / "count"
    script.write_text(f"""#!/bin/sh
n=$(curl -s {endpoint.url}/count | tr -dc 0-9)
echo x >> {tmp_path}/asked
[ $(wc -l < {tmp_path}/asked) -lt 6 ] && echo $n || echo $((n + 1))
""")
    script.chmod(0o755)
    found = json.loads(against(endpoint, "--effect-cmd", script, "--only", "no*,once.read.same.here.right-away", "--json",
                               code=1).stdout)
    check = found["cases"][0]
    assert check["verdict"] == "inconclusive" and "after it had been still" in check["what"], check


def test_nobody_there_is_exit_code_5(endpoint):
    gone = Upstream()
    gone.close()
    against(endpoint, "-e", gone.url, code=5)
    done = drill("POST", gone.url, "-e", endpoint.counter, code=5)
    assert "can't connect" in done.stderr and done.stdout == ""


# --- Keys, profiles, TLS -----------------------------------------------------------------------------


def test_a_key_in_the_body_is_followed_there(endpoint):
    found = report(endpoint, "--profile", "webhook", "--skip", "series.*,at-once.*", body='{"id":"{key}","amount":5}')
    assert found["verdicts"]["broken"] == 0 and found["verdicts"]["holds"] > 30
    assert found["by_id"]["keys.missing"]["verdict"] == "not applicable"
    assert all(r.get("Idempotency-Key") is None for r in endpoint.requests)


@pytest.mark.parametrize("profile", ["draft", "stripe"])
def test_a_profile_says_how_another_payload_is_refused(endpoint, profile):
    found = report(endpoint, "--profile", profile, "--only", "once.read.other.here.after", code=0 if profile == "draft" else 1)
    what = found["by_id"]["once.read.other.here.after"]["what"]
    assert ("422" in what and "400 was expected" in what) == (profile == "stripe")
    quoted = [r.get("Idempotency-Key").startswith('"') for r in endpoint.requests if r.method == "POST"]
    assert quoted and all(q == (profile == "draft") for q in quoted)


def test_https_is_verified_unless_told_otherwise(tmp_path):
    authority = Authority(tmp_path, "authority")
    server = Endpoint(tls=server_context(authority.issue("good", "DNS:localhost")))
    try:
        only = ["--only", "once.*.same.here.after"]
        report(server, *only, "--ca", authority.path)
        report(server, *only, "--insecure")
        assert "TLS: " in against(server, "-e", server.counter, *only, code=5).stderr
    finally:
        server.close()


class LateReader(Endpoint):
    """Shakes hands at once, then takes its time. Notes whether connections were reset meanwhile."""

    def __init__(self, **more):
        self.errors = {}
        super().__init__(**more)

    def one(self, sock, reader):
        time.sleep(0.1)
        self.errors.setdefault(sock, sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        return super().one(sock, reader)


def test_over_https_too_a_request_whose_reply_is_lost_arrives(tmp_path):
    """The server speaks of itself there; what of that lies unread must not reset the connection under the request."""
    authority = Authority(tmp_path, "authority")
    server = LateReader(tls=server_context(authority.issue("good", "DNS:localhost")))
    try:
        found = report(server, "--only", "once.reply-lost.same.here.*", "--ca", authority.path)
        arrived = [r for r in server.requests if r.target == "/orders"]
        assert found["verdicts"]["holds"] == 4 and len(arrived) == found["requests"]
        assert set(server.errors.values()) == {0}
    finally:
        server.close()


# --- Reports -----------------------------------------------------------------------------------------


def test_credentials_are_in_no_report(tmp_path, naive):
    files = {name: tmp_path / name for name in ("junit", "tap", "html")}
    more = [word for name, path in files.items() for word in (f"--{name}", path)]
    secrets = ["-H", "Authorization: Bearer hush-1", "-H", "apikey: hush-2", "--tenant-header", "Authorization: Bearer hush-3",
               "--effect-header", "Authorization: Bearer hush-4"]
    only = ["--only", "once.read.*,keys.*"]
    text = against(naive, "-e", naive.counter, *secrets, *only, *more, code=1)
    data = against(naive, "-e", naive.counter, *secrets, *only, "--json", code=1)
    seen = {v for r in naive.requests for v in r.all("Authorization") + r.all("apikey")}
    assert seen == {"Bearer hush-1", "hush-2", "Bearer hush-3", "Bearer hush-4"}
    for output in [text.stdout, text.stderr, data.stdout, data.stderr, *(p.read_text() for p in files.values())]:
        assert "hush" not in output
    assert '"Authorization: $OTHER_AUTHORIZATION"' in data.stdout.replace('\\"', '"')


@pytest.mark.parametrize("case, effects", [
    ("once.read.same.here.right-away", 3),
    ("series.request-lost.same.here.right-away", 5),
    ("at-once.read.reordered.here.during", 6),
    ("once.read.other.here.right-away", 3),
    ("keys.8-kib", 0),
    ("keys.two-different", 0),
    ("keys.missing", 0),
    ("repeats.race", 8),
])
def test_a_shell_line_does_it_again(naive, case, effects):
    """In bash, with effects counted as the drill counts them. Its confirmations are a part of what is sent."""
    found = report(naive, "--only", case, "--rounds", "2", "--times", "4", code=0 if effects == 0 else 1)["by_id"][case]
    before, seen = naive.count, len(naive.requests)
    subprocess.run(["bash", "-c", found["curl"]], check=False, capture_output=True, timeout=PATIENCE_S)
    again = [r for r in naive.requests[seen:] if r.target == "/orders"]
    assert naive.count - before == effects
    if effects == 0:
        assert [r.get("Idempotency-Key") and len(r.get("Idempotency-Key")) for r in again] == {
            "keys.8-kib": [8194, 8194], "keys.two-different": [38, 38], "keys.missing": [None, None]}[case]


# --- Ends ----------------------------------------------------------------------------------------------


def test_a_plan_that_is_too_large_is_not_begun(endpoint):
    done = against(endpoint, "-e", endpoint.counter, "--requests-max", "30", "--json", code=2)
    assert "--requests-max" in done.stderr and endpoint.requests == []


class Busy(Endpoint):
    """Has every duplicate wait, for ever."""

    def respond(self, request):
        return Answer(409) if request.get("Idempotency-Key") in self.done else super().respond(request)


def test_it_sends_no_more_than_it_may():
    server = Busy()
    try:
        found = report(server, "--only", "once.read.same.here.after", "--requests-max", "4", code=1)
        assert found["requests"] == 4 and "--requests-max" in found["stopped"]
        assert len([r for r in server.requests if r.target == "/orders"]) == 4
    finally:
        server.close()


def test_a_report_that_can_not_be_written_is_told_at_once(endpoint, tmp_path):
    done = against(endpoint, "-e", endpoint.counter, "--html", tmp_path / "no" / "such", code=1)
    assert "can't write" in done.stderr and endpoint.requests == []


@pytest.mark.parametrize("arguments, code", [
    (["--dry-run"], 0), (["--requests-max", "3"], 2), (["--effect-header", "no colon"], 2), (["--only", "no.such"], 2)])
def test_a_run_that_is_not_begun_leaves_no_report(endpoint, tmp_path, arguments, code):
    (tmp_path / "of-before").write_text("kept")
    against(endpoint, "-e", endpoint.counter, "--html", tmp_path / "new", "--tap", tmp_path / "of-before", *arguments, code=code)
    assert os.listdir(tmp_path) == ["of-before"] and (tmp_path / "of-before").read_text() == "kept"
    assert endpoint.requests == []


def test_an_interruption_ends_it_with_what_was_found(endpoint):
    ours, theirs = pty.openpty()
    child = subprocess.Popen([HAPAX, "drill", "POST", endpoint.orders, "-d", BODY, "-e", endpoint.counter, "--json",
                              "--settle", "200ms"], stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    wait_until(lambda: endpoint.count >= 2, "the drill is on its way")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=PATIENCE_S)
    shown = os.read(ours, 65536)
    os.close(ours)
    found = json.loads(out)
    assert child.returncode == 1 and found["stopped"] == "interrupted" and b" of 269" in shown
    verdicts = [c["verdict"] for c in found["cases"]]
    assert verdicts[0] == "holds" and "inconclusive" in verdicts and "broken" not in verdicts
