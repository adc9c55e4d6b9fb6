"""`make race`: the mixed load on gateways of the ThreadSanitizer build, with two loops: first two processes on one
SQLite file, of which one is stopped, killed and started all the time; then one process with four lanes. SIGHUP
comes several times a second, and answers expire after two seconds.

A report of the sanitizer ends the process with exit status 86, which fails the run; so does a broken promise."""

import argparse
import pathlib
import sys
import tempfile
import threading
import time

from load import Books, Client, Operator, Shop, alive, config, nothing_is_left, reload, report_and_judge, sanitizer_reports
from harness import BUILD, HAPAX, Gateway, wait_until

TTL_S = 2
EXPECTED = [*Client.ACTIONS, "reload", "201 executed", "201 replayed", "201 attached", "422 key-reused",
            "409 answer-not-kept", "503 released", "502 outcome-unknown"]


def restart(books, gateway, number):
    alive(gateway)
    if number % 2:
        gateway.stop()
    else:
        gateway.kill()
    gateway.start()
    books.count("restart")


def drive(books, shop, gateways, restless, seconds):
    """The load, with what an operator does to running gateways."""
    stopping = threading.Event()
    clients = [Client(books, gateways[:1], n, stopping, steady=True) for n in range(5)]
    clients += [Client(books, gateways, n, stopping, steady=restless is None) for n in range(5, 8)]
    others = [Operator(books, gateways[0], stopping)] if restless is not None else []
    for thread in [*clients, *others]:
        thread.start()
    try:
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end and not books.failures:
            number += 1
            stopping.wait(0.25)
            for gateway in gateways:
                alive(gateway)
                reload(gateway, shop, TTL_S, number)
                books.count("reload")
            if restless is not None and number % 16 == 0:
                restart(books, restless, number // 16)
    finally:
        stopping.set()
        for thread in [*clients, *others]:
            thread.join()


def with_restarts(books, shop, folder, seconds):
    steady = Gateway(folder / "a", None)
    restless = Gateway(folder / "b", None, store=steady.store)
    run(books, shop, [steady, restless], restless, seconds)


def with_lanes(books, shop, folder, seconds):
    run(books, shop, [Gateway(folder / "c", None, store="memory:race")], None, seconds)


def run(books, shop, gateways, restless, seconds):
    try:
        for gateway in gateways:
            gateway.folder.mkdir()
            gateway.write_config(config(shop, TTL_S))
            gateway.start()
        drive(books, shop, gateways, restless, seconds)
        for gateway in gateways:
            alive(gateway)
            wait_until(lambda: not nothing_is_left(gateway), "nothing runs any more")
            books.count("expired", int(gateway.metric("hapax_records_expired_total")))
    finally:
        for gateway in gateways:
            gateway.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--any-build", action="store_true", help="also without the sanitizer, to try the load")
    options = parser.parse_args()
    if b"__tsan_init" not in HAPAX.read_bytes() and not options.any_build:
        sys.exit(f"race: {BUILD} is not built with ThreadSanitizer: use `make race`")
    books = Books(TTL_S)
    shop = Shop(books)
    with tempfile.TemporaryDirectory(prefix="hapax-race-") as folder:
        try:
            with_restarts(books, shop, pathlib.Path(folder), options.seconds * 0.6)
            if not books.failures:
                with_lanes(books, shop, pathlib.Path(folder), options.seconds * 0.4)
        except AssertionError as error:  # a gateway that ended badly, with its log
            books.fail(str(error))
        books.failures[:0] = sanitizer_reports(pathlib.Path(folder))
        shop.close()
    failures = report_and_judge(books, [*EXPECTED, "restart", "resolved", "expired"])
    if failures:
        print(f"race: {len(failures)} failures", *failures[:10], sep="\n  ")
        sys.exit(1)
    print(f"race: no race and no broken promise in {options.seconds:.0f} s")


if __name__ == "__main__":
    main()
