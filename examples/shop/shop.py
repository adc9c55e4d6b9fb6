#!/usr/bin/env python3
"""A small shop that charges cards and sends messages, to see Hapax at work.

It does what real shops do wrong on their own: every POST has an effect, however often it comes.

  POST /charges    {"order_id": ..., "amount": ...}   charges (takes 0.3 s)
  POST /messages   {"to": ..., "text": ...}           sends a message
  GET  /ledger     all effects so far, in order

With "answer": "lost" in the body it does its work, but hangs up instead of answering.

Usage: shop.py [PORT [LEDGER]]   default 9000, on loopback only. Effects are kept in the file LEDGER, one JSON
object a line, and are there after a restart; without it they are kept in memory.
"""

import json
import pathlib
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
ledger = []
ledger_file = None


def open_ledger(path):
    global ledger_file
    if path.exists():
        ledger.extend(json.loads(line) for line in path.read_text().splitlines())
    ledger_file = path.open("a")


def record(kind, detail):
    with lock:
        effect = {"id": f"{kind}_{len(ledger) + 1}", "kind": kind, **detail}
        ledger.append(effect)
        if ledger_file:
            print(json.dumps(effect), file=ledger_file, flush=True)
    print(f"shop: {effect['id']}", *(f"{name}={value}" for name, value in detail.items()), flush=True)
    return effect


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, headers=()):
        data = (json.dumps(body, indent=2) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parsed = json.loads(raw or b"null")
        if not isinstance(parsed, dict):
            raise ValueError("the body must be a JSON object")
        return parsed

    def do_GET(self):
        if self.path == "/ledger":
            with lock:
                effects = list(ledger)
            self.answer(200, {"effects": effects})
        else:
            self.answer(404, {"error": "try /ledger"})

    def do_POST(self):
        try:
            order = self.body()
        except ValueError as error:
            self.answer(400, {"error": str(error)})
            return
        if self.path == "/charges":
            time.sleep(0.3)
            charge = record("charge", {"order_id": order.get("order_id"), "amount": order.get("amount")})
            self.answer_unless_lost(order, charge, [("Location", f"/charges/{charge['id']}")])
        elif self.path == "/messages":
            self.answer_unless_lost(order, record("message", {"to": order.get("to"), "text": order.get("text")}))
        else:
            self.answer(404, {"error": "POST /charges or /messages"})

    def answer_unless_lost(self, order, effect, headers=()):
        if order.get("answer") == "lost":
            print(f"shop: hung up instead of answering for {effect['id']}", flush=True)
            self.close_connection = True
            return
        try:
            self.answer(201, effect, headers)
        except ConnectionError:
            print(f"shop: nobody was there to take the answer for {effect['id']}", flush=True)
            self.close_connection = True

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    if len(sys.argv) > 2:
        open_ledger(pathlib.Path(sys.argv[2]))
    try:
        server = Server(("127.0.0.1", port), Shop)
    except OSError as error:
        sys.exit(f"shop: can't listen on 127.0.0.1:{port}: {error.strerror}")
    print(f"shop: listening on http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
