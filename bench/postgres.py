"""The parts of --store postgres: on a private PostgreSQL that keeps its promises (SETTINGS), everything in turns.

By hand means pgbench (bench/by_hand.sql): INSERT ... ON CONFLICT DO NOTHING, then UPDATE, each a transaction of its
own, which is what one writes without Hapax. Its table has no index beside the key's and room on its pages for updates
in place: nothing there is slower than need be."""

import concurrent.futures
import contextlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

from measure import HAPAX, ROOT, Servers, Unusable, Usage, device_bytes, note, send_known_keys, sync_us
from pairs import BODY_BYTES, THREADS, output_of
from side import LOADS, take_turn
from stores import DAY_S, FEW_SHARE
from subjects import start_hapax, start_upstream
from turns import TurnCounter

sys.path.append(str(ROOT / "tests/tools"))
from postgres_server import PostgresServer, binaries_folder  # noqa: E402

SETTINGS = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB",
            "min_wal_size": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min", "max_connections": "200"}
CONNECTING_S = 2  # of pgbench's time, which its pairs/s do not count
KEY_BYTES = 1000  # on disk for a filled key, its part of the log included, generously
BY_HAND = """CREATE TABLE by_hand (key text PRIMARY KEY, fingerprint bytea, done boolean NOT NULL, claimed timestamptz,
                                   expires timestamptz, status int, body text) WITH (fillfactor = 70)"""


def settings(options):
    return SETTINGS | dict(pair.split("=", 1) for pair in options.set)


@contextlib.contextmanager
def private_server(bench, **more):
    """In the folder of the run, so that its disk is the one that the others have, too."""
    if PostgresServer.missing() is not None:
        raise Unusable(PostgresServer.missing())
    note("starting PostgreSQL")
    try:
        server = PostgresServer(within=bench.run, unix_socket_directories="", **settings(bench.options), **more)
    except (OSError, subprocess.SubprocessError) as why:
        raise Unusable(f"PostgreSQL can't be started below {bench.run}: may its user go there? BENCH_DIR=DIR names "
                       f"another place ({why})") from why
    try:
        try:
            server.start()
        except RuntimeError as why:
            raise Unusable(str(why)) from why
        settle(server)
        yield server
    finally:
        server.close()


def settle(server):
    """A server that runs for a while writes its log into files that it used before; into new ones a sync takes longer."""
    server.sql("SELECT count(pg_logical_emit_message(false, 'bench', repeat('b', 1 << 20))) FROM generate_series(1, 512)")
    server.sql("SELECT pg_switch_wal()")
    server.sql("CHECKPOINT")


def postgres_facts(options):
    text = ", ".join(f"{name} {value}" for name, value in settings(options).items())
    version = "not there"
    if PostgresServer.missing() is None:
        version = subprocess.run([f"{binaries_folder()}/postgres", "--version"], capture_output=True, text=True,
                                 check=True).stdout.strip()
    return {"postgresql": version, "its settings": text}


# --- what it cost ----------------------------------------------------------------------------------


class Cost:
    """What the server and a client spent between begin() and end(), a pair."""

    def __init__(self, server):
        self.server = server
        self.usage = Usage([server.process])

    def counters(self):
        """Bytes of the log, its full pages, its syncs; commits in all databases."""
        [row] = self.server.sql("""SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, wal_fpi, wal_sync,
            (SELECT sum(xact_commit) FROM pg_stat_database) FROM pg_stat_wal""")
        return [float(n) for n in row]

    @staticmethod
    def client_s():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def begin(self):
        self.before = self.counters()
        self.usage.begin()
        self.client_before = self.client_s()

    def end(self, pairs):
        client = self.client_s() - self.client_before
        server = self.usage.end(pairs)
        wal, full_pages, syncs, commits = (a - b for a, b in zip(self.counters(), self.before))
        pairs = max(1, pairs)
        return {"wal_bytes": wal / pairs, "full_pages": full_pages / pairs, "syncs": syncs / pairs,
                "commits": commits / pairs, "server_cpu_us": server["cpu_us"], "client_cpu_us": client * 1e6 / pairs}


