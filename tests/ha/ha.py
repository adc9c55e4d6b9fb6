#!/usr/bin/python3
"""`make ha`: two gateways on a high-availability PostgreSQL (cluster.py) whose primary is killed again and again under
load. The clients and the upstream are those of `make crash`, and so are the rules that their logs are judged by.

  ha.py [--kills N] [--seed S] [--keep]

Ways to kill, in turn:
  node      SIGKILL of PostgreSQL and its Patroni: the others miss it when its key in etcd has run out
  postgres  SIGKILL of PostgreSQL alone: Patroni hands over
  frozen    both stand still with their connections open until another node leads; then SIGKILL
The killed node comes back as a replica (pg_rewind, or a new copy), and the next kill waits until a standby is
synchronous again. The gateways reach the primary through HAProxy; after that, where there is more than one kill,
one more on a database of its own by a URI that names all nodes.

Asked for: what check.py demands, through all kills and without a restart of the gateways; each effect's key has a
record on all nodes in the end, and a fresh answer follows each kill. The time from the kill to it is printed, beside
that of a program that does nothing but INSERT a row every 100 ms the same way."""

import argparse
import pathlib
import random
import shutil
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time

import psycopg2

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "blackbox"), str(HERE.parent / "crash")]

import check  # noqa: E402
import crash  # noqa: E402
from cluster import PATIENCE_S, SETTINGS, Cluster, Haproxy, missing  # noqa: E402
from harness import Gateway, config_for, wait_until  # noqa: E402

CLIENTS = 8  # not to starve the cluster's own processes on a small machine
PROBE_S, SILENCE_S = 0.1, 5
PUT_OFF, PUT_OFF_NS = "put-off", 9_000_000_000
WAYS = ["node", "postgres", "node", "frozen", "node"]
MUST_MEET = ["executed", "replayed", "attached", "outcome-unknown"]  # or it has tested nothing


class Probe:
    """INSERTs a row every 100 ms, connecting anew after every failure or five seconds of silence: what the cluster itself
    lets through."""

    def __init__(self, uri):
        self.uri = uri
        self.done = []  # (start_ns, end_ns) of each committed row
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        db = None
        number = 0
        while not self.stopping.wait(PROBE_S):
            start = time.monotonic_ns()
            number += 1
            try:
                if db is None:
                    db = psycopg2.connect(self.uri, connect_timeout=2)
                    db.autocommit = True
                self.insert(db, number)
                self.done.append((start, time.monotonic_ns()))
            except psycopg2.Error:
                if db is not None:
                    db.close()
                db = None

    @staticmethod
    def insert(db, number):
        with socket.socket(fileno=os.dup(db.fileno())) as wire:
            cut = threading.Timer(SILENCE_S, wire.shutdown, [socket.SHUT_RDWR])
            cut.start()
            try:
                with db.cursor() as cursor:
                    cursor.execute("INSERT INTO public.probe VALUES (%s, now())", (number,))
            finally:
                cut.cancel()

    def close(self):
        self.stopping.set()
        self.thread.join(PATIENCE_S)


def gap_s(at, spans):
    """From then to the end of what began after it and was the first to succeed; None: nothing did."""
    return min(((end - at) / 1e9 for start, end in spans if start >= at), default=None)


