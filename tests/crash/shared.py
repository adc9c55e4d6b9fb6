"""Rounds on PostgreSQL: two gateways share a database, and something happens to a gateway, to its sessions or to the
server, again and again. See crash.py for the rounds, and check.py for what is asked for."""

import random
import signal
import sys
import time

import check
from crash import Load, ROOT
from harness import Gateway, config_for, wait_until

sys.path.insert(0, str(ROOT / "tests" / "tools"))
from postgres_server import PostgresServer  # noqa: E402

GATEWAYS = 2
LONG_FREEZE_S = 20  # past every wait of a store with timeouts.store 1s: 16 s for an answer, 2 s for a connection
MUST_MEET = ["executed", "replayed", "attached", "key-reused", "released", "no answer", "503s"]


class SharedSegment:
    """Rounds on one database. long_freezes: how many of the rounds stop the server for longer than anybody waits."""

    def __init__(self, folder, seed, rounds, long_freezes=0):
        self.folder, self.seed, self.rounds = folder, seed, rounds
        self.random = random.Random(seed)
        self.kills = []  # what can make an outcome unknown, when it began and when it had happened
        self.rounds_done = 0
        self.resumed_s = []  # from the end of each trouble to the next new answer
        self.server = PostgresServer().start()
        self.load = Load(seed, folder)
        config = config_for(self.load.url, wait="5s", lease="10m", timeout="10m", threads=2, timeouts="{store: 1s}")
        uri = self.server.uri(self.server.database())
        self.gateways = []
        for number in range(GATEWAYS):
            (folder / str(number)).mkdir()
            self.gateways.append(Gateway(folder / str(number), config, store=uri))
        kinds = [self.kill_gateway, self.end_sessions, self.kill_server, self.freeze, self.shut_down, self.restart]
        plan = [kinds[number % len(kinds)] for number in range(rounds - long_freezes)]
        self.plan = plan + [self.freeze_long] * long_freezes
        self.random.shuffle(self.plan)

    def tell_ports(self):
        self.load.say("port " + " ".join(str(g.port) for g in self.gateways if g.process.poll() is None))

    def happened(self, text):
        self.kills.append((time.monotonic_ns(), f"round {self.rounds_done + 1}: {text}"))

    # --- what happens ---

    def kill_gateway(self):
        gateway = self.random.choice(self.gateways)
        gateway.process.kill()
        gateway.process.wait()
        self.happened("a gateway killed")
        self.tell_ports()
        gateway.kill()
        code = gateway.process.returncode
        assert code == -signal.SIGKILL, f"the gateway ended with {code}: {gateway.log_since_start()[-4000:]}"
        time.sleep(self.random.uniform(0, 0.1))
        gateway.start()
        self.tell_ports()

    def end_sessions(self):
        self.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hapax'")
        self.happened("sessions terminated")

    def kill_server(self):
        self.server.kill()
        self.happened("the server killed")
        time.sleep(self.random.uniform(0, 0.3))
        self.server.start()

    def shut_down(self):
        self.server.process.send_signal(signal.SIGQUIT)
        self.server.process.wait()
        self.happened("the server shut down at once")
        self.server.start()

    def restart(self):
        self.server.stop()
        self.happened("the server stopped")
        self.server.start()

    def freeze(self, seconds=None):
        self.server.freeze()
        self.happened("the server stands still")
        time.sleep(seconds or self.random.uniform(0.05, 1.5))
        self.happened("the server goes on")
        self.server.freeze(False)

    def freeze_long(self):
        self.freeze(LONG_FREEZE_S)

    # --- rounds ---

    def ready(self):
        return all(g.admin("/readyz").status == 200 for g in self.gateways)

    def round(self, trouble):
        time.sleep(self.random.uniform(0.05, 0.5))
        self.happened("trouble begins")
        trouble()
        over = time.monotonic()
        # No gateway was restarted but the one that was killed.
        wait_until(self.ready, "the gateways are ready again")
        self.resumed_s.append(time.monotonic() - over)
        self.rounds_done += 1

    def run(self):
        try:
            for gateway in self.gateways:
                gateway.start()
            self.tell_ports()
            for trouble in self.plan:
                self.round(trouble)
            self.load.stop()
            for gateway in self.gateways:
                gateway.stop()
        finally:
            self.load.end()
            for gateway in self.gateways:
                if gateway.process is not None:
                    gateway.kill()
            self.server.close()
        asks = check.read_asks(self.folder / "clients.log")
        return check.Story(asks, check.read_arrivals(self.folder / "upstream.log"), self.kills,
                           store_may_stand_still=True)

    def counts(self, story):
        counts = story.counts()
        counts["ms at most until ready again"] = int(max(self.resumed_s) * 1000)
        return counts

    def must_meet(self):
        return MUST_MEET

    def describe(self):
        return f"seed {self.seed}, {self.rounds} rounds on PostgreSQL"
