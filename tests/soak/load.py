"""A mixed load on one or more gateways, and the books that say whether each key took effect once.

Each client draws one action after the other (a fresh key and its repeats, duplicates at once, other content under
one key, streams, large bodies and answers, clients that leave, answers that are lost, ...) and checks every answer
it gets. What holds for each key, whatever is killed or reloaded meanwhile:

  - an answer is one that the upstream gave to this very key, and each of them is told as `executed` at most once;
  - the k-th effect of a key does not come before k-1 times `ttl` have passed since it was first asked for, unless
    something freed the key in between: an upstream that said "not executed", or an operator who did."""

import collections
import hashlib
import json
import pathlib
import random
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "blackbox"))
from harness import Answer, Connection, Ended, Upstream, request_bytes

JSON = ("Content-Type", "application/json")
KEEP_BODY = 64 * 1024
STREAM = bytes(range(256)) * 1200
FORGET_S = 60  # a key that nobody has used for so long is checked and forgotten
SLACK_S = 0.005  # the store counts whole milliseconds


class Broken(AssertionError):
    """A promise was."""


# --- The books -------------------------------------------------------------------------------------


class Key:
    def __init__(self):
        self.asked = self.used = time.time()
        self.effects = []  # when
        self.freed = 0
        self.executed = set()  # effects told as executed


class Books:
    def __init__(self, ttl_s):
        self.ttl_s = ttl_s
        self.lock = threading.Lock()
        self.keys = {}
        self.counts = collections.Counter()
        self.failures = []
        self.ended = 0  # keys that were checked and forgotten

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def fail(self, text):
        with self.lock:
            self.failures.append(text)

    def ask(self, name):
        with self.lock:
            self.keys.setdefault(name, Key()).used = time.time()

    def free(self, name):
        with self.lock:
            if name in self.keys:
                self.keys[name].freed += 1

    def effect(self, name, frees):
        """The upstream did it; the number of the effect."""
        with self.lock:
            key = self.keys.get(name)
            if key is None:
                self.failures.append(f"{name}: an effect of a key that nobody asks for any more")
                return 0
            key.effects.append(time.time())
            number = len(key.effects)
            self.check(name, key)
            key.freed += frees
            return number

    def check(self, name, key):
        earliest = key.asked + (len(key.effects) - 1 - key.freed) * self.ttl_s - SLACK_S
        if key.effects and key.effects[-1] < earliest:
            self.failures.append(f"{name}: effect {len(key.effects)} came {earliest - key.effects[-1]:.3f} s too early")

    def told(self, name, answer):
        """Of an answer 201."""
        body = json.loads(answer.body)
        with self.lock:
            key = self.keys[name]
            if body["key"] != name or not 1 <= body["effect"] <= len(key.effects):
                self.failures.append(f"{name}: told {answer.body[:80]}, of {len(key.effects)} effects")
            elif answer.marker == "executed":
                if body["effect"] in key.executed:
                    self.failures.append(f"{name}: effect {body['effect']} told as executed twice")
                key.executed.add(body["effect"])

    def forget_old(self):
        with self.lock:
            limit = time.time() - FORGET_S
            for name in [n for n, k in self.keys.items() if k.used < limit]:
                del self.keys[name]
                self.ended += 1


# --- The upstream ----------------------------------------------------------------------------------