class Segment:
    """A database, two gateways on it behind one address, and kills under load."""

    def __init__(self, folder, cluster, name, seed, ways):
        self.folder, self.cluster, self.name, self.ways = folder, cluster, name, ways
        self.random = random.Random(seed)
        self.seed = seed
        self.kills = []  # (ns, text), in order
        self.load = self.probe = self.front = None
        self.gateways = []
        folder.mkdir()
        folder.chmod(0o755)
        primary = cluster.wait_until_healthy()
        primary.sql(f"CREATE DATABASE {name}")
        primary.sql("CREATE TABLE public.probe (number bigint, at timestamptz)", name)
        self.uri = cluster.uri(name) if name == "haproxy" else cluster.hosts_uri(name)

    def start(self):
        self.load = crash.Load(self.seed, self.folder, CLIENTS)
        # As in crash.py: nothing but the upstream makes an outcome unknown.
        config = config_for(self.load.url, wait="5s", lease="10m", timeout="10m", threads=2)
        for name in ("a", "b"):
            (self.folder / name).mkdir()
            self.gateways.append(Gateway(self.folder / name, config, store=self.uri))
            self.gateways[-1].start()
        servers = "".join(f"  server {i} 127.0.0.1:{gateway.port}\n" for i, gateway in enumerate(self.gateways))
        self.front = Haproxy(self.folder, "front", "http", "  balance roundrobin\n" + servers)
        wait_until(self.front.accepts, "the gateways' HAProxy listens")
        self.probe = Probe(self.uri)
        self.load.say(f"port {self.front.port}")

    def works(self):
        """May the next kill come: do both gateways say that they are ready, and has the probe got through?"""
        last = self.kills[-1][0] if self.kills else 0
        return gap_s(last, list(self.probe.done)) is not None and all(
            gateway.admin("/readyz").status == 200 for gateway in self.gateways)

    def kill(self, way):
        self.cluster.wait_until_healthy()
        time.sleep(self.random.uniform(2, 4))
        primary = self.cluster.wait_until_healthy()
        if way == "postgres":
            primary.kill_postgres()
        elif way == "frozen":
            primary.freeze()
        else:
            primary.kill()
        at, text = time.monotonic_ns(), f"kill {len(self.kills) + 1} ({way}) of {primary.name}"
        self.kills.append((at, text))
        heir = wait_until(lambda: self.cluster.primary(primary) or way == "postgres" and self.works() and primary,
                          "another node leads", PATIENCE_S)  # or Patroni has started the server again after all
        led = time.monotonic_ns()
        wait_until(self.works, "the gateways are ready again", PATIENCE_S)
        if way == "frozen":
            primary.kill()
        if way != "postgres":
            primary.start()
        print(f"  {text}: {heir.name} led after {(led - at) / 1e9:.1f} s", flush=True)

    def run(self):
        try:
            self.start()
            wait_until(self.works, "the gateways are ready")
            for way in self.ways:
                self.kill(way)
            time.sleep(self.random.uniform(1, 2))
            self.probe.close()
            self.load.stop()
            for gateway in self.gateways:
                gateway.stop()
        finally:
            self.end()

    def end(self):
        if self.load is not None:
            self.load.end()
        for gateway in self.gateways:
            if gateway.process is not None and gateway.process.poll() is None:
                gateway.kill()
        for part in (self.front, self.probe):
            if part is not None:
                part.close()

    def story(self):
        asks = check.read_asks(self.folder / "clients.log")
        for ask in filter(self.is_put_off, asks):
            ask.status, ask.marker, ask.problem = 0, PUT_OFF, "-"  # as if there had been no answer
        return check.Story(asks, check.read_arrivals(self.folder / "upstream.log"), self.kills)

    def is_put_off(self, ask):
        """After ten seconds without a store the gateway says that an outcome which it knows can't be told yet, and
        stores it when it can. The upstream's own failures are told at once."""
        return (ask.status, ask.problem) == (502, "outcome-unknown") and ask.end - ask.start >= PUT_OFF_NS and any(
            ask.start < at < ask.end for at, _ in self.kills)

    def describe(self):
        return f"seed {self.seed}, {len(self.kills)} kills, {self.name}"

    # --- What the store says. ---

    def records(self, node):
        rows = node.sql("SELECT convert_from(key, 'UTF8'), state FROM hapax.record", self.name)
        return {key.strip('"'): int(state) for key, state in rows}

    def store_faults(self, story):
        """Each node must have all that the upstream did and the clients were told."""
        primary = self.cluster.wait_until_healthy()
        written = primary.sql("SELECT pg_current_wal_lsn()")[0][0]
        for node in self.cluster.nodes:
            if node is not primary:
                wait_until(lambda n=node: n.sql(f"SELECT pg_last_wal_replay_lsn() >= '{written}'")[0][0] == "t",
                           f"{node.name} has replayed all", PATIENCE_S)
            records = self.records(node)
            for key, asks in story.asks.items():
                told = next((ask.verdict for ask in asks if ask.verdict), None)
                wanted = None if told is None else 3 if told == check.UNKNOWN else 2
                effect = any(a.plan != "busy" for a in story.arrivals[key])
                if wanted is not None and records.get(key) != wanted or effect and key not in records:
                    did = "it" if effect else "nothing"
                    yield check.Fault(key, asks[-1].end, f"on {node.name} its record is {records.get(key)}, but clients were"
                                                         f" told {told}, and the upstream did {did}")

    def probe_faults(self):
        rows = int(self.cluster.wait_until_healthy().sql("SELECT count(*) FROM public.probe", self.name)[0][0])
        if rows < len(self.probe.done):
            yield f"the cluster has lost commits itself: {len(self.probe.done)} rows were acknowledged, {rows} are there"

    def gaps(self, story):
        """(of the probe, of the gateways) for each kill."""
        fresh = [(ask.start, ask.end) for asks in story.asks.values() for ask in asks if ask.marker == "executed"]
        return [(gap_s(at, self.probe.done), gap_s(at, fresh)) for at, _ in self.kills]