# --- two clients that make pairs -------------------------------------------------------------------


def hapax_pairs(uri, clients, seconds):
    found = output_of([HAPAX, "bench", "--json", "--store", uri, "--existing", "--threads", clients, "--body", BODY_BYTES,
                       "--seconds", seconds])
    count = found["us"]["pair"]["count"]
    return {"pairs": count, "pairs_per_s": found["pairs_per_s"], "p50_ms": found["us"]["pair"]["p50"] / 1000,
            "p99_ms": found["us"]["pair"]["p99"] / 1000, "batch": found["batch_operations"],
            "batches": 2 * count / max(1, found["batch_operations"]), "lanes": found["setting"]["lanes"]}


def pgbench_pairs(uri, clients, seconds):
    """On a busy machine the clients may not even be connected in time: then it gets more."""
    for connecting_s in (CONNECTING_S, 10 * CONNECTING_S):
        command = [f"{binaries_folder()}/pgbench", "-n", "-M", "prepared", "-f", ROOT / "bench/by_hand.sql",
                   "-D", "body=" + BODY_BYTES * "b", "-c", clients, "-j", min(2, clients), "-T", seconds + connecting_s, uri]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        found = {name: re.search(pattern, done.stdout, re.M) for name, pattern in [
            ("pairs", r"actually processed: (\d+)"), ("pairs_per_s", r"^tps = ([\d.]+)")]}
        if done.returncode == 0 and None not in found.values():
            return {name: float(match[1]) for name, match in found.items()}
    raise Unusable(f"pgbench: {(done.stderr or done.stdout).strip()[-300:]}")


CLIENTS = {"hapax": hapax_pairs, "by hand": pgbench_pairs}


def database_with_tables(server):
    """The URI of a new database that both may use."""
    name = server.database()
    server.sql(BY_HAND, name)
    hapax_pairs(server.uri(name), 1, 1)
    return server.uri(name)


def median_of(turns):
    return {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}


def take_pairs(bench, server, clients):
    uri = database_with_tables(server)
    turns = {name: [] for name in CLIENTS}
    server.sql("CHECKPOINT")
    for number in range(bench.options.rounds):
        for name, make_pairs in CLIENTS.items():
            note(f"pairs, {clients} clients, round {number + 1}/{bench.options.rounds}: {name}")
            cost = Cost(server)
            cost.begin()
            found = make_pairs(uri, clients, bench.options.seconds)
            turns[name].append({**found, **cost.end(found["pairs"])})
    ratio = statistics.median(a["pairs_per_s"] / max(1e-3, b["pairs_per_s"]) for a, b in zip(*turns.values()))
    return {"clients": clients, "ratio": ratio, **{name: median_of(all_turns) for name, all_turns in turns.items()},
            "all_pairs_per_s": {name: [round(t["pairs_per_s"]) for t in all_turns] for name, all_turns in turns.items()}}


def measure_pairs(bench):
    with private_server(bench) as server:
        in_place, growing = sync_us(bench.run)
        return {"rows": [take_pairs(bench, server, clients) for clients in (THREADS, 1)], "sync_us": in_place,
                "growing_us": growing}


# --- round trips and statements --------------------------------------------------------------------


def statements(server):
    [[count]] = server.sql("SELECT coalesce(sum(calls), 0) FROM statements.pg_stat_statements")
    return int(count)


def count_turn(server, database, make_pairs, clients, seconds):
    with TurnCounter(server.port) as counter:
        before = statements(server)
        found = make_pairs(server.uri(database, port=counter.port), clients, seconds)
        return {"pairs": found["pairs"], "batches": found.get("batches"), "trips": counter.turns,
                "statements": statements(server) - before}


