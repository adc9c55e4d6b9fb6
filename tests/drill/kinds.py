"""The kinds of servers.py: one endpoint that is right, and others that get one decision of it wrong."""

import contextlib
import hashlib
import json
import queue
import re
import sqlite3
import threading
import time
import uuid

WORK_S = 0.005  # what an effect takes
PATIENCE_S = 60
DELIVERIES_MAX = 100
PLACEHOLDER = re.compile(r"undefined|null|none|nan|nil|\[object \w+\]|.*(\{\{.*\}\}|\$\{.*\}|<.*>).*", re.I)


SCHEMA = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS effects (path TEXT, key TEXT);
CREATE TABLE IF NOT EXISTS records (identity TEXT PRIMARY KEY, fingerprint TEXT, answer TEXT);
CREATE TABLE IF NOT EXISTS failed (identity TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER, status TEXT);
"""


class Answer:
    """`headers` is a list of pairs, since a name may come twice."""

    def __init__(self, status, headers=(), body=b""):
        self.status, self.headers, self.body = status, list(headers), body

    def as_text(self):
        return json.dumps([self.status, self.headers, self.body.decode()])

    @staticmethod
    def of_text(text):
        status, headers, body = json.loads(text)
        return Answer(status, [tuple(pair) for pair in headers], body.encode())


def problem(status, title, *headers):
    body = json.dumps({"title": title, "status": status}).encode()
    return Answer(status, [("Content-Type", "application/problem+json"), *headers], body)


class Tables:
    """The database. Every method is one transaction."""

    def __init__(self, file):
        self.lock = threading.Lock()
        self.db = sqlite3.connect(file, check_same_thread=False, timeout=PATIENCE_S)
        self.db.executescript(SCHEMA)

    def rows(self, sql, *values):
        with self.lock:
            return self.db.execute(sql, values).fetchall()

    def commit(self, *statements):
        """Each is (sql, value, ...)."""
        with self.lock, self.db:
            for sql, *values in statements:
                self.db.execute(sql, values)


class Request:
    def __init__(self, path, headers, body):
        self.path, self.headers, self.body = path, headers, body
        self.keys = headers.get_all("Idempotency-Key") or []
        self.tenant = headers.get("Authorization") or ""
        self.wants_failure = headers.get("Fail") == "once"

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return None


# --- The one that is right ---------------------------------------------------------------------------


class Right:
    """Keeps record and effect in one transaction; a duplicate waits for the first and gets its answer. Each
    method is a decision that a subclass can get wrong."""

    key_is_required = True
    takes_what_was_cut = False
    failure_status = 503

    def __init__(self, tables, traffic, options):
        self.tables, self.traffic, self.options = tables, traffic, options
        self.locks = {}
        self.locks_lock = threading.Lock()
        self.executions = self.working = 0
        self.late = queue.Queue()
        if options.late:
            threading.Thread(target=self.work_late, daemon=True).start()

    def work_late(self):
        while True:
            statement = self.late.get()
            time.sleep(self.options.late / 1000)
            self.tables.commit(statement)

    def post(self, request, client):
        """Answers through client.send(answer)."""
        client.send(self.answer(request))

    def answer(self, request):
        if not request.keys and not self.key_is_required:
            return self.execute(request, None, None)
        complaint = self.complaint(request.keys)
        if complaint:
            return problem(400, complaint)
        identity, fingerprint = self.identity(request), self.fingerprint(request)
        with self.alone(identity) as alone:
            if not alone:
                return problem(409, "the first request is still running", ("Retry-After", "1"))
            found = self.find(identity)
            if found is None:
                return self.execute(request, identity, fingerprint)
            first_fingerprint, answer = found
            if first_fingerprint != fingerprint:
                return problem(422, "this key was used with another payload")
            if answer is None:
                return problem(409, "the first request is still running", ("Retry-After", "1"))
            return self.replay(Answer.of_text(answer))

    def complaint(self, keys):
        """What is wrong with the key; None when nothing is."""
        if not keys:
            return "an Idempotency-Key is required"
        if len(set(keys)) > 1:
            return "two Idempotency-Keys"
        return self.complaint_of_value(self.bare(keys[0]))

    def complaint_of_value(self, key):
        if not 1 <= len(key.strip()) <= 255:
            return "a key has 1 to 255 characters"
        if not all(" " <= c <= "~" for c in key):
            return "a key is printable ASCII"
        return "this key is a placeholder" if PLACEHOLDER.fullmatch(key) else None

    @staticmethod
    def bare(key):
        """The value of an RFC 8941 string, or what stands there."""
        match = re.fullmatch(r'"((?:[^"\\]|\\["\\])*)"(;.*)?', key)
        return re.sub(r"\\(.)", r"\1", match[1]) if match else key

    def identity(self, request):
        return json.dumps([request.tenant, request.path, self.bare(request.keys[0])])

    def fingerprint(self, request):
        document = request.json()
        text = request.body if document is None else json.dumps(document, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()

    @contextlib.contextmanager
    def alone(self, identity):
        """Yields True when this thread is the only one at work on the identity, else False."""
        with self.locks_lock:
            lock = self.locks.setdefault(identity, threading.RLock())
        with lock:
            yield True

    def find(self, identity):
        rows = self.tables.rows("SELECT fingerprint, answer FROM records WHERE identity = ?", identity)
        return rows[0] if rows else None

    def execute(self, request, identity, fingerprint):
        answer = self.work(request, identity)
        effect = answer.status < 400
        self.settle(request, identity, fingerprint, answer, effect)
        return answer

    def work(self, request, identity):
        """The answer of an execution, before anything is committed."""
        end = time.monotonic() + PATIENCE_S
        time.sleep(WORK_S)
        while self.options.slow and self.options.slow.exists() and time.monotonic() < end:
            time.sleep(WORK_S)
        self.executions += 1
        if self.executions == self.options.stall:
            self.working += 1
            time.sleep(PATIENCE_S)  # ended by POST /crash
        if request.wants_failure and not self.has_failed(identity or str(request.keys)):
            return problem(self.failure_status, "Unknown error", ("Retry-After", "0"))
        return self.fresh(str(uuid.uuid4()))

    def has_failed(self, identity):
        if self.tables.rows("SELECT 1 FROM failed WHERE identity = ?", identity):
            return True
        self.tables.commit(("INSERT INTO failed VALUES (?)", identity))
        return False

    def fresh(self, number):
        body = json.dumps({"id": number, "at": time.time_ns()}).encode()
        return Answer(201, [
            ("Content-Type", "application/json"), ("Location", f"/orders/{number}"),
            ("Set-Cookie", f"order={number}; HttpOnly"), ("Link", f"</orders/{number}/lines>; rel=lines"),
            ("Link", f"</orders/{number}/bill>; rel=bill"),
        ], body)

    def keeps(self, answer):
        return answer.status < 500

    def settle(self, request, identity, fingerprint, answer, effect):
        statements = self.effect(request) if effect else []
        if self.options.late:
            for statement in statements:
                self.late.put(statement)
            statements = []
        if identity is not None and self.keeps(answer):
            statements.append(("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", identity, fingerprint, answer.as_text()))
        self.tables.commit(*statements)
        if effect and self.options.log:
            with open(self.options.log, "a") as log:
                log.write(f"{request.path} {self.bare(request.keys[0]) if request.keys else '-'}\n")

    def effect(self, request):
        key = request.keys[0] if request.keys else None
        statements = [("INSERT INTO effects VALUES (?, ?)", request.path, key)]
        event = request.json()
        if isinstance(event, dict) and isinstance(event.get("version"), int) and isinstance(event.get("status"), str):
            statements.append(self.event(event["version"], event["status"]))
        return statements

    def event(self, version, status):
        """The newest version wins, whenever it comes."""
        return ("INSERT INTO state VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE SET version = excluded.version, "
                "status = excluded.status WHERE excluded.version > state.version", version, status)

    def replay(self, answer):
        return answer

    def count(self):
        found = dict(self.tables.rows("SELECT path, count(*) FROM effects GROUP BY path"))
        orders, other = found.get("/orders", 0), found.get("/other", 0)
        return {"orders": orders, "other": other, "total": orders + other}


class RightConflict(Right):
    """Right as well: answers 409 while the first runs, instead of waiting."""

    @contextlib.contextmanager
    def alone(self, identity):
        with self.locks_lock:
            lock = self.locks.setdefault(identity, threading.Lock())
        free = lock.acquire(blocking=False)
        try:
            yield free or self.find(identity) is not None  # what is there is only looked at
        finally:
            if free:
                lock.release()


class RightEmpty(Right):
    """Right as well: answers 204 without a body."""

    def fresh(self, number):
        return Answer(204)


class RightLimited(Right):
    """Right as well: answers each seventh request with 429."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.posts = 0

    def answer(self, request):
        self.posts += 1
        return problem(429, "too fast", ("Retry-After", "0")) if self.posts % 7 == 0 else super().answer(request)


