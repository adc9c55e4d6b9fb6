"""One connection, fresh keys: what the gateway adds to a request, beside what two syncs of this disk cost (a
fresh request needs two commits in a row, so less is not possible). Turns as in side.py."""

import statistics

from measure import note, sync_us, wrk
from side import start_plain_and_hapax


def measure(bench):
    _, proxy, hapax = start_plain_and_hapax(bench)
    turns = []
    for number in range(bench.options.rounds):
        note(f"latency, round {number + 1}/{bench.options.rounds}")
        in_place, growing = sync_us(bench.run)
        turns.append({"proxy": wrk(proxy.port, 1, bench.options.seconds), "sync_us": in_place, "growing_us": growing,
                      "hapax": wrk(hapax.port, 1, bench.options.seconds)})
    return {
        "proxy_p50_ms": statistics.median(t["proxy"]["p50_ms"] for t in turns),
        "proxy_p99_ms": statistics.median(t["proxy"]["p99_ms"] for t in turns),
        "hapax_p50_ms": statistics.median(t["hapax"]["p50_ms"] for t in turns),
        "hapax_p99_ms": statistics.median(t["hapax"]["p99_ms"] for t in turns),
        "added_p50_ms": statistics.median(t["hapax"]["p50_ms"] - t["proxy"]["p50_ms"] for t in turns),
        "two_syncs_ms": statistics.median(2 * t["sync_us"] / 1000 for t in turns),
        "two_growing_syncs_ms": statistics.median(2 * t["growing_us"] / 1000 for t in turns),
        "beyond_syncs_ms": statistics.median(
            t["hapax"]["p50_ms"] - t["proxy"]["p50_ms"] - 2 * t["sync_us"] / 1000 for t in turns),
    }
