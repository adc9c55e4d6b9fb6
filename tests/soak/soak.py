"""`make soak MIN=...`: the mixed load for so many minutes, and whether anything grows.

Two gateways share one SQLite file. The steady one runs from beginning to end, with a reload every two seconds: its
memory, descriptors and threads are judged. The restless one is stopped and started, or killed and started, all the
time. An operator settles what becomes unknown, and answers expire after three seconds, so that the sweep never
rests and the file's size has to level off. Judged, too: the store's file, its log, and its table of owners."""

import argparse
import json
import pathlib
import sqlite3
import sys
import tempfile
import threading
import time

from judge import Allowance, judge, table
from load import Books, Client, Operator, Shop, alive, config, nothing_is_left, reload, report_and_judge
from harness import HAPAX, Gateway, wait_until

TTL_S = 3
RESTART_S = 5
MIB = 1024 * 1024
EXPECTED = [*Client.ACTIONS, "reload", "stopped", "killed", "resolved", "expired", "201 executed", "201 replayed",
            "201 attached", "422 key-reused", "409 answer-not-kept", "503 released", "502 outcome-unknown"]

ALLOWANCES = {
    "memory bytes": Allowance(absolute=4 * MIB, relative=0.05),
    "descriptors": Allowance(absolute=10),
    "threads": Allowance(absolute=0),
    "database bytes": Allowance(absolute=2 * MIB, relative=0.10),
    # It fills until it starts over at 128 MiB, or 192 MiB at the latest: a short run sees only the filling.
    "log bytes": Allowance(absolute=208 * MIB, ceiling=208 * MIB),
    "records": Allowance(absolute=1000, relative=0.10),
    "owners": Allowance(absolute=1, ceiling=6),
}


# --- Samples ---------------------------------------------------------------------------------------


def store_counts(path):
    """Records and owners; the connection is closed again, so that it holds up no checkpoint."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)
    try:
        records = db.execute("SELECT (SELECT count(*) FROM ended) + (SELECT count(*) FROM running)").fetchone()[0]
        return records, db.execute("SELECT count(*) FROM owner").fetchone()[0]
    finally:
        db.close()


def sample(gateway, store):
    process = pathlib.Path(f"/proc/{gateway.process.pid}")
    log = pathlib.Path(f"{store}-wal")
    records, owners = store_counts(store)
    return {
        "memory bytes": gateway.memory_kib() * 1024,
        "descriptors": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "database bytes": store.stat().st_size,
        "log bytes": log.stat().st_size if log.exists() else 0,
        "records": records,
        "owners": owners,
    }


class Sampler(threading.Thread):
    def __init__(self, books, gateway, every_s, stopping):
        super().__init__(name="sampler")
        self.books, self.gateway, self.every_s, self.stopping = books, gateway, every_s, stopping
        self.series = {name: [] for name in ALLOWANCES}

    def run(self):
        begin = time.monotonic()
        while not self.stopping.wait(self.every_s):
            try:
                for name, value in sample(self.gateway, self.gateway.store_path).items():
                    self.series[name].append((round(time.monotonic() - begin, 2), value))
            except Exception as error:
                self.books.fail(f"sampler: {error!r}")
                return

    def verdicts(self):
        return [judge(name, points, ALLOWANCES[name]) for name, points in self.series.items()]


# --- The run ---------------------------------------------------------------------------------------


def restart(books, gateway, number):
    alive(gateway)
    if number % 2:
        gateway.kill()
        books.count("killed")
    else:
        gateway.stop()
        books.count("stopped")
    gateway.start()


def disturb(books, shop, steady, restless, seconds):
    """Until the time is over, or something is wrong already."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end and not books.failures:
        time.sleep(min(1, max(0, end - time.monotonic())))
        number += 1
        alive(steady)
        if number % 2 == 0:
            reload(steady, shop, TTL_S, number // 2)
            books.count("reload")
        if number % RESTART_S == 0:
            restart(books, restless, number // RESTART_S)


def settle(books, operator, gateways):
    """With the clients gone, everything comes to an end: no wait, no claim, no unknown outcome stays."""
    for gateway in gateways:
        alive(gateway)
        wait_until(lambda: not nothing_is_left(gateway), "nothing runs any more")
    while operator.settle(500) > 0:
        pass
    stats = json.loads(gateways[0].cli("stats", "--json").stdout)
    if stats["running"] or stats["unknown"]:
        books.fail(f"the store still has {stats}")
    wait_until(lambda: store_counts(gateways[0].store_path)[0] == 0, "every answer expires and is swept")
    books.count("expired", int(sum(g.metric("hapax_records_expired_total") for g in gateways)))


def load(books, shop, steady, restless, seconds, threads, stopping):
    for thread in threads:
        thread.start()
    try:
        disturb(books, shop, steady, restless, seconds)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def soak(books, shop, folder, seconds, clients):
    steady = Gateway(folder / "steady", None)
    restless = Gateway(folder / "restless", None, store=steady.store)
    gateways = [steady, restless]
    stopping = threading.Event()
    operator = Operator(books, steady, stopping)
    sampler = Sampler(books, steady, max(0.25, seconds / 400), stopping)
    threads = [operator, sampler]
    threads += [Client(books, gateways if n % 4 == 3 else [steady], n, stopping, steady=n % 4 != 3) for n in range(clients)]
    try:
        for gateway in gateways:
            gateway.folder.mkdir()
            gateway.write_config(config(shop, TTL_S))
            gateway.start()
        load(books, shop, steady, restless, seconds, threads, stopping)
        settle(books, operator, gateways)
    finally:
        for gateway in gateways:
            gateway.stop()
    check_file(books, steady.store_path)
    return sampler


def check_file(books, path):
    db = sqlite3.connect(path)
    found = db.execute("PRAGMA integrity_check").fetchall()
    db.close()
    if found != [("ok",)]:
        books.fail(f"the file is damaged: {found}")
    if store_counts(path)[1] != 0:
        books.fail("owners are left that have gone in peace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--json", metavar="FILE", help="write the samples and what they came to")
    options = parser.parse_args()
    if b"__asan_init" in HAPAX.read_bytes() or b"__tsan_init" in HAPAX.read_bytes():
        sys.exit("soak: figures of memory mean nothing in a build with a sanitizer")
    books = Books(TTL_S)
    shop = Shop(books)
    sampler = None
    with tempfile.TemporaryDirectory(prefix="hapax-soak-") as folder:
        try:
            sampler = soak(books, shop, pathlib.Path(folder), options.minutes * 60, options.clients)
        except AssertionError as error:  # a gateway that ended badly, with its log
            books.fail(str(error))
        shop.close()
    failures = report_and_judge(books, EXPECTED)
    verdicts = sampler.verdicts() if sampler else []
    print(table(verdicts))
    failures += [v.complaint for v in verdicts if v.complaint]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"minutes": options.minutes, "counts": books.counts, "failures": failures,
             "verdicts": [{**vars(v), "growth": v.growth} for v in verdicts],
             "samples": sampler.series if sampler else {}}, indent=1) + "\n")
    if failures:
        print(f"soak: {len(failures)} failures", *failures[:10], sep="\n  ")
        sys.exit(1)
    print(f"soak: nothing grows and no promise was broken in {options.minutes:g} min")


if __name__ == "__main__":
    main()