class Shop(Upstream):
    """Writes its effects into the books; the header X-Do says how it answers."""

    def __init__(self, books):
        super().__init__(self.act)
        self.books = books

    def act(self, request):
        with self.lock:
            self.requests.clear()  # the books remember what counts
        if request.target.startswith("/open"):
            return self.stream(request)
        do = request.get("X-Do") or "plain"
        name = request.get("Idempotency-Key")
        number = self.books.effect(name, frees=do == "busy")
        body = json.dumps({"key": name, "effect": number}).encode()
        if do == "busy":
            return Answer(503, [], body)
        if do == "lost":
            return Answer(action="close")
        if do in ("large", "huge"):
            body += b" " * (KEEP_BODY // 2 if do == "large" else KEEP_BODY * 3)
        return Answer(201, [JSON], body, delay_s=0.2 if do == "slow" else 0.0, chunked=do == "chunked")

    def stream(self, request):
        if request.method == "GET":
            return Answer(200, [], STREAM, chunked=True)
        return Answer(200, [], hashlib.sha256(request.body).hexdigest().encode())


# --- Clients ---------------------------------------------------------------------------------------


class Client(threading.Thread):
    """One client. `gateways` are those it uses; `steady` says that none of them is ever stopped, so that a broken
    connection or a refusal is an error."""

    def __init__(self, books, gateways, number, stopping, steady):
        super().__init__(name=f"client {number}")
        self.books, self.gateways, self.number, self.stopping, self.steady = books, gateways, number, stopping, steady
        self.random = random.Random(number)
        self.made = 0
        self.connection = None

    # Weights; each action counts under its name, and a run in which one never came is no proof.
    ACTIONS = {"fresh": 30, "at_once": 10, "mismatch": 8, "stream_down": 6, "stream_up": 5, "large": 5, "huge": 3,
               "leave": 8, "leave_in_body": 3, "leave_in_stream": 3, "lost": 3, "busy": 4, "bad": 4, "ask_admin": 4,
               "slow": 4}

    def run(self):
        names, weights = zip(*self.ACTIONS.items())
        while not self.stopping.is_set():
            name = self.random.choices(names, weights)[0]
            gateway = self.random.choice(self.gateways)
            try:
                getattr(self, name)(gateway)
                self.books.count(name)
            except (Ended, OSError) as error:
                self.drop()
                if self.steady:
                    self.books.fail(f"{name}: the connection broke: {error!r}")
                self.books.count("connection broke")
                self.stopping.wait(0.02)  # the gateway is down: no need to ask faster than it starts
            except Exception as error:
                self.drop()
                self.books.fail(f"{name}: {error!r}")
        self.drop()

    def drop(self):
        if self.connection is not None:
            self.connection[1].close()
        self.connection = None

    def new_key(self):
        self.made += 1
        name = f"c{self.number}-{self.made}"
        self.books.ask(name)
        return name

    def kept(self, gateway):
        """A connection that is used again, as clients do."""
        if self.connection is None or self.connection[0] != gateway.port or self.random.random() < 0.05:
            self.drop()
            self.connection = (gateway.port, gateway.connect())
        return self.connection[1]

    @staticmethod
    def message(name, do="plain", body=b'{"amount":100}'):
        return request_bytes("POST", "/orders", [JSON, ("Idempotency-Key", name), ("X-Do", do)], body)

    def post(self, gateway, name, do="plain", body=b'{"amount":100}'):
        connection = self.kept(gateway)
        connection.send(self.message(name, do, body))
        answer = connection.receive()
        if answer.get("Connection") == "close":
            self.drop()
        return self.judged(name, answer)

    def judged(self, name, answer):
        """Count an answer and see that it is one that may be."""
        self.books.count(f"{answer.status} {answer.problem or answer.marker}")
        if answer.status == 201:
            self.books.told(name, answer)
        elif self.steady and answer.status == 503 and answer.problem and not self.too_slow(answer):
            raise Broken(f"{name}: refused: {answer.body}")
        elif answer.status not in (409, 422, 502, 503, 504):
            raise Broken(f"{name}: {answer.start}")
        return answer

    @staticmethod
    def too_slow(answer):
        """A machine may be so slow that a commit outlasts the short lease: then it says so, and did nothing."""
        return answer.problem == "store-unavailable" and "longer for the claim than its lease" in answer.json()["detail"]

    def expect(self, answer, *allowed):
        """Where nothing is ever stopped, the answer is known. A lease that was lost to a slow machine is safe."""
        seen = answer.problem or answer.marker
        if seen in ("outcome-unknown", "in-progress") or self.too_slow(answer):
            self.books.count("unsure")
        elif self.steady and seen not in allowed:
            raise Broken(f"expected {allowed}, got {answer.start} {answer.marker} {answer.body[:200]}")

    def fresh(self, gateway, do="plain", body=b'{"amount":100}'):
        name = self.new_key()
        self.expect(self.post(gateway, name, do, body), "executed")
        for _ in range(self.random.randrange(3)):
            self.expect(self.post(self.random.choice(self.gateways), name, do, body), "replayed", "executed")
        return name

    def at_once(self, gateway, do="plain"):
        name = self.new_key()
        connections = []
        try:
            for _ in range(4):
                connections.append(self.random.choice(self.gateways).connect())
                connections[-1].send(self.message(name, do))
            for connection in connections:
                self.expect(self.judged(name, connection.receive()), "executed", "attached", "replayed")
        finally:
            for connection in connections:
                connection.close()

    def slow(self, gateway):
        self.at_once(gateway, "slow")

    def mismatch(self, gateway):
        name = self.fresh(gateway)
        self.expect(self.post(gateway, name, body=b'{"amount":101}'), "key-reused", "executed")

    def large(self, gateway):
        self.fresh(gateway, "large", b'{"note":"%s"}' % (b"x" * 150_000))

    def huge(self, gateway):
        name = self.new_key()
        self.expect(self.post(gateway, name, "huge"), "executed")
        self.expect(self.post(gateway, name, "huge"), "answer-not-kept", "executed")

    def lost(self, gateway):
        name = self.new_key()
        self.expect(self.post(gateway, name, "lost"))
        self.expect(self.post(gateway, name), "executed", "replayed")  # an operator may have been here already

    def busy(self, gateway):
        name = self.new_key()
        self.expect(self.post(gateway, name, "busy"), "released")
        self.expect(self.post(gateway, name, "chunked"), "executed")

    def leave(self, gateway):
        name = self.new_key()
        connection = gateway.connect()
        connection.send(self.message(name, self.random.choice(["plain", "slow"])))
        if self.random.random() < 0.5:
            connection.reset()
        connection.close()
        self.expect(self.post(gateway, name), "executed", "attached", "replayed")

    def leave_in_body(self, gateway):
        name = self.new_key()
        connection = gateway.connect()
        connection.send(self.message(name, body=b'{"note":"%s"}' % (b"x" * 50_000))[:-20_000])
        connection.reset()
        self.expect(self.post(gateway, name), "executed")

    def stream_down(self, gateway):
        answer = self.kept(gateway).request("GET", "/open")
        if answer.status != 200 or answer.body != STREAM:
            self.refused(answer, "a stream came changed")

    def stream_up(self, gateway):
        digest = hashlib.sha256(STREAM).hexdigest().encode()
        pieces = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (STREAM[:70_000], STREAM[70_000:])) + b"0\r\n\r\n"
        answer = self.kept(gateway).request("POST", "/open", [("Transfer-Encoding", "chunked")], pieces)
        if answer.status != 200 or answer.body != digest:
            self.refused(answer, "an upload came changed")

    def refused(self, answer, complaint):
        self.drop()
        if self.steady or not answer.problem:
            raise Broken(f"{complaint}: {answer.start}, {len(answer.body)} bytes")

    def leave_in_stream(self, gateway):
        connection = gateway.connect()
        connection.send(request_bytes("GET", "/open"))
        connection.reader.until(b"\r\n\r\n")
        connection.reset()

    def bad(self, gateway):
        with gateway.connect() as connection:
            answer = connection.request("POST", "/orders", [JSON], b"{}")
            if answer.problem != "key-missing":
                self.refused(answer, "no key")
            connection.send(b"POST /orders HTTP/1.1\r\nHost : x\r\n\r\n")
            if connection.receive().status != 400:
                raise Broken("a malformed head was taken")

    def ask_admin(self, gateway):
        for target in ("/metrics", "/readyz", "/healthz"):
            gateway.admin(target)
        gateway.operation("orders POST /orders -", f"c{self.number}-{self.made}")


