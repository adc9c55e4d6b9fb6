"""A proxy on loopback that counts round trips: how often a client that had been answered sends again.

What a client sends before it was answered is one trip, however many packets it is. For one connection that is exact;
where a server answers a long pipeline while it is still being sent, it counts too much."""

import selectors
import socket
import threading


class TurnCounter:
    def __init__(self, port):
        self.target = port
        self.turns = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.stop_ours, self.stop_theirs = socket.socketpair()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.stop_theirs, selectors.EVENT_READ)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop_ours.close()
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()

    def accept(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.target))
        state = {"answered": True}
        for one, other, is_client in [(client, server, True), (server, client, False)]:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(one, selectors.EVENT_READ, (other, is_client, state))

    def forward(self, one, other, is_client, state):
        try:
            data = one.recv(65536)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (one, other):
                self.selector.unregister(end)
                end.close()
            return
        self.turns += is_client and state["answered"]
        state["answered"] = not is_client

    def run(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.stop_theirs:
                    return
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj.fileno() != -1:
                    self.forward(key.fileobj, *key.data)