class RightOrdered(Right):
    """Right as well: knows nothing of a thing (404) before its first event."""

    def answer(self, request):
        event = request.json()
        if isinstance(event, dict) and event.get("version") == 2 and not self.tables.rows("SELECT 1 FROM state"):
            return problem(404, "there is no such thing yet")
        return super().answer(request)


# --- The wrong ones: each in one way -----------------------------------------------------------------


class Naive(Right):
    """Knows nothing of keys."""

    def answer(self, request):
        return self.execute(request, None, None)


class Race(Right):
    """Looks, then inserts: all that look before the first insert take effect."""

    @contextlib.contextmanager
    def alone(self, identity):
        yield True

    def work(self, request, identity):
        answer = super().work(request, identity)
        self.traffic.wait_until_none_is_arriving()  # so that those sent together do meet
        return answer


class StuckAfterCrash(Right):
    """Commits that it runs, then works, then commits the outcome. Nobody looks after what a crash leaves."""

    def execute(self, request, identity, fingerprint):
        self.tables.commit(("INSERT INTO records VALUES (?, ?, NULL)", identity, fingerprint))
        answer = super().execute(request, identity, fingerprint)
        if not self.keeps(answer):
            self.tables.commit(("DELETE FROM records WHERE identity = ?", identity))
        return answer