# --- Everybody else --------------------------------------------------------------------------------


class Operator(threading.Thread):
    """Settles unknown outcomes with `hapax keys`, by turns as done and as not executed."""

    def __init__(self, books, gateway, stopping):
        super().__init__(name="operator")
        self.books, self.gateway, self.stopping = books, gateway, stopping
        self.turn = 0

    def run(self):
        while not self.stopping.wait(0.5):
            try:
                self.settle(20)
                self.books.forget_old()
            except Exception as error:
                self.books.fail(f"operator: {error!r}")

    def settle(self, limit):
        """How many there were."""
        listed = self.gateway.cli("keys", "list", "--state", "unknown", "--id", "--json", "--limit", str(limit))
        if listed.returncode != 0:
            raise Broken(f"hapax keys list: {listed.returncode} {listed.stderr}")
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        for row in rows:
            self.turn += 1
            if self.turn % 2:
                self.books.free(row["key"])
                how = ["--released"]
            else:
                how = ["--done", "--status", "200", "--body", "settled"]
            done = self.gateway.cli("keys", "resolve", "--id", row["id"], *how)
            if done.returncode not in (0, 3, 4):  # a client's retry may have been faster
                raise Broken(f"hapax keys resolve: {done.returncode} {done.stderr}")
            self.books.count("resolved")
        return len(rows)