def print_gaps(segment, gaps):
    print(f"  from the kill to the next commit, {segment.name}:      probe   gateways")
    for (_, text), (probe, gateways) in zip(segment.kills, gaps):
        print(f"    {text:42} {probe or -1:6.1f} s {gateways or -1:8.1f} s")
    if len(gaps) == 1:
        return
    for word, of in (("least", min), ("median", statistics.median), ("most", max)):
        print(f"    {word:42} {of([g[0] or -1 for g in gaps]):6.1f} s {of([g[1] or -1 for g in gaps]):8.1f} s")


def judge(segment):
    """Prints what happened; how many faults there were."""
    story = segment.story()
    counts = story.counts()
    counts["put off"] = sum(ask.marker == PUT_OFF for asks in story.asks.values() for ask in asks)
    gaps = segment.gaps(story)
    print_gaps(segment, gaps)
    print("  " + ", ".join(f"{n} {what}" for what, n in counts.items()), flush=True)
    faults = story.faults()
    others = list(segment.probe_faults())
    others += [f"{text}: no fresh answer after it" for (_, text), gap in zip(segment.kills, gaps) if gap[1] is None]
    others += [f"this run has not met: {what}" for what in MUST_MEET if not counts[what]]
    faults += list(segment.store_faults(story))
    if faults:
        crash.report(segment, story, sorted(faults, key=lambda f: f.at))
    for text in others:
        print(f"FAILED: {text}")
    return len(faults) + len(others)


def run(options, folder):
    """The number of faults."""
    draw = random.Random(options.seed)
    ways = [WAYS[i % len(WAYS)] for i in range(options.kills)]
    plan = [("haproxy", ways)] + ([("hosts", [draw.choice(WAYS[1:4])])] if options.kills > 1 else [])
    faults = 0
    began = time.monotonic()
    with Cluster(folder) as cluster:
        print(f"{SETTINGS}\nhealthy after {time.monotonic() - began:.0f} s", flush=True)
        for name, ways in plan:
            segment = Segment(folder / name, cluster, name, draw.randrange(1 << 32), ways)
            print(f"{name}: {segment.uri.split('@')[1]}", flush=True)
            segment.run()
            faults += judge(segment)
    print(f"{time.monotonic() - began:.0f} s, {faults} faults")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    if missing() is not None:
        print(f"ha: skipped: {missing()}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all is ended here, too
    print(f"ha.py --kills {options.kills} --seed {options.seed}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hapax-ha-")).resolve()
    folder.chmod(0o755)  # user postgres has to pass
    try:
        faults = run(options, folder)
    except BaseException:
        print(f"FAILED; logs and data: {folder}")
        raise
    if faults or options.keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