class EmptyRunsAgain(RightEmpty):
    """Takes an empty stored body for none."""

    def find(self, identity):
        found = super().find(identity)
        return found if found and Answer.of_text(found[1]).body else None


class LostCookie(Right):
    """Replays without Set-Cookie."""

    def replay(self, answer):
        return Answer(answer.status, [h for h in answer.headers if h[0] != "Set-Cookie"], answer.body)


class LostLocation(Right):
    """Replays without Location."""

    def replay(self, answer):
        return Answer(answer.status, [h for h in answer.headers if h[0] != "Location"], answer.body)


class LostDuplicate(Right):
    """Keeps headers in a dictionary: of two lines of a name the last one is left."""

    def replay(self, answer):
        return Answer(answer.status, dict(answer.headers).items(), answer.body)


class AnyTenant(Right):
    """The key alone is the identity: another tenant gets the first one's answer."""

    def identity(self, request):
        return json.dumps([request.path, self.bare(request.keys[0])])


class AnyPath(Right):
    """Two endpoints share their keys."""

    def identity(self, request):
        return json.dumps([request.tenant, self.bare(request.keys[0])])


class NoFingerprint(Right):
    """Another payload under the key gets the old answer."""

    def fingerprint(self, request):
        return ""


class FailureKept(Right):
    """Stores a temporary 503 and replays it for ever."""

    def keeps(self, answer):
        return True


