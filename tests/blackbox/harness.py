"""Parts of the black-box tests: an upstream that counts its effects and can do everything wrong, the
gateway as a process, and a client that sends bytes as they stand.

Nothing here decides a verdict by time: waits end when a condition holds, and their limit is only a
guard against hanging."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HAPAX_BUILD") or ROOT / "build")
HAPAX = BUILD / "hapax"
PATIENCE_S = 60  # guard against hanging, generous for sanitizers


def is_sanitized():
    """Sanitizers keep freed memory and shadow all of it: figures of memory mean nothing under them."""
    data = HAPAX.read_bytes()
    return b"__asan_init" in data or b"__tsan_init" in data


def wait_until(condition, what, patience_s=PATIENCE_S):
    """Return the first true value of condition()."""
    end = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.01)


# --- HTTP as bytes ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Message:
    """A parsed request or response. Header names keep their case; look-ups ignore it."""

    start: str
    headers: list
    body: bytes = b""
    interim: list = dataclasses.field(default_factory=list)  # 1xx responses before it

    @property
    def status(self):
        return int(self.start.split(" ")[1])

    @property
    def method(self):
        return self.start.split(" ")[0]

    @property
    def target(self):
        return self.start.split(" ")[1]

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        return values[0] if values else None

    def json(self):
        return json.loads(self.body)

    @property
    def marker(self):
        return self.get("Idempotency-Status")

    @property
    def problem(self):
        """The last word of the problem's type; None when it is no problem document."""
        if not (self.get("Content-Type") or "").startswith("application/problem+json"):
            return None
        return self.json()["type"].rsplit(":", 1)[-1]


class Ended(Exception):
    """The peer closed or reset the connection before a message was complete."""


class Reader:
    """Reads messages from a socket."""

    def __init__(self, sock):
        self.sock = sock
        self.data = b""

    def more(self):
        try:
            piece = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Ended("reset") from error
        if not piece:
            raise Ended("closed")
        self.data += piece

    def until(self, mark):
        while mark not in self.data:
            self.more()
        head, self.data = self.data.split(mark, 1)
        return head

    def exactly(self, n):
        while len(self.data) < n:
            self.more()
        piece, self.data = self.data[:n], self.data[n:]
        return piece

    def digest(self, n):
        """Of the next n bytes, without having them all in memory."""
        digest = hashlib.blake2b()
        room = memoryview(bytearray(1 << 20))
        at_hand = self.exactly(min(n, len(self.data)))
        digest.update(at_hand)
        n -= len(at_hand)
        while n > 0:
            got = self.sock.recv_into(room[:min(n, len(room))])
            if got == 0:
                raise Ended("closed")
            digest.update(room[:got])
            n -= got
        return digest.digest()

    def to_end(self):
        try:
            while True:
                self.more()
        except Ended as ended:
            if str(ended) == "reset":
                raise
        piece, self.data = self.data, b""
        return piece

    def chunks(self):
        body = b""
        while True:
            size = int(self.until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                while self.until(b"\r\n"):
                    pass
                return body
            body += self.exactly(size)
            assert self.exactly(2) == b"\r\n"

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = []
        for line in lines[1:]:
            name, value = line.split(":", 1)
            headers.append((name, value.strip()))
        return Message(lines[0], headers)

    def request(self):
        message = self.head()
        if message.get("Expect"):
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if (message.get("Transfer-Encoding") or "").lower() == "chunked":
            message.body = self.chunks()
        else:
            message.body = self.exactly(int(message.get("Content-Length") or 0))
        return message

    def response(self, method="POST"):
        interim = []
        message = self.head()
        while message.status < 200:
            interim.append(message)
            message = self.head()
        message.interim = interim
        if method == "HEAD" or message.status in (204, 304):
            return message
        if (message.get("Transfer-Encoding") or "").lower() == "chunked":
            message.body = self.chunks()
        elif message.get("Content-Length") is not None:
            message.body = self.exactly(int(message.get("Content-Length")))
        else:
            message.body = self.to_end()
        return message


def request_bytes(method, target, headers=(), body=b"", version="HTTP/1.1", host="gateway.test"):
    lines = [f"{method} {target} {version}"]
    names = {name.lower() for name, _ in headers}
    if host and "host" not in names:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in headers]
    if "content-length" not in names and "transfer-encoding" not in names and (body or method in ("POST", "PUT", "PATCH")):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class Connection:
    def __init__(self, port, host="127.0.0.1", tls=None, tls_host="localhost"):
        self.sock = socket.create_connection((host, port), timeout=PATIENCE_S)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname=tls_host)
        self.reader = Reader(self.sock)

    def send(self, data):
        self.sock.sendall(data)

    def receive(self, method="POST"):
        return self.reader.response(method)

    def request(self, method, target, headers=(), body=b"", **more):
        self.send(request_bytes(method, target, headers, body, **more))
        return self.receive(method)

    def is_closed_by_peer(self):
        """Wait for the end of the stream; True when it comes without further bytes."""
        try:
            return self.reader.to_end() == b""
        except Ended:
            return True

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- The upstream ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Answer:
    """What the upstream does with a request it has counted."""

    status: int = 201
    headers: list = dataclasses.field(default_factory=list)
    body: bytes = b'{"ok":true}'
    delay_s: float = 0.0
    action: str = "answer"  # answer | reset | close | hang | raw
    raw: bytes = b""  # for raw: sent as it stands, then the connection is closed
    wait: threading.Event = None  # answer only once this is set
    chunked: bool = False