def config(upstream, ttl_s, reload=0):
    """Every second configuration differs, so that a reload has something to do."""
    return f"""threads: 2
timeouts: {{store: 60s, shutdown: 20s}}
limits: {{replay_cache: 2MiB}}
defaults: {{to: "{upstream.url}", connect_timeout: 20s, upstream_connections: 64}}
routes:
  - name: orders
    path: /orders
    ttl: {int(ttl_s * 1000)}ms
    lease: {int(ttl_s * 1000)}ms
    keep_body: {KEEP_BODY}
    timeout: {60 + reload % 2}s
  - name: open
    path: /open
    protect: []
"""


def reload(gateway, upstream, ttl_s, number):
    """Without waiting for it: what comes next may be the next one, or a stop."""
    gateway.write_config(config(upstream, ttl_s, number))
    gateway.process.send_signal(signal.SIGHUP)


def alive(gateway):
    code = gateway.process.poll()
    if code is not None:
        raise Broken(f"a gateway ended with {code}: {gateway.log_text()[-2000:]}")


def sanitizer_reports(folder):
    """From the logs of all gateways: the reason behind whatever else went wrong."""
    for log in sorted(folder.glob("*/hapax.log")):
        text = log.read_text()
        at = text.find("WARNING: ThreadSanitizer")
        if at >= 0:
            yield f"{log.parent.name}: {text[at:at + 6000]}"


def nothing_is_left(gateway):
    """Of a gateway whose clients are gone and whose operations have ended: what it holds by its own account."""
    names = ("hapax_waiters", "hapax_queued", "hapax_body_bytes", "hapax_connections")
    return {n: v for n in names if (v := gateway.metric(n)) != 0} | (
        {"running": v} if (v := gateway.metric("hapax_running", route="orders")) != 0 else {})


def report_and_judge(books, expected):
    """Print what came how often; the reasons why the run is no success."""
    width = max(map(len, books.counts), default=0)
    for name, n in sorted(books.counts.items()):
        print(f"  {name.ljust(width)}  {n:>8,}")
    missing = [f"the load never had: {name}" for name in expected if books.counts[name] == 0]
    return books.failures or missing  # a run that ended early says why, not what it missed
