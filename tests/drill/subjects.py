"""What is drilled, as processes: a server of servers.py, the gateway in front of one, a library from npm (npm/).

Each has .url, .restart_command (a crash: killed at once, another started on the same port and data; the command
returns when the new one listens) and .stop()."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "blackbox"), str(HERE.parent / "tools")]

import npm  # noqa: E402
from harness import BUILD, HAPAX, PATIENCE_S, Connection, Ended, wait_until  # noqa: E402

FRESH = object()  # the key of this property


class Unusable(Exception):
    """A subject can't run here; the text says why."""


def end(process):
    """Gracefully; the exit code, or None where it had to be killed."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


class Site:
    """Anything that listens on .port and counts its effects at /count."""

    port = None

    def __init__(self):
        self.key, self.base = "k-1", {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def count_url(self):
        return f"{self.url}/count"

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


class WrongServer(Site):
    """One kind of servers.py. It brings itself back after a crash."""

    def __init__(self, kind, folder, *arguments):
        super().__init__()
        self.log = open(folder / f"{kind}.log", "ab")
        slow = folder / f"{kind}.slow"
        # A crash in the middle of work, however quick that is: it does not end between these two.
        self.hold, self.release = f"touch {slow}; sleep 0.1", f"rm {slow}"
        self.process = subprocess.Popen([sys.executable, HERE / "servers.py", kind, "--slow", slow, *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True)
        word, number = self.process.stdout.readline().split()
        assert word == b"port"
        self.port = int(number)
        self.restart_command = f"{self.hold}; curl -s -X POST {self.url}/crash; {self.release}"

    def crash(self):
        with contextlib.suppress(Ended):
            answer = self.ask("POST", "/crash")
            raise AssertionError(answer.status)

    def stop(self):
        code = end(self.process)
        self.process.stdout.close()
        self.log.close()
        assert code == 0, code


class Supervised(Site):
    """A process that is started again whenever it ends, until stop()."""

    def __init__(self, folder, name):
        super().__init__()
        self.log = open(folder / f"{name}.log", "ab")
        self.pid_file = folder / f"{name}.pid"
        pid = f"$(cat {self.pid_file})"
        self.restart_command = f"old={pid}; kill -9 $old; while [ {pid} = $old ]; do sleep 0.02; done"
        self.stopping = threading.Event()
        self.process = None

    def start(self):
        """The process, once it listens."""
        raise NotImplementedError

    def begin(self):
        self.renew()
        self.keeper = threading.Thread(target=self.keep, daemon=True)
        self.keeper.start()
        return self

    def renew(self):
        self.process = self.start()
        part = self.pid_file.with_suffix(".part")
        part.write_text(str(self.process.pid))
        os.replace(part, self.pid_file)  # who waits for a change of it never reads half a number

    def keep(self):
        while True:
            self.process.wait()
            if self.stopping.is_set():
                return
            self.renew()

    def stop(self):
        self.stopping.set()
        code = end(self.process)
        self.keeper.join()
        self.log.close()
        assert code == 0, code


class Gateway(Supervised):
    """`hapax serve` in front of another site, which counts."""

    CONFIG = "listen: 127.0.0.1:{port}\nadmin: {{listen: 127.0.0.1:0}}\nroutes:\n" \
             "  - {{name: orders, path: /, to: \"{to}\", keep_set_cookie: true}}\n"

    def __init__(self, site, folder, port=0):
        super().__init__(folder, "gateway")
        self.site, self.folder, self.port = site, folder, port
        self.restart_command = f"{site.hold}; {self.restart_command}; {site.release}"

    @property
    def count_url(self):
        return self.site.count_url

    def start(self):
        config = self.folder / "drilled.yaml"
        config.write_text(self.CONFIG.format(port=self.port, to=self.site.url))
        output = self.folder / "gateway.log"
        seen = output.stat().st_size
        process = subprocess.Popen([HAPAX, "serve", "--config", config, "--store", f"sqlite:{self.folder}/hapax.db"],
                                   stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True)

        def port():
            assert process.poll() is None or self.stopping.is_set(), output.read_text()[-2000:]
            said = output.read_bytes()[seen:].decode()
            return said.split("(port ")[1].split(")")[0] if "admin:" in said else None

        self.port = int(wait_until(port, "the gateway listens"))
        return process


class Redis:
    """A server of its own, which keeps nothing on disk."""

    def __init__(self, folder):
        need("redis-server")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = open(folder / "redis.log", "wb")
        self.process = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", folder, "--save", "", "--appendonly", "no"],
            stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True)
        wait_until(self.listens, "Redis listens")

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True

    def stop(self):
        code = end(self.process)
        self.log.close()
        assert code == 0, code


class Library(Supervised):
    """npm/server.js with one library, over a Redis. The listening socket outlives each process."""

    def __init__(self, library, redis, folder, stall=None, port=0):
        super().__init__(folder, library.replace("/", "-"))
        self.name, self.redis, self.script = library, redis, install_npm()
        self.stall = [] if stall is None else [str(stall)]  # of the first process only
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(256)
        self.port = self.listener.getsockname()[1]

    def start(self):
        fd = self.listener.fileno()
        command = ["node", self.script, self.name, str(self.redis.port), str(fd), *self.stall]
        self.stall = []
        process = subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE, stderr=self.log,
                                   stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "NODE_ENV": "production"})
        assert process.stdout.readline() == b"ready\n"
        return process

    def stop(self):
        self.stopping.set()
        end(self.process)  # it has no handler: the signal is its exit code
        self.keeper.join()
        self.listener.close()
        self.log.close()


def need(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise Unusable(f"{', '.join(missing)} not installed")


def install_npm():
    """The packages of npm/; returns the script."""
    try:
        return npm.install(HERE / "npm", BUILD / "drill-npm", "server.js")
    except RuntimeError as why:
        raise Unusable(str(why)) from why
