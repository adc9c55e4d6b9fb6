"""Servers of servers.py as processes, and requests to them by hand."""

import pathlib
import signal
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "blackbox"))

from harness import PATIENCE_S, Connection, Ended  # noqa: E402

FRESH = object()  # the key of this property


class Site:
    """One server of servers.py."""

    def __init__(self, kind, folder, *arguments):
        self.kind = kind
        self.log = open(folder / f"{kind}.out", "wb")
        self.process = subprocess.Popen([sys.executable, HERE / "servers.py", kind, *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL)
        word, number = self.process.stdout.readline().split()
        assert word == b"port"
        self.port = int(number)
        self.key, self.base = "k-1", {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def crash_command(self):
        return f"curl -s -X POST {self.url}/crash || true"

    def ask(self, method, target, headers=(), body=b""):
        with Connection(self.port) as connection:
            return connection.request(method, target, list(headers), body)

    def begin_anew(self):
        """Another key, and effects counted from here."""
        self.key = f"k-{int(self.key[2:]) + 1}"
        self.base = {}
        self.base = self.counts()

    def post(self, key=FRESH, body=b'{"n":1,"s":"x"}', target="/orders", tenant="Bearer a", headers=()):
        lines = [("Content-Type", "application/json"), *headers]
        key = self.key if key is FRESH else key
        lines += [("Idempotency-Key", key)] if key is not None else []
        lines += [("Authorization", tenant)] if tenant else []
        return self.ask("POST", target, lines, body)

    def counts(self):
        return {what: n - self.base.get(what, 0) for what, n in self.ask("GET", "/count").json().items()}

    def count(self, what="total"):
        return self.counts()[what]

    def crash(self):
        with pytest.raises(Ended):
            self.ask("POST", "/crash")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none, it did not stop"
        self.process.stdout.close()
        self.log.close()
        assert code == 0, code


@pytest.fixture
def site(tmp_path):
    """Start servers that are stopped at the end: site(kind, arguments...)."""
    started = []

    def begin(kind, *arguments):
        started.append(Site(kind, tmp_path, *arguments))
        return started[-1]

    yield begin
    for one in started:
        one.stop()