class Upstream:
    """A real HTTP server whose requests are its effects. `answer` may be an Answer or a function of the
    request (a Message with .number, counted from 1)."""

    def __init__(self, answer=None, port=0, tls=None):
        self.answer = answer or Answer()
        self.tls = tls  # an ssl.SSLContext: it speaks https
        self.requests = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.connections = set()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(4096)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"https://localhost:{self.port}" if self.tls else f"http://127.0.0.1:{self.port}"

    def effects(self, target=None):
        with self.lock:
            return [r for r in self.requests if target is None or r.target.split("?")[0] == target]

    def accept(self):
        while not self.stopping.is_set():
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections.add(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with contextlib.suppress(Ended, OSError):
            if self.tls is not None:
                with self.lock:
                    self.connections.discard(sock)
                sock = self.tls.wrap_socket(sock, server_side=True)
                with self.lock:
                    self.connections.add(sock)
            reader = Reader(sock)
            while self.one(sock, reader):
                pass
        with self.lock:
            self.connections.discard(sock)
        sock.close()

    def one(self, sock, reader):
        request = reader.request()
        with self.lock:
            self.requests.append(request)
            request.number = len(self.requests)
        answer = self.answer(request) if callable(self.answer) else self.answer
        if answer.wait is not None:
            while not answer.wait.wait(0.05):
                if self.stopping.is_set():
                    return False
        if answer.delay_s:
            self.stopping.wait(answer.delay_s)
        if answer.action == "hang":
            self.stopping.wait()
            return False
        if answer.action == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if answer.action == "close":
            return False
        if answer.action == "raw":
            sock.sendall(answer.raw)
            return False
        sock.sendall(self.render(request, answer))
        return True

    @staticmethod
    def render(request, answer):
        lines = [f"HTTP/1.1 {answer.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        body = answer.body
        if answer.status in (204, 304) or request.method == "HEAD":
            body = b""
        elif answer.chunked:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        elif not any(name.lower() == "content-length" for name, _ in answer.headers):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    def close(self):
        self.stopping.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which would keep it open
        self.listener.close()
        with self.lock:
            for sock in self.connections:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


class Listener:
    """An upstream whose every byte a test decides: handle(sock, reader, number) runs in a thread for each
    connection, counted from 1; the connection is closed when it returns. What it raises is kept in .errors,
    but for the gateway's end of the connection."""

    def __init__(self, handle):
        self.handle = handle
        self.connections = []
        self.errors = []
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(sock)
            threading.Thread(target=self.serve, args=(sock, len(self.connections)), daemon=True).start()

    def serve(self, sock, number):
        try:
            self.handle(sock, Reader(sock), number)
        except (Ended, ConnectionError):
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            sock.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self.connections:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        assert not self.errors, self.errors


# --- The gateway -----------------------------------------------------------------------------------


class Gateway:
    """`hapax serve` as a process of its own, on ports that the kernel chose."""

    def __init__(self, folder, config, store=None, environment=None, arguments=None, binary=HAPAX):
        self.folder = pathlib.Path(folder)
        self.config_path = self.folder / "hapax.yaml"
        self.log_path = self.folder / "hapax.log"
        self.store_path = self.folder / "hapax.db"
        self.store = f"sqlite:{self.store_path}" if store is None else store  # "": the configuration says it
        self.environment = {**os.environ, **(environment or {})}
        self.arguments = arguments or ["--config", self.config_path]
        self.binary = binary
        self.process = None
        if config is not None:
            self.write_config(config)

    def write_config(self, config):
        self.config_path.write_text(config)

    def start(self):
        self.spawn()
        self.wait_until_it_listens()
        return self

    def spawn(self):
        self.log = open(self.log_path, "ab")
        self.log_start = self.log.tell()
        self.process = subprocess.Popen(
            [self.binary, "serve", *self.arguments, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
             *(["--store", self.store] if self.store else [])],
            stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=self.environment, cwd=self.folder,
        )

    def wait_until_it_listens(self):
        wait_until(lambda: self.listens() or self.process.poll() is not None, "the gateway listens")
        assert self.process.poll() is None, f"the gateway ended: {self.log_since_start()}"

    def log_since_start(self):
        return self.log_path.read_bytes()[self.log_start:].decode()

    def listens(self):
        """Has it said that it does? Then its ports are known."""
        match = re.search(r"listening: \S+ \(port (\d+)\).*admin: \S+ \(port (\d+)\)", self.log_since_start(), re.S)
        if match:
            self.port, self.admin_port = int(match[1]), int(match[2])
        return match is not None

    def log_text(self):
        return self.log_path.read_text()

    def connect(self):
        return Connection(self.port)

    def request(self, method, target, headers=(), body=b"", **more):
        with self.connect() as connection:
            return connection.request(method, target, headers, body, **more)

    def post(self, target, key=None, body=b'{"amount":100}', headers=(), **more):
        lines = [("Content-Type", "application/json")] if not any(n.lower() == "content-type" for n, _ in headers) else []
        lines += [("Idempotency-Key", key)] if key is not None else []
        return self.request("POST", target, lines + list(headers), body, **more)

    def admin(self, target, host="localhost"):
        with Connection(self.admin_port) as connection:
            return connection.request("GET", target, [("Connection", "close")], host=host)

    def operation(self, scope, key):
        query = urllib.parse.urlencode({"scope": scope, "key": key})
        return self.admin("/v1/operations?" + query)

    def metric(self, name, **labels):
        """The value of one sample; 0 when there is none."""
        text = self.admin("/metrics").body.decode()
        wanted = ",".join(f'{k}="{v}"' for k, v in labels.items())
        line = name + ("{" + wanted + "}" if wanted else "")
        match = re.search(rf"^{re.escape(line)} (\S+)$", text, re.M)
        return float(match[1]) if match else 0.0

    def cli(self, *arguments, **more):
        return subprocess.run([HAPAX, *arguments], capture_output=True, text=True, timeout=PATIENCE_S,
                              env={**self.environment, "HAPAX_STORE": self.store}, cwd=self.folder, **more)

    def memory_kib(self, field="VmRSS"):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise AssertionError(field)

    def reload(self, config=None):
        if config is not None:
            self.write_config(config)
        before = self.log_text().count(" reload: ")
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log_text().count(" reload: ") > before, "the reload")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def stop(self):
        """Ends it gracefully; a crash or a sanitizer's finding is an error."""
        if self.process is None or self.process.poll() is not None and self.process.returncode == -signal.SIGKILL:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none, it did not stop"
        self.log.close()
        assert code == 0, f"exit code {code}: {self.log_text()[-4000:]}"


def config_for(upstream, **fields):
    """The text of a configuration with one route "orders" for everything. A value is YAML text."""
    route = {"name": "orders", "path": "/", "to": upstream.url if hasattr(upstream, "url") else upstream}
    top = {}
    for name, value in fields.items():
        (top if name in TOP_FIELDS else route)[name] = value
    lines = [f"{name}: {value}" for name, value in top.items()]
    lines.append("routes:")
    lines.append("  - " + "\n    ".join(f"{name}: {value}" for name, value in route.items()))
    return "\n".join(lines) + "\n"


TOP_FIELDS = {"threads", "limits", "timeouts", "log", "defaults", "tls"}


def at_once(n, function):
    """Run function(i) in n threads that start together; the results in order. An exception is raised."""
    barrier = threading.Barrier(n)
    results = [None] * n

    def run(i):
        try:
            barrier.wait(PATIENCE_S)
            results[i] = (True, function(i))
        except BaseException as error:  # re-raised below
            results[i] = (False, error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S * 2)
    for good, value in results:
        if not good:
            raise value
    return [value for _, value in results]