def measure_trips(bench):
    """What a short and a longer run differ by: so what connecting takes is not counted."""
    with private_server(bench, shared_preload_libraries="pg_stat_statements", **{"pg_stat_statements.track": "top"}) as server:
        server.sql("CREATE SCHEMA statements; CREATE EXTENSION pg_stat_statements SCHEMA statements")
        database = database_with_tables(server).rsplit("/", 1)[1]
        rows = []
        for name, clients in [("hapax", THREADS), ("hapax", 1), ("by hand", 1)]:
            note(f"counting round trips: {name}, {clients} clients")
            short, longer = (count_turn(server, database, CLIENTS[name], clients, seconds) for seconds in (1, 3))
            more = {key: longer[key] - short[key] for key in longer if longer[key] is not None}
            if more["pairs"] < longer["pairs"] / 4:
                more = {key: longer[key] for key in more}  # a slow moment: connecting is counted, too
            rows.append({"who": name, "clients": clients,
                         **{f"{key}_a_pair": more[key] / max(1, more["pairs"]) for key in ("trips", "statements")},
                         **{f"{key}_a_batch": more[key] / max(1, more["batches"])
                            for key in ("trips", "statements") if "batches" in more}})
        return rows


# --- the gateway on PostgreSQL and on SQLite -------------------------------------------------------


def measure_gateway(bench):
    with private_server(bench) as server, Servers() as servers:  # gateways end before their database
        upstream = start_upstream(servers, bench.run).port
        subjects = {"SQLite": start_hapax(servers, bench.run, upstream, "on-sqlite"),
                    "PostgreSQL": start_hapax(servers, bench.run, upstream, "on-postgres",
                                              server.uri(server.database()))}
        subjects["PostgreSQL"].processes.append(server.process)
        for subject in subjects.values():
            send_known_keys(subject.port)
        server.sql("CHECKPOINT")
        rows = []
        for connections in bench.options.connections:
            for load in bench.options.loads:
                rows += gateway_rounds(bench, subjects, load, connections)
        return rows


def gateway_rounds(bench, subjects, load, connections):
    turns = {name: [] for name in subjects}
    for number in range(bench.options.rounds):
        for name, subject in subjects.items():
            note(f"{load}, {connections} connections, round {number + 1}/{bench.options.rounds}: gateway on {name}")
            written = device_bytes(bench.run)
            found = take_turn(subject, connections, bench.options.seconds, LOADS[load])
            written = device_bytes(bench.run) - written
            turns[name].append({**found, "disk_bytes": written / max(1, found["requests"])})
    for name, all_turns in turns.items():
        yield {"load": load, "connections": connections, "store": name, **median_of(all_turns),
               "bad": sum(t["bad"] for t in all_turns),
               "to_sqlite": statistics.median(a["rps"] / max(1e-3, b["rps"])
                                              for a, b in zip(all_turns, turns["SQLite"])),
               "all_rps": [round(t["rps"]) for t in all_turns]}


# --- many live keys --------------------------------------------------------------------------------

# Indexes are made afterwards, which takes a fraction of the time; the one on digests as full as keys that come in any
# order leave it.
DROP = """ALTER TABLE hapax.record DROP CONSTRAINT record_pkey;
DO $$ DECLARE name text; BEGIN
    CREATE TABLE dropped AS SELECT indexdef FROM pg_indexes WHERE schemaname = 'hapax' AND tablename = 'record';
    FOR name IN SELECT indexname FROM pg_indexes WHERE schemaname = 'hapax' AND tablename = 'record' LOOP
        EXECUTE 'DROP INDEX hapax.' || name;
    END LOOP;
END $$"""
FILL = """SET synchronous_commit = off;
INSERT INTO hapax.record (digest, serial, state, attempt, owner, claimed_ms, lease_ms, ended_ms, expires_ms, ttl_ms,
                          fingerprint_version, fingerprint, scope, key, status, kept, head, body)
SELECT uuid_send(gen_random_uuid()), 1000000000 + i, 2, 1, 1, now_ms, now_ms + 30000, now_ms, now_ms + {ttl_ms}, {ttl_ms},
       1, uuid_send(gen_random_uuid()), 'orders POST /orders -', convert_to(gen_random_uuid()::text, 'UTF8'), 200, 1,
       convert_to(E'Server: nginx/1.22.1\\r\\nContent-Type: application/json\\r\\n', 'UTF8'),
       '{{"status":"ok","id":"ch_000000000000"}}'
FROM generate_series({first}, {last}) AS i, (SELECT hapax.clock_ms() AS now_ms OFFSET 0) AS t"""
RESTORE = """SET maintenance_work_mem = '512MB'; SET max_parallel_maintenance_workers = 1;
ALTER TABLE hapax.record ADD CONSTRAINT record_pkey PRIMARY KEY (digest) WITH (fillfactor = 70);
ALTER INDEX hapax.record_pkey RESET (fillfactor);
DO $$ DECLARE def text; BEGIN
    FOR def IN SELECT indexdef FROM dropped LOOP EXECUTE def; END LOOP;
    DROP TABLE dropped;
END $$"""
FILL_STEP = 250_000
KEYS_PHASES = ("after a checkpoint", "later")


