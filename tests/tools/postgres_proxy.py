"""hapax_postgres_proxy (postgres_proxy.c) as a process: between a gateway and its server, with something happening to
the n-th message of all connections.

    with PostgresProxy(build, server) as proxy:
        proxy.uri("name")                  # of a database, through the proxy
        proxy.arm("cut", 12)               # before the 12th message from now on
        proxy.disarm()                     # (did it happen?, messages seen)"""

import subprocess

# As enum wire_fault.
FAULTS = {"cut": 0, "torn": 1, "swallow": 2, "late": 3, "error": 4, "ambiguous": 5}
LATE = {0: "nothing", 1: "refused", 2: "committed"}


class PostgresProxy:
    def __init__(self, build, server):
        self.process = subprocess.Popen([build / "tests" / "tools" / "hapax_postgres_proxy", str(server.port)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.answer("port")[0])

    def answer(self, word):
        line = self.process.stdout.readline().split()
        assert line and line[0] == word, f"the proxy said {line}"
        return line[1:]

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def arm(self, fault, n, sqlstate="", stay=False):
        self.say(f"{'stay' if stay else 'arm'} {FAULTS[fault]} {n} {sqlstate}")
        self.answer("armed")

    def disarm(self):
        self.say("disarm")
        words = self.answer("fired")
        return words[0] == "1", int(words[2])

    def deliver(self):
        """What was kept back reaches the server: "refused" or "committed", or there was "nothing"."""
        self.say("deliver")
        return LATE[int(self.answer("late")[0])]

    def uri(self, database, user="postgres"):
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
