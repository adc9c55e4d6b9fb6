"""Large stores under fresh load: many live keys against few, and many that expire at one moment."""

import json
import statistics
import subprocess
import time

from measure import BUILD, Unusable, Usage, metric, note, wrk
from subjects import start_hapax, start_upstream

FEW_SHARE = 200  # one key in so many: 100,000 beside 20 million
DAY_S = 86400
SEGMENTS_MAX = 60  # of the time during which expired keys are removed
BEFORE_TURNS = 6    # that many, so that syncs of the database, which are rare, are among them
FILL_RESERVE = 2    # a fill may take this many times what a trial of a part suggests
CONNECTIONS = 32


def fill(path, count, expires_s):
    """A store of `count` done records that all expire at `expires_s`. What hapax_fill says about it."""
    note(f"filling a store with {count:,} keys")
    done = subprocess.run([BUILD / "bench/tools/hapax_fill", path, str(count), str(int(expires_s * 1000))],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Unusable(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


# --- many keys against few -------------------------------------------------------------------------


def measure_keys(bench):
    upstream = start_upstream(bench.servers, bench.run).port
    subjects, filled = [], []
    few = max(1, bench.options.keys // FEW_SHARE)
    for name, count in [("few", few), ("many", bench.options.keys)]:
        store = bench.run / f"{name}.db"
        filled.append(fill(store, count, time.time() + DAY_S))
        subjects.append((count, start_hapax(bench.servers, bench.run, upstream, name, f"sqlite:{store}")))
    rows = []
    for connections in bench.options.connections:
        turns = {count: [] for count, _ in subjects}
        for number in range(bench.options.rounds):
            for count, subject in subjects:
                note(f"{count:,} keys, {connections} connections, round {number + 1}/{bench.options.rounds}")
                usage = Usage(subject.processes)
                usage.begin()
                found = wrk(subject.port, connections, bench.options.seconds)
                turns[count].append({**found, **usage.end(found["requests"])})
        for count, all_turns in turns.items():
            rows.append({"keys": count, "connections": connections,
                         **{key: statistics.median(t[key] for t in all_turns) for key in all_turns[0]},
                         "to_few": statistics.median(
                             a["rps"] / max(1, b["rps"]) for a, b in zip(all_turns, turns[few]))})
    return {"filled": filled, "rows": rows}


# --- all at once -----------------------------------------------------------------------------------


def fill_to_expire(bench, store):
    """Filled in time: how long that takes is tried on a part first."""
    count = bench.options.expiring
    part = max(1, count // 20)
    trial = fill(bench.run / "trial.db", part, time.time() + DAY_S)
    expected_s = trial["seconds"] * count / part * FILL_RESERVE + 2
    expires_s = time.time() + expected_s + (BEFORE_TURNS + 1) * bench.options.seconds + 10
    fill(store, count, expires_s)
    if time.time() + (BEFORE_TURNS + 1) * bench.options.seconds > expires_s:
        raise Unusable("filling took much longer than a trial suggested; is the machine busy?")
    return expires_s


def phase(turns):
    return {"p50_ms": statistics.median(t["p50_ms"] for t in turns),
            "p99_ms": statistics.median(t["p99_ms"] for t in turns),
            "worst_p99_ms": max(t["p99_ms"] for t in turns), "max_ms": max(t["max_ms"] for t in turns),
            "rps": statistics.median(t["rps"] for t in turns), "bad": sum(t["bad"] for t in turns),
            "turns": len(turns)}


def measure_expiry(bench):
    seconds, count = bench.options.seconds, bench.options.expiring
    upstream = start_upstream(bench.servers, bench.run).port
    store = bench.run / "expiring.db"
    expires_s = fill_to_expire(bench, store)
    hapax = start_hapax(bench.servers, bench.run, upstream, "expiring", f"sqlite:{store}")
    turn = lambda: wrk(hapax.port, CONNECTIONS, seconds)
    removed = lambda: metric(hapax.admin, "hapax_records_expired_total")
    note(f"waiting until shortly before {count:,} keys expire")
    time.sleep(max(0, expires_s - time.time() - (BEFORE_TURNS + 0.5) * seconds - 1))
    before = []
    while not before or time.time() + seconds < expires_s:
        note("before they expire")
        before.append(turn())
    if removed() > 0:
        raise Unusable("keys expired while it measured the time before; is the machine busy?")
    time.sleep(max(0, expires_s - time.time()))
    start, during = time.time(), []
    while removed() < count and len(during) < SEGMENTS_MAX:
        note(f"while they are removed: {removed():,.0f} of {count:,}")
        during.append(turn())
    took_s = time.time() - start
    gone = removed()
    phases = {"before": phase(before), "during": phase(during)}
    if gone >= count:
        note("after they are gone")
        phases["after"] = phase([turn() for _ in range(max(2, len(before)))])
    return {"keys": count, "removed": gone, "removal_s": took_s, "connections": CONNECTIONS,
            "phases": phases}