def add_keys(server, database, first, last):
    def add_part(begin):
        note(f"filling PostgreSQL: key {begin:,} of {last:,}")
        server.sql(FILL.format(first=begin, last=min(last, begin + FILL_STEP - 1), ttl_ms=DAY_S * 1000), database)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(add_part, range(first, last + 1, FILL_STEP)))


def fill(server, database, count):
    """Done records that expire in a day, in tables that a gateway has made already."""
    start = time.time()
    server.sql(DROP, database)
    add_keys(server, database, 1, count)
    note(f"making the indexes of {count:,} keys")
    server.sql(RESTORE, database)
    server.sql("SELECT setval('hapax.serial', 2000000000)", database)  # beyond what is filled in, and is added later
    server.sql("VACUUM (ANALYZE, FREEZE) hapax.record", database)
    [[size]] = server.sql("SELECT pg_total_relation_size('hapax.record')", database)
    return {"count": count, "seconds": time.time() - start, "bytes": int(size)}


def measure_keys(bench):
    """Twice: right after a checkpoint, when the first change of each page of the index puts all of that page into the log,
    and later, when most pages were changed before; a 40th of the keys is added for that."""
    wanted = bench.options.keys * KEY_BYTES + (10 << 30)
    free = shutil.disk_usage(bench.run).free
    if free < wanted:
        raise Unusable(f"{bench.options.keys:,} keys may need {wanted >> 30} GiB and {free >> 30} are free: --keys N")
    with private_server(bench) as server, Servers() as servers:
        upstream = start_upstream(servers, bench.run).port
        subjects, filled, databases = [], [], {}
        for count in (max(1, bench.options.keys // FEW_SHARE), bench.options.keys):
            databases[count] = server.database()
            hapax_pairs(server.uri(databases[count]), 1, 1)  # makes the tables
            filled.append(fill(server, databases[count], count))
            subjects.append((count, start_hapax(servers, bench.run, upstream, f"keys-{count}",
                                                server.uri(databases[count]))))
        rows = []
        for phase in KEYS_PHASES:
            if phase == KEYS_PHASES[0]:
                server.sql("CHECKPOINT")
            else:
                for count, database in databases.items():
                    add_keys(server, database, count + 1, count + count // 40)
            for connections in bench.options.connections:
                rows += keys_rounds(bench, server, subjects, connections, phase)
        return {"filled": filled, "rows": rows}


def keys_rounds(bench, server, subjects, connections, phase):
    turns = {count: [] for count, _ in subjects}
    for number in range(bench.options.rounds):
        for count, subject in subjects:
            note(f"{count:,} keys, {phase}, {connections} connections, round {number + 1}/{bench.options.rounds}")
            cost = Cost(server)
            cost.begin()
            found = take_turn(subject, connections, bench.options.seconds, 0)
            turns[count].append({**found, **cost.end(found["requests"])})
    few = turns[subjects[0][0]]
    for count, all_turns in turns.items():
        yield {"keys": count, "phase": phase, "connections": connections, **median_of(all_turns),
               "bad": sum(t["bad"] for t in all_turns),
               "to_few": statistics.median(a["rps"] / max(1, b["rps"]) for a, b in zip(all_turns, few))}
