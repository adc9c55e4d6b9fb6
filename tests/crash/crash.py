#!/usr/bin/python3
"""`make crash`: a gateway under load is killed at random instants and started anew on the same store, round after
round, and nobody may notice more than a broken connection. See check.py for what is asked for.

  crash.py [--rounds N] [--seed S] [--power] [--postgres] [--long-freezes N] [--keep]

Rounds come in segments, each with a store of its own; every second segment also cuts the power (--power: all of
them), see powercut.c. With --postgres two gateways share a
server, and it is killed, too: see shared.py. At the end of a segment every key is asked again and the logs are judged. Instants are drawn
from the seed, but what happens at them is the machine's: the same seed finds the same fault often, not always.

A failing segment's folder (logs, store) is kept, and its seed, rounds and the history of each key are printed."""

import argparse
import functools
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "blackbox"))

import check  # noqa: E402
import powercut  # noqa: E402
from harness import BUILD, Gateway, config_for  # noqa: E402

CLIENTS = 64
SEGMENT_ROUNDS = 50
KEYS_SHOWN = 5
FAULTS_SHOWN = 3  # of a key
# What a segment of SEGMENT_ROUNDS must have met, or it has tested nothing.
MUST_MEET = ["executed", "replayed", "attached", "outcome-unknown", "key-reused", "released", "no answer", "503s",
             "keys held", "kills in a call"]
MUST_MEET_POWER = ["cuts that hit the log"]


def power_environment(folder, lie=None, kill=None):
    environment = {
        "LD_PRELOAD": str(BUILD / "tests" / "crash" / "libhapax_powercut.so"),
        "POWERCUT_STORE": str(folder / "hapax.db"),
        "POWERCUT_JOURNAL": str(folder / "powercut.journal"),
    }
    more = {"POWERCUT_LIE": lie, "POWERCUT_KILL": kill and str(kill)}
    return environment | {name: value for name, value in more.items() if value}


class Load:
    """The process with the clients and the upstream."""

    def __init__(self, seed, folder, clients=CLIENTS):
        self.process = subprocess.Popen(
            [BUILD / "tests" / "crash" / "hapax_crash_load", str(seed), str(clients), folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self.answer('upstream')}"

    def answer(self, word):
        line = self.process.stdout.readline().split()
        assert line and line[0] == word, f"the load ended: {self.process.wait()}"
        return int(line[1])

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self):
        self.say("stop")
        keys = self.answer("keys")
        assert self.process.wait() == 0
        return keys

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Segment:
    """Rounds on one store."""

    def __init__(self, folder, seed, rounds, power, lie=None):
        self.folder, self.seed, self.rounds, self.power = folder, seed, rounds, power
        self.random = random.Random(seed)
        self.kills = []
        (folder / "powercut.journal").touch()  # the first gateway may die before it does anything
        self.load = Load(seed, folder)
        # Long times: on a slow machine, too, nothing but a kill or the upstream makes an outcome unknown.
        config = config_for(self.load.url, wait="5s", lease="10m", timeout="10m", threads=2)
        self.gateway = Gateway(folder, config, environment=power_environment(folder, lie) if power else None)

    def round(self, number):
        """Start, let it run for a while, kill. One in six dies before it listens, or soon after."""
        early = self.random.random() < 1 / 6
        life_s = self.random.uniform(0, 0.05) if early else self.random.uniform(0.02, 0.3)
        self.gateway.spawn()
        started = time.monotonic()
        if early:
            while time.monotonic() < started + life_s and not self.gateway.listens():
                time.sleep(0.002)
        else:
            self.gateway.wait_until_it_listens()
            started = time.monotonic()
        if self.gateway.listens():
            self.load.say(f"port {self.gateway.port}")
        time.sleep(max(0, started + life_s - time.monotonic()))
        self.gateway.process.kill()
        self.load.say("port 0")
        self.gateway.kill()
        at = time.monotonic_ns()  # it is dead: what it still did between signal and end stands before this
        code = self.gateway.process.returncode
        assert code == -signal.SIGKILL, f"the gateway ended with {code}: {self.gateway.log_since_start()[-4000:]}"
        text = f"round {number}: killed"
        if self.power and self.random.random() < 2 / 3:
            text += ", " + powercut.cut(self.gateway.store_path, self.folder / "powercut.journal", self.random)
        elif self.power:
            powercut.read_journal(self.folder / "powercut.journal")  # trims what the kill broke off
        self.kills.append((at, text))

    def run(self):
        try:
            for number in range(1, self.rounds + 1):
                self.round(number)
            self.gateway.start()
            self.load.say(f"port {self.gateway.port}")
            self.load.stop()
            self.gateway.stop()
        finally:
            self.load.end()
            if self.gateway.process is not None:
                self.gateway.kill()
        asks = check.read_asks(self.folder / "clients.log")
        return check.Story(asks, check.read_arrivals(self.folder / "upstream.log"), self.kills)

    def counts(self, story):
        counts = story.counts()
        if self.power:
            texts = [text for _, text in self.kills]
            counts["cuts that hit the log"] = sum("hapax.db-wal" in text for text in texts)
            counts["cuts that hit the database"] = sum(
                "writes of hapax.db" in text.replace("hapax.db-wal", "") for text in texts)
        return counts

    def must_meet(self):
        return MUST_MEET + (MUST_MEET_POWER if self.power else [])

    def describe(self):
        kind = "kills and power cuts" if self.power else "kills"
        return f"seed {self.seed}, {self.rounds} rounds of {kind}"