class FailureKept507(FailureKept):
    """Stores a 507 and replays it for ever."""

    failure_status = 507


class LastEventWins(Right):
    """The event that arrives last wins, also an old one."""

    def event(self, version, status):
        return ("INSERT INTO state VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE SET version = excluded.version, "
                "status = excluded.status", version, status)


class LostReplyRepeats(Right):
    """Forgets the key when it could not deliver the answer: the retry takes effect again."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.deliveries = {}  # identity: the last answer's

    def post(self, request, client):
        if self.complaint(request.keys):
            client.send(self.answer(request))
            return
        identity = self.identity(request)
        with self.alone(identity):
            earlier = self.deliveries.pop(identity, None)
            if earlier is not None and earlier.is_lost():
                self.tables.commit(("DELETE FROM records WHERE identity = ?", identity))
            self.deliveries[identity] = client.send(self.answer(request))
            while len(self.deliveries) > DELIVERIES_MAX:
                self.deliveries.pop(next(iter(self.deliveries)))


class Changing(Right):
    """Builds the answer anew at each repeat."""

    def replay(self, answer):
        body = {**json.loads(answer.body), "at": time.time_ns()} if answer.body else {}
        return Answer(answer.status, answer.headers, json.dumps(body).encode())


class RawBytes(Right):
    """Fingerprints the bytes: the same JSON in another order counts as another payload."""

    def fingerprint(self, request):
        return hashlib.sha256(request.body).hexdigest()


class Keyless(Right):
    """Executes what has no key."""

    key_is_required = False


class CutRuns(NoFingerprint):
    """Executes what has come of a request that was cut."""

    takes_what_was_cut = True


class Refuses(Right):
    """Answers every duplicate with 409, for good. Where only effects count, that is right."""

    def replay(self, answer):
        return problem(409, "done before")


class Vanishes(RightConflict):
    """Once the first one is through, its repeats get 404."""

    def replay(self, answer):
        return problem(404, "there is no such thing")


class NoEvents(Right):
    """Refuses every event."""

    def answer(self, request):
        event = request.json()
        return problem(400, "no") if isinstance(event, dict) and "version" in event else super().answer(request)


class LastKeyOnly(LastEventWins):
    """Remembers just the last key: what comes twice in a row is noticed, what comes late is not."""

    def settle(self, request, identity, fingerprint, answer, effect):
        self.tables.commit(("DELETE FROM records",))
        super().settle(request, identity, fingerprint, answer, effect)


class AnyKey(Right):
    """Accepts every key: overlong ones, control characters, placeholders."""

    def complaint_of_value(self, key):
        return None if key else "an Idempotency-Key is required"


class Miscounts(Right):
    """Works, but its counter never moves: no proof is possible."""

    def count(self):
        return {"orders": 0, "other": 0, "total": 0}


class Twice(Right):
    """Each execution has two effects."""

    def effect(self, request):
        return super().effect(request) * 2


KINDS = {
    "right": Right, "right-conflict": RightConflict, "right-empty": RightEmpty, "naive": Naive, "race": Race,
    "stuck-after-crash": StuckAfterCrash, "empty-runs-again": EmptyRunsAgain, "lost-cookie": LostCookie,
    "lost-location": LostLocation, "lost-duplicate": LostDuplicate, "any-tenant": AnyTenant, "any-path": AnyPath,
    "no-fingerprint": NoFingerprint, "failure-kept": FailureKept, "last-event-wins": LastEventWins,
    "lost-reply-repeats": LostReplyRepeats, "changing": Changing, "raw-bytes": RawBytes, "keyless": Keyless,
    "any-key": AnyKey, "cut-runs": CutRuns, "refuses": Refuses,
    "vanishes": Vanishes, "right-limited": RightLimited, "right-ordered": RightOrdered, "no-events": NoEvents,
    "last-key-only": LastKeyOnly, "failure-kept-507": FailureKept507, "miscounts": Miscounts, "twice": Twice,
}
