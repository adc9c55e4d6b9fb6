"""A TCP proxy that brings a server far away: every byte, in either direction, arrives `delay_s` later, in order, at any
bandwidth. On loopback, in threads. With `silent_after`, no connection delivers more of the server's bytes than that, and
none is closed, as when a server freezes; connections made after that was set to None are not concerned. While `silent` is
set, no byte gets through in any."""

import collections
import contextlib
import socket
import threading
import time


class Distance:
    def __init__(self, port, delay_s, silent_after=None):
        self.silent_after = silent_after
        self.silent = False
        self.target = ("127.0.0.1", port)
        self.delay_s = delay_s
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.sockets.append(one)
            self.carry(near, far, None)
            self.carry(far, near, self.silent_after)

    def carry(self, source, target, silent_after):
        """One thread takes bytes and notes when, another one delivers each when its time has come."""
        under_way, ready = collections.deque(), threading.Semaphore(0)

        def take():
            data = b"?"
            while data:
                try:
                    data = source.recv(65536)
                except OSError:
                    data = b""
                under_way.append((time.monotonic() + self.delay_s, data))
                ready.release()

        def deliver():
            delivered = 0
            while True:
                ready.acquire()
                due, data = under_way.popleft()
                time.sleep(max(0, due - time.monotonic()))
                with contextlib.suppress(OSError):
                    if not data:
                        target.shutdown(socket.SHUT_WR)
                        return
                    delivered += len(data)
                    if not self.silent and (silent_after is None or delivered <= silent_after):
                        target.sendall(data)

        for work in (take, deliver):
            threading.Thread(target=work, daemon=True).start()

    def close(self):
        for one in [self.listener, *self.sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
