#!/usr/bin/python3
"""Small HTTP servers that count their effects: `right` keeps every promise of an idempotent endpoint, every
other kind breaks exactly one. `hapax drill` must tell them apart (test_drill.py).

    servers.py KIND [--port N] [--log FILE] [--stall N] [--late MS] [--slow FILE]
    servers.py --list

It prints "port N" once it listens, on loopback only. A child process serves; POST /crash ends it at once, as
kill -9 would, and the parent starts another on the same listening socket and the same SQLite file: what was
committed is there, what was only in memory is gone. SIGTERM ends both.

    POST /orders, POST /other   an effect for each Idempotency-Key of a tenant (Authorization)
    GET /count                  {"orders": n, "other": n, "total": n}: effects so far
    GET /state                  the order that events (a body with "version" and "status") lead to
    DELETE /state               forgets it
    GET /working                {"working": n}: executions that --stall holds
    POST /crash                 see above
A request with the header `Fail: once` is answered 503 the first time that its key is seen, without an effect."""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import select
import signal
import socket
import sys
import tempfile
import threading
import time

from kinds import KINDS, PATIENCE_S, Answer, Request, Tables, problem

ARRIVING_S = 5  # how long a race waits for those who take part


class Traffic:
    """How many connections are there whose request is not complete, accepted or not."""

    def __init__(self, listener):
        self.listener = listener
        self.changed = threading.Condition()
        self.arriving = 0

    def add(self, n):
        with self.changed:
            self.arriving += n
            self.changed.notify_all()

    def is_quiet(self):
        waiting, _, _ = select.select([self.listener], [], [], 0)
        return not waiting and self.arriving == 0

    def wait_until_none_is_arriving(self):
        end = time.monotonic() + ARRIVING_S
        with self.changed:
            while not self.is_quiet() and time.monotonic() < end:
                self.changed.wait(0.005)


class Delivery:
    """What became of an answer. The client's system resets the connection when it is closed with bytes unread, or comes
    to a connection that is closed; on loopback that is known before the client can send anything else."""

    def __init__(self, connection, lost):
        self.connection, self.lost = connection.dup(), lost
        self.connection.setblocking(False)

    def is_lost(self):
        """To be asked once."""
        with self.connection:
            try:
                error = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                self.connection.recv(1)
                return self.lost or error != 0
            except BlockingIOError:
                return self.lost
            except OSError:
                return True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    site = None
    traffic = None
    is_read = False

    def read(self):
        """The request is complete, or will never be."""
        if not self.is_read:
            self.is_read = True
            self.traffic.add(-1)

    def finish(self):
        self.read()
        super().finish()

    def log_message(self, *_):
        pass

    def send(self, answer):
        """Returns its Delivery."""
        self.close_connection = True
        lines = [f"HTTP/1.1 {answer.status} Whatever", f"Date: {self.date_time_string()}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        if answer.status != 204:
            lines.append(f"Content-Length: {len(answer.body)}")
        try:
            lost = self.has_closed()
            self.connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + answer.body)
        except OSError:
            lost = True
        return Delivery(self.connection, lost)

    def has_closed(self):
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def do_POST(self):
        if self.path == "/crash":
            os._exit(9)  # unanswered: who sees the connection end knows that the next child will take his next
        length = self.headers.get("Content-Length") or "0"
        body = self.rfile.read(int(length)) if length.isdigit() else b""
        self.read()
        if len(body) != int(length) and not self.site.takes_what_was_cut:  # cut off: nothing that was asked for in full
            self.close_connection = True
        elif self.path in ("/orders", "/other"):
            self.site.post(Request(self.path, self.headers, body), self)
        else:
            self.send(problem(404, "there is no such thing"))

    def do_GET(self):
        self.read()
        if self.path == "/count":
            found = self.site.count()
        elif self.path == "/working":
            found = {"working": self.site.working}
        elif self.path == "/state":
            rows = self.site.tables.rows("SELECT version, status FROM state")
            found = {"status": rows[0][1] if rows else None}
        else:
            self.send(problem(404, "there is no such thing"))
            return
        self.send(Answer(200, [("Content-Type", "application/json")], json.dumps(found).encode()))

    def do_DELETE(self):
        self.site.tables.commit(("DELETE FROM state",))
        self.send(Answer(204))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener, handler, traffic):
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.traffic = listener, traffic

    def process_request(self, *connection):
        self.traffic.add(1)
        super().process_request(*connection)

    def handle_error(self, *_):
        if not isinstance(sys.exc_info()[1], OSError):  # clients that leave are nothing to tell
            super().handle_error(*_)


def serve(kind, listener, file, options):
    traffic = Traffic(listener)
    site = KINDS[kind](Tables(file), traffic, options)
    Server(listener, type("Bound", (Handler,), {"site": site, "traffic": traffic}), traffic).serve_forever()


def supervise(kind, listener, file, options):
    """Never returns. One child at a time; each crash brings the next."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    child = 0
    try:
        while True:
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                serve(kind, listener, file, options)
                os._exit(1)
            os.waitpid(child, 0)
            options.stall = None  # only what ran before the first crash
    finally:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=list(KINDS), metavar="KIND")
    parser.add_argument("--list", action="store_true", help="the kinds and what each does")
    parser.add_argument("--port", type=int, default=0, help="on loopback; 0: the kernel chooses [0]")
    parser.add_argument("--log", type=pathlib.Path, help="append a line with path and key for each effect")
    parser.add_argument("--late", type=int, help="a worker takes so many ms for each effect, after its answer")
    parser.add_argument("--slow", type=pathlib.Path, help="work does not end while this file is there")
    parser.add_argument("--stall", type=int, help="the n-th execution works until the first crash")
    options = parser.parse_args()
    if options.list or options.kind is None:
        for name, kind in KINDS.items():
            print(f"{name:20} {' '.join(kind.__doc__.split())}")
        return
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    listener.listen(256)
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        print(f"port {listener.getsockname()[1]}", flush=True)
        supervise(options.kind, listener, f"{folder}/state.db", options)


if __name__ == "__main__":
    main()
