"""The library without HTTP: durable pairs of claim and answer from 64 threads, beside Redis `always` doing SET NX and
SET from 64 threads. The same size of answer, the same disk, turn by turn."""

import json
import statistics
import subprocess

from measure import BUILD, HAPAX, Unusable, note
from subjects import start_redis

THREADS, BODY_BYTES = 64, 200


def output_of(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unusable(f"{command[0]}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def hapax_turn(bench):
    found = output_of([HAPAX, "bench", "--json", "--threads", THREADS, "--body", BODY_BYTES, "--dir", bench.run,
                       "--seconds", bench.options.seconds])
    return {"pairs_per_s": found["pairs_per_s"], "p50_ms": found["us"]["pair"]["p50"] / 1000,
            "p99_ms": found["us"]["pair"]["p99"] / 1000, "batch": found["batch_operations"]}


def measure(bench):
    port, _ = start_redis(bench.servers, bench.run, "redis", "always")
    client = [BUILD / "bench/tools/redis_pairs", port, THREADS, bench.options.seconds, BODY_BYTES]
    ours, theirs = [], []
    for number in range(bench.options.rounds):
        note(f"pairs, round {number + 1}/{bench.options.rounds}")
        ours.append(hapax_turn(bench))
        theirs.append(output_of(client))
    rows = {name: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
            for name, turns in [("hapax", ours), ("redis", theirs)]}
    rows["ratio"] = statistics.median(a["pairs_per_s"] / b["pairs_per_s"] for a, b in zip(ours, theirs))
    return rows