def report(segment, story, faults):
    print(f"FAILED: {segment.describe()}; logs and store: {segment.folder}")
    print(f"{len(faults)} faults about {len({f.key for f in faults})} keys")
    for key in list(dict.fromkeys(f.key for f in faults))[:KEYS_SHOWN]:
        print(f"\nkey {key}:")
        for fault in [f for f in faults if f.key == key][:FAULTS_SHOWN]:
            before = [text for at, text in segment.kills if at < fault.at]
            print(f"  {fault.at / 1e9:.6f}  {fault.text} (after {before[-1] if before else 'nothing'})")
        print("history:")
        print("\n".join("  " + line for line in story.history(key)))


def run_segment(make, seed, rounds, keep):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hapax-crash-")).resolve()
    segment = make(folder, seed, rounds)
    print(segment.describe() + ": ", end="", flush=True)
    began = time.monotonic()
    try:
        story = segment.run()
    except BaseException:
        after = segment.kills[-1][1] if segment.kills else "nothing"
        print(f"FAILED after {after}; logs and store: {folder}")
        raise
    counts = segment.counts(story)
    print(f"{time.monotonic() - began:.0f} s, " + ", ".join(f"{n} {what}" for what, n in counts.items()), flush=True)
    faults = story.faults()
    if faults:
        report(segment, story, faults)
        return False
    missing = [what for what in segment.must_meet() if not counts[what]] if rounds >= SEGMENT_ROUNDS else []
    if missing:
        print(f"FAILED: this run has not met: {', '.join(missing)}; logs: {folder}")
    elif keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return not missing


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--long-freezes", type=int, default=0, help="so many of the rounds on PostgreSQL take 20 s")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    print("crash.py " + " ".join(f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
                                 for name, value in vars(options).items() if value))
    left, number = options.rounds, 0
    while left > 0:
        rounds = min(left, SEGMENT_ROUNDS)
        power = options.power or number % 2 == 1
        make = functools.partial(Segment, power=power)
        if options.postgres:
            from shared import SharedSegment
            make = functools.partial(SharedSegment, long_freezes=min(options.long_freezes, rounds))
        if not run_segment(make, options.seed + number, rounds, options.keep):
            return 1
        left -= rounds
        number += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
