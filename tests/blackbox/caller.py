"""Parts of the tests of `hapax call`, which PostgreSQL's share."""

import json
import os
import pathlib
import subprocess

from harness import HAPAX, PATIENCE_S

BODY = '{"amount":5}'


class Caller:
    """Runs `hapax call` with a store of its own."""

    def __init__(self, folder, store=None):
        self.folder = pathlib.Path(folder)
        self.store = store or f"sqlite:{self.folder}/call.db"
        self.environment = {k: v for k, v in os.environ.items() if k != "HAPAX_STORE"}

    def command(self, *arguments):
        return [HAPAX, "call", *map(str, arguments), "--store", self.store]

    def run(self, *arguments, code=0, **more):
        done = subprocess.run(self.command(*arguments), capture_output=True, timeout=2 * PATIENCE_S, cwd=self.folder,
                              env=self.environment, stdin=more.pop("stdin", subprocess.DEVNULL), **more)
        assert code is None or done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def json(self, *arguments, code=0):
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
                                env=self.environment, stdin=subprocess.DEVNULL)

    def keys(self, *arguments, code=0):
        done = subprocess.run([HAPAX, "keys", *arguments, "--store", self.store], capture_output=True, text=True,
                              timeout=PATIENCE_S, env=self.environment)
        assert done.returncode == code, done.stderr
        return done.stdout

    def key_of(self, op):
        return self.keys("show", "--body", "hapax call key", op)

    def state_of(self, op):
        return json.loads(self.keys("show", "--json", "hapax call", op))["state"]


def keys_seen(upstream, name="Idempotency-Key"):
    return [r.get(name) for r in upstream.requests]


def in_turn(*answers):
    """The first request gets the first answer, and so on; the last one repeats."""
    return lambda request: answers[min(request.number, len(answers)) - 1]
